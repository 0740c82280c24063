"""Which tokens of a row of logits can survive a top-k, found in two passes over the row.

A chain over the whole vocabulary spends its time on tokens that it drops: copying and sorting 150,000 candidates takes
longer than everything that happens to the 40 that stay. Here the rest is left out before llama.cpp sees it.
"""

from __future__ import annotations

import numpy as np

from specgen.types import FloatArray, IntArray, SamplingParams

_N_GROUPS = 1024
_ROUNDING = 1e-5
"""Relative; well above what 32-bit sums in another order differ by."""


def n_kept(params: SamplingParams) -> int:
    """The candidates that the first cut of the chain keeps; 0 where it has no such limit."""
    return 1 if params.is_greedy else params.top_k


class MovableIds:
    """The ids whose logits penalties and bias may change now: biased ones, and the last tokens.

    Attributes:
        is_anything: with DRY, which may lower any token of a context of thousands and looks for them itself.
    """

    def __init__(self, params: SamplingParams, n_ctx_train: int, n_vocab: int) -> None:
        self.is_anything = params.dry_multiplier > 0
        self._biased = np.array([token for token, _ in params.logit_bias if 0 <= token < n_vocab], dtype=np.int32)
        n_last = params.repeat_last_n if params.repeat_last_n >= 0 else n_ctx_train
        self._last = np.empty(n_last if params.has_penalties else 0, dtype=np.int32)
        self._n_seen = 0
        self._n_vocab = n_vocab

    @property
    def ids(self) -> IntArray:
        """(n,) int32, in no order, perhaps with repeats; none where it is anything."""
        if self.is_anything:
            return self._last[:0]
        last = self._last[: self._n_seen]
        return np.concatenate([self._biased, last]) if self._biased.size else last

    def reset(self) -> None:
        """No tokens yet."""
        self._n_seen = 0

    def accept(self, token: int) -> None:
        """One more token; the oldest leaves when the window is full. A draft may hear of tokens beyond its own."""
        if self._last.size and token < self._n_vocab:
            self._last[self._n_seen % self._last.size] = token
            self._n_seen += 1

    def fork(self) -> MovableIds:
        """A copy."""
        copy = MovableIds.__new__(MovableIds)
        copy.__dict__.update(self.__dict__)
        copy._last = self._last.copy()
        return copy


def floor_of_kth(logits: FloatArray, k: int) -> float:
    """A number that at least `k` logits reach, close to the k-th largest.

    The row is dealt out to groups; as many groups as have a maximum of at least x, so many logits are at least x.

    Args:
        logits: (n_vocab,) float32.
        k: at least 1.

    Returns:
        At most the k-th largest logit; minus infinity where the row is too short for groups to help.
    """
    n_groups = max(_N_GROUPS, 4 * k)  # with fewer, many of the best would hide behind each other
    n_deep = logits.size // n_groups
    if n_deep < 2:
        return -np.inf
    maxima = logits[: n_deep * n_groups].reshape(n_deep, n_groups).max(axis=0)
    return float(np.partition(maxima, n_groups - k)[n_groups - k])


def preselect(logits: FloatArray, k: int, movable: IntArray) -> tuple[IntArray, float]:
    """A few ids among which the `k` best are, whatever becomes of the movable ones.

    Args:
        logits: (n_vocab,) float32; changed and changed back meanwhile.
        k: at least 1.
        movable: ids whose logits will still change (penalties, bias); repeats do no harm.

    Returns:
        (n,) int32 ids in rising order, so that equal logits keep their order, and a bound: all movable ids are there,
        and all others with logits of at least the bound, at least `k` of these. Every id, and minus infinity, where
        nothing can be left out.
    """
    kept = logits[movable]
    logits[movable] = -np.inf
    floor = floor_of_kth(logits, k)
    logits[movable] = np.inf
    ids = np.flatnonzero(logits >= floor) if floor > -np.inf else np.arange(logits.size)
    logits[movable] = kept
    return ids.astype(np.int32), floor


def is_settled(values: FloatArray, floor: float, params: SamplingParams, n_vocab: int) -> bool:
    """Whether the chain's cuts keep the same candidates, whatever lies below the floor.

    Enough for top-k is enough. With less, what is below can only push the ends of top-p's and min-p's cuts: by no more
    than its greatest possible weight, which is next to nothing where the best candidates are far above the floor.

    Args:
        values: (n,) float32 logits of candidates, after everything that moves logits.
        floor: all candidates with logits of at least this are among them.
        params: the cuts.
        n_vocab: as many may be below.
    """
    if floor == -np.inf or not values.size:
        return values.size > 0
    sure = np.sort(values[values >= floor].astype(np.float64))[::-1]
    n_missing = (n_kept(params) or n_vocab) - sure.size
    if n_missing <= 0 or not sure.size:
        return sure.size > 0
    if params.typical_p < 1:
        return False
    least = sure[0] + np.log(params.min_p) - _ROUNDING if params.min_p > 0 else -np.inf
    n_min_p = int((sure >= least).sum()) if floor < least else n_vocab
    n_top_p_before = n_top_p_after = n_vocab
    if params.top_p < 1:
        sums = np.cumsum(np.exp(sure - sure[0]))
        most = sums[-1] + n_missing * np.exp(floor - sure[0])
        n_top_p_before = int(np.searchsorted(sums, params.top_p * sums[-1] * (1 - _ROUNDING))) + 1
        n_top_p_after = int(np.searchsorted(sums, params.top_p * most * (1 + _ROUNDING))) + 1
    if n_top_p_after > sure.size:
        n_top_p_after = n_vocab
    n_kept_at_most = min(n_min_p, n_top_p_after)
    return n_kept_at_most <= sure.size and n_kept_at_most == min(n_min_p, n_top_p_before)
