"""An index of earlier texts: where has the end of this history stood there, and what followed?

All positions of the texts are sorted by the tokens before them, nearest first; the tokens at these positions, in that
order, are the Burrows-Wheeler transform of the reversed texts. The positions after one context are then a range of
rows, one token more maps every range by two rank queries (backward search), and the ranges of all lengths of a context
are mapped by one numpy call. That gives the longest match and the counts for every shorter one at once.

Apart from the automaton because its texts are complete: sorting a million tokens takes numpy about half a second,
where appending them one by one takes Python ten.

Sources: Ferragina and Manzini 2000, "Opportunistic data structures with applications" (backward search); Manber and
Myers 1990 (sorting by doubling).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from specgen.drafting.evidence import MAX_MATCH, confidence
from specgen.types import IntArray

_MAX_SAMPLE = 512
"""Rows that are looked at to find the token that followed most often."""


class CorpusIndex:
    """Texts that do not grow. Immutable, so that drafters may share it.

    Keeps 8 bytes per token and 4 per id up to the largest; while it is made, 45 bytes per token.

    Args:
        texts: token ids, not negative; no match runs from one text into the next. At most 2**31 tokens in all.
        max_match: longest context, at least 1.
    """

    def __init__(self, texts: Sequence[Sequence[int]], max_match: int = MAX_MATCH) -> None:
        self._max_match = max_match
        self._border = 1 + max((max(text) for text in texts if len(text)), default=-1)  # follows every text
        text = _joined(texts, self._border)
        self._follower: IntArray = text[_sorted_by_context(text, max_match)]
        self._rows_before: IntArray = np.argsort(self._follower, kind="stable").astype(np.int32)
        self._first: IntArray = np.cumsum(np.bincount(text + 1), dtype=np.int32)  # where the rows of a token begin

    @property
    def root(self) -> CorpusContext:
        """The context of no tokens."""
        return CorpusContext(self, np.array([[0], [len(self._follower)]], dtype=np.int32))

    def _n_above(self, rows: IntArray, token: int) -> IntArray:
        """How many rows above each of `rows` are followed by `token`."""
        followed = self._rows_before[self._first[token] : self._first[token + 1]]
        return np.searchsorted(followed, rows).astype(np.int32)  # of one type, or numpy copies `followed` next time

    def _mapped(self, ranges: IntArray, token: int) -> IntArray:
        """The ranges of contexts and one more token, as long as they are not empty."""
        if not 0 <= token < self._border:
            return ranges[:, :0]
        mapped: IntArray = self._first[token] + self._n_above(ranges[:, : self._max_match], token)
        return mapped[:, : np.count_nonzero(mapped[0] < mapped[1])]

    def _n_rows(self, ranges: IntArray, token: int) -> IntArray:
        """How many rows of each range are followed by `token`."""
        n_above = self._n_above(ranges, token)
        counts: IntArray = n_above[1] - n_above[0]
        return counts

    def _favourite(self, begin: int, end: int) -> int | None:
        """The token that follows most often in a range, the smallest id of several.

        A wide range is sampled evenly; None where nearly all of it stands at the ends of texts.
        """
        sample = self._follower[begin : end : 1 + (end - begin - 1) // _MAX_SAMPLE]
        tokens, counts = np.unique(sample[sample != self._border], return_counts=True)
        return int(tokens[counts.argmax()]) if len(tokens) else None


class CorpusContext:
    """A place in the texts of an index. See `Context`.

    Args:
        index: the texts.
        ranges: (2, n + 1) first row and end of the last 0, 1 ... n tokens, each inside the one before.
    """

    def __init__(self, index: CorpusIndex, ranges: IntArray) -> None:
        self._index = index
        self._ranges = ranges

    @cached_property
    def _n_followed(self) -> IntArray:
        """For each length how often a token followed; the longest ones may only have stood at the end of a text."""
        counts = self._ranges[1] - self._ranges[0] - self._index._n_rows(self._ranges, self._index._border)
        followed: IntArray = counts[: np.count_nonzero(counts)]
        return followed

    @property
    def n_matched(self) -> int:
        """Length of the longest end of the history that a token followed."""
        return max(0, len(self._n_followed) - 1)

    def guess(self) -> tuple[int, float] | None:
        """What followed most often, with its confidence."""
        n = self.n_matched
        if not n:
            return None
        token = self._index._favourite(*self._ranges[:, n].tolist())
        if token is None:
            return None
        n_agreeing = self._index._n_rows(self._ranges[:, 1 : n + 1], token)
        longest_first = zip(n_agreeing[::-1].tolist(), self._n_followed[:0:-1].tolist(), repeat(1))
        return token, confidence(longest_first)

    def after(self, token: int) -> CorpusContext:
        """The context one token on."""
        mapped = self._index._mapped(self._ranges, token)
        return CorpusContext(self._index, np.concatenate((self._ranges[:, :1], mapped), axis=1))


def _joined(texts: Sequence[Sequence[int]], border: int) -> IntArray:
    """(n,) int32: every text and a border after it; a ring, so that the first text begins after a border too."""
    end = np.array([border], dtype=np.int32)
    parts = [part for text in texts for part in (np.asarray(text, dtype=np.int32), end)]
    return np.concatenate(parts or [end])


def _sorted_by_context(text: IntArray, depth: int) -> NDArray[np.int64]:
    """Positions of a ring of tokens, sorted by the `depth` tokens before them or more, nearest first."""
    n = len(text)
    key = np.roll(text, 1).astype(np.int64)
    width = 1
    while True:
        order = np.argsort(key, kind="stable")
        rank = np.zeros(n, dtype=np.int64)
        rank[order[1:]] = np.cumsum(np.diff(key[order]) != 0)
        if width >= depth or rank[order[-1]] == n - 1:
            return order
        key = rank * n + np.roll(rank, width)
        width *= 2
