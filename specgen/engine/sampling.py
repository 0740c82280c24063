"""The seam to a sampler: from a row of logits to the distribution that a token is drawn from.

The reference implementation is llama.cpp's sampler chain (`specgen.llama.samplers`); the greedy one needs no chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from specgen.types import Distribution, FloatArray, IntArray, point_mass


class Sampler(Protocol):
    """The processed distribution of one stream of tokens: penalties, cuts, temperature, grammar."""

    @property
    def is_greedy(self) -> bool:
        """Whether every distribution is a point mass."""

    def reset(self, prompt: Sequence[int]) -> None:
        """Start a new stream; penalties see the prompt."""

    def distribution(self, logits: FloatArray) -> Distribution:
        """The distribution of the next token.

        Args:
            logits: (n_vocab,) float32; may be overwritten. Likely tokens that were found impossible are minus infinity
                afterwards.
        """

    @property
    def n_candidates(self) -> int | None:
        """How many of the likeliest tokens hold all that a distribution needs; None where it can need any token."""

    def distribution_among(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """The distribution of the next token, from the likeliest ones alone.

        Args:
            ids: (n,) int32 in rising order, at least the `n_candidates` likeliest.
            logits: (n,) float32, theirs.
        """

    def accept(self, token: int) -> None:
        """`token` was generated: penalties, grammar and the like move on."""

    def is_finished(self) -> bool:
        """Whether no token can follow what was accepted: a grammar is at its end."""

    def fork(self) -> Sampler:
        """A copy whose `accept` does not touch this one; may be the sampler itself when nothing has state."""


def without(banned: IntArray, ids: IntArray, logits: FloatArray) -> tuple[IntArray, FloatArray]:
    """Candidates that may be generated."""
    if not banned.size:
        return ids, logits
    is_allowed = ~np.isin(ids, banned)
    return ids[is_allowed], logits[is_allowed]


class GreedySampler:
    """The most probable token, straight from the logits: no penalties, no bias but ids that are never wanted.

    Args:
        banned: ids that must not be generated, such as the end-of-generation ids under `--ignore-eos`.
    """

    is_greedy = True

    def __init__(self, banned: Sequence[int] = ()) -> None:
        self._banned: IntArray = np.array(sorted(banned), dtype=np.int32)

    def reset(self, prompt: Sequence[int]) -> None:
        """Nothing to forget."""

    def distribution(self, logits: FloatArray) -> Distribution:
        """A point mass at the largest logit; the lowest id wins a tie."""
        if self._banned.size:
            logits[self._banned] = -np.inf
        return point_mass(int(logits.argmax()))

    @property
    def n_candidates(self) -> int:
        """The best one behind all that are never wanted."""
        return self._banned.size + 1

    def distribution_among(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """A point mass at the largest logit; the lowest id wins a tie."""
        ids, logits = without(self._banned, ids, logits)
        return point_mass(int(ids[logits.argmax()]))

    def accept(self, token: int) -> None:
        """Nothing to remember."""

    def is_finished(self) -> bool:
        """Never: any token may follow any other."""
        return False

    def fork(self) -> GreedySampler:
        """Itself: there is no state."""
        return self
