"""How likely the target is to accept the next drafted token: the drafter's confidence, calibrated as the answer goes.

One logistic curve per drafter, log-odds of acceptance = slope · log-odds of confidence + level, followed by an extended
Kalman filter: two numbers and how sure of them it is. The level drifts, because code and prose, or an easy and a hard
paragraph, differ; when more tokens are rejected (or accepted) in a row than chance explains, it is taken to be unknown
again. Where confidences mean nothing the slope goes to zero and the level does the work.

Source: logistic regression by recursive Gaussian approximation, Spiegelhalter and Lauritzen 1990; the prediction that
allows for being unsure is MacKay's 1992.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_PRIOR_SLOPE, _PRIOR_LEVEL = 0.8, 0.8
_DOUBTFUL_SLOPE, _DOUBTFUL_LEVEL = 0.9, -0.7
_PRIOR_VARIANCE = (0.1, 0.4)
_DRIFT = (2e-5, 5e-3)
"""Variance that slope and level gain with every tested token."""
_NEW_TEXT = 0.15
"""Variance of the level from one answer to the next, at least."""
_HOMING = 0.01
"""Per tested token: how quickly what is usual follows."""
_USUAL_EVERY = 8
"""One of so many tested tokens is kept to tell what confidences are usual."""
_MAX_LOG_ODDS = 6.0
_N_RECENT = 24
_PRIOR_CONFIDENCES = (0.4, 0.75, 0.95)
_N_OUTLINE = 6
_SURPRISE_MEMORY = 0.85
_CHANGED = 2.8
"""Standard deviations by which recent tokens must stray from what was predicted to be more than chance."""
_CHANGED_VARIANCE = 1.5


@dataclass
class Acceptance:
    """The calibrated acceptance of one drafter.

    Attributes:
        slope, level: of the curve.
        variance: of slope, their covariance, of level.
        recent: log-odds of the confidences that were tested last, to tell what the next ones may be.
        n_tested: tokens that were tested.
        usual: the same as `recent`, over many answers.
        usual_level: the same as `level`, over many answers.
    """

    slope: float = _PRIOR_SLOPE
    level: float = _PRIOR_LEVEL
    variance: tuple[float, float, float] = (_PRIOR_VARIANCE[0], 0.0, _PRIOR_VARIANCE[1])
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_N_RECENT))
    n_tested: int = 0
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=_N_RECENT))
    usual_level: float | None = None
    _surprise: float = 0.0

    @classmethod
    def doubtful(cls) -> Acceptance:
        """Of a drafter that knows what followed in some text, which is less often what the target says next."""
        return cls(_DOUBTFUL_SLOPE, _DOUBTFUL_LEVEL)

    def predict(self, confidence: float) -> float:
        """Probability that a token of this confidence is accepted, given that those before it were."""
        return self._predict(_log_odds(confidence))

    def outlook(self, optimism: float = 0.0) -> list[float]:
        """Acceptance of tokens that are not drafted yet: a few values, equally likely, in rising order.

        Args:
            optimism: standard deviations of the curve by which it may be better than it seems.
        """
        seen = sorted(self.recent or map(_log_odds, _PRIOR_CONFIDENCES))
        n = min(_N_OUTLINE, len(seen))
        edges = [len(seen) * i // n for i in range(n + 1)]
        middles = (sum(seen[low:high]) / (high - low) for low, high in pairwise(edges))
        return sorted(self._predict(x, optimism) for x in middles)

    def observe(self, confidences: Sequence[float], n_accepted: int) -> None:
        """Learn from a round: tokens up to the first rejection were tested, the rest says nothing."""
        for i, confidence in enumerate(confidences[: n_accepted + 1]):
            self._observe(_log_odds(confidence), float(i < n_accepted))

    def _predict(self, x: float, optimism: float = 0.0) -> float:
        v_slope, v_both, v_level = self.variance
        spread = math.sqrt(max(0.0, x * x * v_slope + 2 * x * v_both + v_level)) if optimism else 0.0
        return _sigmoid(self.slope * x + self.level + optimism * spread)

    def _observe(self, x: float, is_accepted: float) -> None:
        """One step of the filter: drift, then the Gaussian that is nearest after a Bernoulli trial."""
        self.recent.append(x)
        if self.n_tested % _USUAL_EVERY == 0 or len(self.usual) < _USUAL_EVERY:
            self.usual.append(x)
        self.n_tested += 1
        v_slope, v_both, v_level = self.variance
        v_slope, v_level = v_slope + _DRIFT[0], v_level + _DRIFT[1]
        predicted = _sigmoid(self.slope * x + self.level)
        weight = max(0.02, predicted * (1 - predicted))
        towards_slope, towards_level = v_slope * x + v_both, v_both * x + v_level
        total = 1 / weight + x * towards_slope + towards_level
        error = (is_accepted - predicted) / weight
        self.slope += towards_slope / total * error
        self.level += towards_level / total * error
        self.variance = (
            v_slope - towards_slope * towards_slope / total,
            v_both - towards_slope * towards_level / total,
            v_level - towards_level * towards_level / total,
        )
        gain = max(_HOMING, 1 / self.n_tested)
        usual = self.level if self.usual_level is None else self.usual_level
        self.usual_level = usual + gain * (self.level - usual)
        self._notice((is_accepted - predicted) / math.sqrt(weight))

    def _notice(self, deviation: float) -> None:
        """Doubt the level when recent tokens stray from the prediction by more than chance."""
        self._surprise = _SURPRISE_MEMORY * self._surprise + deviation
        spread = 1 / math.sqrt(1 - _SURPRISE_MEMORY**2)
        if abs(self._surprise) > _CHANGED * spread:
            v_slope, v_both, v_level = self.variance
            self.variance = (v_slope, v_both, max(v_level, _CHANGED_VARIANCE))
            self._surprise = 0.0

    def begin(self) -> None:
        """A new answer: its text is another, so what is usual is expected again, and less sure."""
        v_slope, v_both, v_level = self.variance
        self.variance = (v_slope, v_both, max(v_level, _NEW_TEXT))
        self.level = self.level if self.usual_level is None else self.usual_level
        self.recent = self.usual.copy()
        self._surprise = 0.0

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads."""
        return {
            "slope": self.slope,
            "level": self.level if self.usual_level is None else self.usual_level,
            "variance": list(self.variance),
            "confidences": [_sigmoid(x) for x in self.usual],
            "n_tested": self.n_tested,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Acceptance:
        """What was learned before."""
        v_slope, v_both, v_level = (float(v) for v in data["variance"])
        usual = deque((_log_odds(float(c)) for c in data["confidences"]), maxlen=_N_RECENT)
        level = float(data["level"])
        known = cls(float(data["slope"]), level, (v_slope, v_both, v_level), usual.copy(), int(data["n_tested"]))
        known.usual, known.usual_level = usual, level
        return known


def _log_odds(p: float) -> float:
    if not 0.0 < p < 1.0:
        return _MAX_LOG_ODDS if p >= 1.0 else -_MAX_LOG_ODDS
    return min(_MAX_LOG_ODDS, max(-_MAX_LOG_ODDS, math.log(p / (1 - p))))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
