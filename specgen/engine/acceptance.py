"""How likely the target is to accept the next drafted token: the drafter's confidence, calibrated as the answer goes.

Two layers. Slow: how often tokens of this confidence were accepted, in bins, for one drafter. Fast: an offset in
log-odds that follows the text, because code and prose, or an easy and a hard paragraph, differ more than a bin can
say. Where confidences mean nothing all bins agree and the offset does the work; where they mean much the offset stays
small.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_EDGES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.97, 0.99)
"""Bins are fine where acceptance is high: there a little more decides how long to draft."""
_PRIOR_MEAN = 0.7
_PRIOR_WEIGHT = 2.0
_MAX_WEIGHT = 200.0
"""Tokens that a bin remembers."""
_NEIGHBOURS = 0.35
"""What a bin borrows from those beside it, per sample of theirs, up to _PRIOR_WEIGHT."""
_OFFSET_GAIN = 0.15
_OFFSET_DECAY = 0.99
_MAX_OFFSET = 4.0
_SLOW_GAIN = 0.02
_FAST_GAIN = 0.2
_CHANGED = 3.2
"""Standard deviations by which the fast mean must stray from the slow one to be more than chance."""
_LEAST_CHANGE = 0.25
_SETTLED = 10.0


@dataclass
class Acceptance:
    """The calibrated acceptance of one drafter.

    Attributes:
        n_tested, n_accepted: per bin of confidence, forgetting slowly.
        offset: log-odds by which acceptance is better than the bins say just now.
        typical: acceptance of a token about which nothing is known yet.
        n_seen: tokens that were tested since it last changed.
        lately: the same as `typical`, over the last few tokens.
    """

    n_tested: list[float] = field(default_factory=lambda: [0.0] * (len(_EDGES) + 1))
    n_accepted: list[float] = field(default_factory=lambda: [0.0] * (len(_EDGES) + 1))
    offset: float = 0.0
    typical: float = _PRIOR_MEAN
    n_seen: float = 0.0
    lately: float = _PRIOR_MEAN

    def predict(self, confidence: float) -> float:
        """Probability that a token of this confidence is accepted, given that those before it were."""
        return _sigmoid(_logit(self._bin_rate(bisect_right(_EDGES, confidence))) + self.offset)

    def observe(self, confidences: Sequence[float], n_accepted: int) -> None:
        """Learn from a round: tokens up to the first rejection were tested, the rest says nothing."""
        for i, confidence in enumerate(confidences[: n_accepted + 1]):
            is_accepted = float(i < n_accepted)
            predicted = self.predict(confidence)
            self.offset = _OFFSET_DECAY * self.offset + _OFFSET_GAIN * (is_accepted - predicted)
            self.offset = min(_MAX_OFFSET, max(-_MAX_OFFSET, self.offset))
            at = bisect_right(_EDGES, confidence)
            keep = min(1.0, _MAX_WEIGHT / (self.n_tested[at] + 1))
            self.n_tested[at] = keep * (self.n_tested[at] + 1)
            self.n_accepted[at] = keep * (self.n_accepted[at] + is_accepted)
            self._follow(is_accepted)

    def _follow(self, is_accepted: float) -> None:
        """Move the typical acceptance: slowly while nothing happens, at once when the text has changed."""
        self.n_seen += 1
        self.typical += max(_SLOW_GAIN, 1 / (self.n_seen + _PRIOR_WEIGHT)) * (is_accepted - self.typical)
        self.lately += _FAST_GAIN * (is_accepted - self.lately)
        spread = math.sqrt(self.typical * (1 - self.typical) * _FAST_GAIN / (2 - _FAST_GAIN))
        if self.n_seen > _SETTLED and abs(self.lately - self.typical) > max(_CHANGED * spread, _LEAST_CHANGE):
            self.typical = self.lately
            self.n_seen = _SETTLED / 2
            self.offset = min(_MAX_OFFSET, max(-_MAX_OFFSET, _logit(self.lately) - _logit(self._overall())))

    def _bin_rate(self, at: int) -> float:
        """The bin's own rate, leaning on its neighbours while it is young."""
        borrowed_tested, borrowed_accepted = _PRIOR_WEIGHT * 0.5, _PRIOR_WEIGHT * 0.5 * self._overall()
        for beside in (at - 1, at + 1):
            if 0 <= beside < len(self.n_tested) and self.n_tested[beside]:
                weight = min(_PRIOR_WEIGHT, _NEIGHBOURS * self.n_tested[beside])
                borrowed_tested += weight
                borrowed_accepted += weight * self.n_accepted[beside] / self.n_tested[beside]
        return (self.n_accepted[at] + borrowed_accepted) / (self.n_tested[at] + borrowed_tested)

    def _overall(self) -> float:
        weight = 4.0
        return (sum(self.n_accepted) + weight * _PRIOR_MEAN) / (sum(self.n_tested) + weight)

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads; the offset belongs to one answer and is left out."""
        return {
            "n_tested": list(self.n_tested),
            "n_accepted": list(self.n_accepted),
            "typical": self.typical,
            "n_seen": self.n_seen,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Acceptance:
        """What was learned before, for a new answer."""
        typical = float(data["typical"])
        return cls(list(data["n_tested"]), list(data["n_accepted"]), 0.0, typical, float(data["n_seen"]), typical)


def _logit(p: float) -> float:
    p = min(0.999, max(0.001, p))
    return math.log(p / (1 - p))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
