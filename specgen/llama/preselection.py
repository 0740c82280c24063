"""Which tokens of a row of logits can survive a top-k, found in two passes over the row.

A chain over the whole vocabulary spends its time on tokens that it drops: copying and sorting 150,000 candidates takes
longer than everything that happens to the 40 that stay. Here the rest is left out before llama.cpp sees it.
"""

from __future__ import annotations

import numpy as np

from specgen.types import FloatArray, IntArray, SamplingParams

_N_GROUPS = 1024


class MovableIds:
    """The ids whose logits penalties and bias may change now: biased ones, and the last tokens."""

    def __init__(self, params: SamplingParams, n_ctx_train: int, n_vocab: int) -> None:
        self._biased = np.array([token for token, _ in params.logit_bias if 0 <= token < n_vocab], dtype=np.int32)
        n_last = params.repeat_last_n if params.repeat_last_n >= 0 else n_ctx_train
        self._last = np.empty(n_last if params.has_penalties else 0, dtype=np.int32)
        self._n_seen = 0
        self._n_vocab = n_vocab

    @property
    def ids(self) -> IntArray:
        """(n,) int32, in no order, perhaps with repeats."""
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
        At most the k-th largest logit; minus infinity where the row is too short, or `k` too large, for groups to help.
    """
    n_deep = logits.size // _N_GROUPS
    if n_deep < 2 or 4 * k > _N_GROUPS:  # with fuller groups, many of the best would hide behind each other
        return -np.inf
    maxima = logits[: n_deep * _N_GROUPS].reshape(n_deep, _N_GROUPS).max(axis=0)
    return float(np.partition(maxima, _N_GROUPS - k)[_N_GROUPS - k])


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
