"""Several drafters as one: those that guess for nothing are heard first, a draft model goes on from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from specgen.engine.drafter import Drafter
from specgen.types import Proposal


class Chain:
    """Asks its drafters in order.

    Args:
        drafters: at least one; the first that has something to offer makes the whole offer.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self.names = tuple(name for drafter in self._drafters for name in drafter.names)

    def begin(self, prompt: Sequence[int]) -> None:
        """A new sequence for all."""
        for drafter in self._drafters:
            drafter.begin(prompt)

    def limit(self, n_history: int) -> int:
        """The farthest that one of them can propose."""
        return max(drafter.limit(n_history) for drafter in self._drafters)

    def n_behind(self, n_history: int) -> int:
        """What the one that is farthest behind must take in."""
        return max(drafter.n_behind(n_history) for drafter in self._drafters)

    def offer(self, history: Sequence[int], n: int) -> Sequence[Proposal]:
        """The first offer there is."""
        return next(filter(None, (drafter.offer(history, n) for drafter in self._drafters)), ())

    def propose(self, history: Sequence[int], draft: Sequence[Proposal] = ()) -> Iterator[Proposal]:
        """One after the other; the next goes on where the last one ended."""
        made = list(draft)
        for drafter in self._drafters:
            for proposal in drafter.propose(history, tuple(made)):
                made.append(proposal)
                yield proposal

    def commit(self, n_valid: int) -> None:
        """All forget what did not stand."""
        for drafter in self._drafters:
            drafter.commit(n_valid)

    @property
    def busy_s(self) -> Mapping[str, float]:
        """Seconds spent drafting, per source."""
        return {name: seconds for drafter in self._drafters for name, seconds in drafter.busy_s.items()}

    @property
    def prefill_s(self) -> float:
        """Seconds spent catching up, in all."""
        return sum(drafter.prefill_s for drafter in self._drafters)
