"""What the drafters without a model have in common: they read along, offer, and propose nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

from specgen.types import Proposal


class OfferingDrafter(ABC):
    """Takes in the history as it grows and offers what its texts say.

    The prompt is taken in with the first offer, after the first token is out, so that time to first token is the
    target's own. That time is `prefill_s`: it comes once, and says nothing about the next guess. The tokens of later
    rounds are `busy_s`, like the guessing.

    Args:
        name: the source of its proposals.
        clock: seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.names = (name,)
        self._clock = clock
        self._n_seen = 0
        self._busy_s = 0.0
        self._prefill_s = 0.0

    @abstractmethod
    def _forget(self) -> None:
        """Drop the last sequence."""

    @abstractmethod
    def _take_in(self, tokens: Sequence[int]) -> None:
        """The tokens that joined the history."""

    @abstractmethod
    def _guess(self, n: int) -> list[Proposal]:
        """Up to `n` tokens after what was taken in."""

    def begin(self, prompt: Sequence[int]) -> None:  # noqa: ARG002
        """Forget the last prompt and its answer: an answer given twice must not help itself."""
        self._n_seen = 0
        self._forget()

    def limit(self, n_history: int) -> int:  # noqa: ARG002
        """It only offers."""
        return 0

    def n_behind(self, n_history: int) -> int:  # noqa: ARG002
        """Never behind: it reads along in no time."""
        return 1

    def offer(self, history: Sequence[int], n: int) -> Sequence[Proposal]:
        """Read what is new, then guess."""
        started_s = self._clock()
        is_prompt = self._n_seen == 0
        self._take_in(history[self._n_seen :])
        self._n_seen = len(history)
        read_s = self._clock()
        offered = self._guess(n)
        self._busy_s += self._clock() - (read_s if is_prompt else started_s)
        self._prefill_s += read_s - started_s if is_prompt else 0.0
        return offered

    def propose(self, history: Sequence[int], draft: Sequence[Proposal] = ()) -> Iterator[Proposal]:  # noqa: ARG002
        """Nothing: what it knows, it offers."""
        return iter(())

    def commit(self, n_valid: int) -> None:  # noqa: B027
        """Nothing to take back: only the history is taken in, and that stands."""

    @property
    def busy_s(self) -> Mapping[str, float]:
        """Seconds of guessing, and of reading along after the prompt."""
        return {self.names[0]: self._busy_s}

    @property
    def prefill_s(self) -> float:
        """Seconds of taking in prompts."""
        return self._prefill_s
