"""The seam to a drafter: anything that can guess how a token sequence goes on.

Two ways to guess. What costs next to nothing (looking up what followed these tokens before) is offered before a round,
so that the policy weighs it whole. What costs passes of a model is proposed token by token, so that the policy can stop
after any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from specgen.types import Proposal


class Drafter(Protocol):
    """Guesses the next tokens; one that only offers has nothing to propose, and the other way round."""

    @property
    def names(self) -> tuple[str, ...]:
        """The sources that its proposals carry."""

    def begin(self, prompt: Sequence[int]) -> None:
        """A new sequence. Cheap: a model is not fed before it first drafts."""

    def limit(self, n_history: int) -> int:
        """How long a draft can be after `n_history` tokens where it proposes the last of them; 0 if it only offers."""

    def n_behind(self, n_history: int) -> int:
        """Tokens of the history that it must take in before it can propose."""

    def offer(self, history: Sequence[int], n: int) -> Sequence[Proposal]:
        """Up to `n` guesses that cost next to nothing; empty where it knows none, or where guessing costs passes.

        Args:
            history: prompt and answer so far; between two calls of `begin` it only grows.
            n: at least 1.
        """

    def propose(self, history: Sequence[int], draft: Sequence[Proposal] = ()) -> Iterator[Proposal]:
        """Guess on from `history` and a draft so far. Lazy: work for a token happens when it is asked for.

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
