"""A cost curve v(n), learned from single passes: the time of a target pass over n rows.

It has steps, cliffs and dips, so each width is kept on its own and nothing is smoothed over measured widths. Other
programs only ever add time: a pass that is much faster than what is known is believed at once, which also mends what
was learned beside another program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

FIRST_SAMPLES = 3
_SLOW = 0.15
_OUTLIER = 2.5
"""A pass that took this many times its prediction says nothing about the next one: another program ran."""
MUCH_FASTER = 0.7
_CURIOSITY = 0.85
"""A width between measured ones is taken to cost this share of the straight line, so that each is tried once where it
could be best: curves have dips."""
_BEYOND = 0.6
"""What rows beyond the widest measured pass are taken to cost, relative to the mean of those measured: little enough
to be tried once where drafts are good, after which the width is known."""
_UNKNOWN_ROW = 0.3
"""Before any pass over several rows: what a further row costs, in plain steps."""
_LEAST_ROW = 0.05
"""Before any plain step: what the rows of a wider pass are taken to have cost, in plain steps."""
_SMOOTH_ROW = 0.15
"""Before any other pass over several rows: what a single sample of one is compared with."""
_AT_MOST = 1.25
"""What a pass over several rows can cost, in as many plain steps."""
_DOUBT = 0.4
"""How much of a single sample, on a log scale, is left to what the other widths say."""


@dataclass
class Estimate:
    """A time, learned: the least of the first samples, since other programs only ever add, then a slow running mean."""

    value: float = 0.0
    n_samples: int = 0

    def add(self, sample: float) -> None:
        """Learn from a sample."""
        self.n_samples += 1
        if self.n_samples == 1 or sample < MUCH_FASTER * self.value:
            self.value = sample
        elif self.n_samples <= FIRST_SAMPLES:
            self.value = min(self.value, sample)
        else:
            self.value += (min(sample, _OUTLIER * self.value) - self.value) * _SLOW


@dataclass
class Curve:
    """Seconds by number of rows."""

    widths: dict[int, Estimate] = field(default_factory=dict)

    def add(self, width: int, seconds: float) -> float:
        """Learn from one pass. Returns how slow it was: 1 is as known."""
        known = self.widths.setdefault(width, Estimate())
        slowness = min(_OUTLIER, seconds / known.value) if known.n_samples >= FIRST_SAMPLES else 1.0
        known.add(seconds)
        return slowness

    def upto(self, n_rows: int) -> list[float]:
        """Seconds of passes over 1 to `n_rows` rows; empty without any sample.

        A measured width is what was measured. Between two of them it is a straight line, and a little less; beyond
        the widest it is less steep than before, so that it is tried, but far beyond as dear as plain steps: widths are
        found out by doubling.
        """
        if not self.widths:
            return []
        known = sorted(self.widths)
        values = [self._believed(width) for width in known]
        rows = np.arange(1, n_rows + 1)
        seconds = np.interp(rows, known, values)
        curious = np.full(n_rows, _CURIOSITY)
        curious[[width - 1 for width in known if width <= n_rows]] = 1.0
        curious[: known[0]] = curious[known[-1] :] = 1.0
        seconds *= curious
        below, beyond = rows < known[0], rows > known[-1]
        seconds[below] *= (1 + _LEAST_ROW * (rows[below] - 1)) / (1 + _LEAST_ROW * (known[0] - 1))
        one = values[0] / (1 + _LEAST_ROW * (known[0] - 1))
        seconds[beyond] += _slope_beyond(known[-1], values[-1], one) * (rows[beyond] - known[-1])
        far = rows > 2 * known[-1] + 2
        seconds[far] = np.maximum(seconds[far], one * rows[far])
        return [float(s) for s in seconds]

    def _believed(self, width: int) -> float:
        """What was measured; a single sample may have met another program, so what the other widths say counts too."""
        known = self.widths[width]
        if known.n_samples > 1 or width == 1 or 1 not in self.widths:
            return known.value
        others = sorted(w for w in self.widths if w != width)
        values = [self.widths[w].value for w in others]
        if len(others) == 1:
            expected = (1 + _SMOOTH_ROW * (width - 1)) * values[0]
        elif width < others[-1]:
            expected = float(np.interp(width, others, values))
        else:
            expected = values[-1] + _slope_beyond(others[-1], values[-1], values[0]) * (width - others[-1])
        doubted = known.value * math.pow(expected / known.value, _DOUBT)
        return min(known.value, doubted, _AT_MOST * width * self.widths[1].value)


def _slope_beyond(widest: int, seconds: float, one_s: float) -> float:
    """Seconds of a further row beyond the widest pass that was measured."""
    if widest == 1:
        return _UNKNOWN_ROW * seconds
    return _BEYOND * max(0.0, seconds - one_s) / (widest - 1)
