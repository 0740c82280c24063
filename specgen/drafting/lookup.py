"""Prompt lookup: the last few tokens stood in the history before, so what followed there may follow again.

Source: Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding, with an index in place of its scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from specgen.drafting.evidence import MAX_MATCH, confidence
from specgen.drafting.offering import OfferingDrafter
from specgen.types import Proposal

NAME = "lookup"

MIN_N = 2
"""A single token is too common to say anything."""
MAX_N = 5
"""More gains nothing: over code and prose the tokens per round rise by 0.2 % from 3 to 5 and by less than 0.1 % beyond,
and every length costs an index entry per token."""


class LookupDrafter(OfferingDrafter):
    """Offers what followed the most recent occurrence of the longest n-gram that ends the history.

    Per token of history it writes one index entry for each n, half a kilobyte in all. Where the occurrence reaches into
    the end of the history the offer goes round: a period that was seen goes on.

    Args:
        max_n: longest n-gram looked up, at least MIN_N.
        clock: seconds.
    """

    def __init__(self, max_n: int = MAX_N, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(NAME, clock)
        self._max_n = max_n
        self._forget()

    def _forget(self) -> None:
        self._text: list[int] = []
        self._followers: dict[tuple[int, ...], int] = {}  # n-gram to the position after its last occurrence

    def _take_in(self, tokens: Sequence[int]) -> None:
        """Index the n-grams before each token: only now they have something that follows."""
        text, followers = self._text, self._followers
        for token in tokens:
            end = len(text)
            for n in range(MIN_N, min(self._max_n, end) + 1):
                followers[tuple(text[end - n :])] = end
            text.append(token)

    def _guess(self, n: int) -> list[Proposal]:
        start = self._find()
        if start is None:
            return []
        n_matched = self._n_matched(start)
        followed = islice(cycle(self._text[start : start + n]), n)
        return [
            Proposal(token, NAME, confidence([(1, 1, min(n_matched + i, MAX_MATCH))]))
            for i, token in enumerate(followed)
        ]

    def _find(self) -> int | None:
        """Where the text goes on after the last occurrence of its longest known end."""
        for n in range(min(self._max_n, len(self._text)), MIN_N - 1, -1):
            start = self._followers.get(tuple(self._text[-n:]))
            if start is not None:
                return start
        return None

    def _n_matched(self, start: int) -> int:
        """How far the text before `start` agrees with the text's end, looking back at most MAX_MATCH."""
        n_matched = 0
        while n_matched < min(start, MAX_MATCH) and self._text[start - 1 - n_matched] == self._text[-1 - n_matched]:
            n_matched += 1
        return n_matched
