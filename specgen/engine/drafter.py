"""The seam to a drafter: anything that can guess how a token sequence goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from specgen.types import Proposal


class Drafter(Protocol):
    """Proposes tokens one at a time, so that the policy can stop it after any of them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The sources that its proposals carry."""

    def begin(self, prompt: Sequence[int]) -> None:
        """A new sequence. Cheap: a model is not fed before it first drafts."""

    def limit(self, n_history: int) -> int:
        """How many tokens it can propose after `n_history` tokens."""

    def n_behind(self, n_history: int) -> int:
        """Tokens of the history that it must take in before it can propose."""

    def propose(self, history: Sequence[int]) -> Iterator[Proposal]:
        """Guess on from `history` (prompt and answer so far). Lazy: work for a token happens when it is asked for.

        The iterator is used up or dropped before any other call.
        """

    def commit(self, n_valid: int) -> None:
        """The first `n_valid` tokens of history plus draft stand; forget the rest. Also called after an early end.

        Raises:
            BackendError: a model's memory cannot forget.
        """

    @property
    def busy_s(self) -> Mapping[str, float]:
        """Seconds spent drafting since it was made, per source; catching up is not in it."""

    @property
    def prefill_s(self) -> float:
        """Seconds spent catching up since it was made."""
