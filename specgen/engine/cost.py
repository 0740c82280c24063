"""What passes cost on this machine: a table of measured times, and predictions from it.

v(n), the time of a target pass over n rows, has steps, cliffs and dips, so each width is kept on its own and nothing
is smoothed over measured widths. The machine's speed drifts for all passes together, so a common scale follows every
sample quickly while the passes' own values move slowly. Other programs only ever add time: a pass that is much faster
than what is known is believed at once, which also mends what was learned beside another program. The table is plain
data: where it is kept is not its business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BAND_EDGES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Cache lengths at which a new band of costs begins; attention grows with the cache."""

_SLOW = 0.15
_FAST = 0.25
_FIRST_SAMPLES = 3
_SMOOTH_ROW = 0.15
_LEAST_ROW = 0.05
_OUTLIER = 2.5
"""A pass that took this many times its prediction says nothing about the next one: another program ran."""
_MUCH_FASTER = 0.7
_CURIOSITY = 0.85
"""A width between measured ones is taken to cost this share of the straight line, so that each is tried once where it
could be best: curves have dips."""
_BEYOND = 0.6
"""What rows beyond the widest measured pass are taken to cost, relative to the mean of those measured: little enough
to be tried once where drafts are good, after which the width is known.
"""
_UNKNOWN_ROW = 0.3
"""Before any pass over several rows: what a further row costs, in plain steps."""


def band_of(n_past: int) -> int:
    """The band of a cache length."""
    return sum(n_past >= edge for edge in BAND_EDGES)


@dataclass
class Estimate:
    """A time, learned: the least of the first samples, since other programs only ever add, then a slow running mean."""

    value: float = 0.0
    n_samples: int = 0

    def add(self, sample: float) -> None:
        """Learn from a sample."""
        self.n_samples += 1
        if self.n_samples == 1 or sample < _MUCH_FASTER * self.value:
            self.value = sample
        elif self.n_samples <= _FIRST_SAMPLES:
            self.value = min(self.value, sample)
        else:
            self.value += (min(sample, _OUTLIER * self.value) - self.value) * _SLOW


@dataclass
class Series:
    """Times by width in one band of cache lengths."""

    widths: dict[int, Estimate] = field(default_factory=dict)

    def add(self, width: int, seconds: float) -> float:
        """Learn from one pass. Returns how slow it was: 1 is as known."""
        known = self.widths.setdefault(width, Estimate())
        slowness = min(_OUTLIER, seconds / known.value) if known.n_samples >= _FIRST_SAMPLES else 1.0
        known.add(seconds)
        return slowness

    def predict(self, width: int) -> float | None:
        """Seconds of a pass; between measured widths a straight line, beyond them dear; None without any sample."""
        known = self.widths.get(width)
        if known is not None:
            return known.value * (1 if known.n_samples > 1 else self._doubt(width))
        if not self.widths:
            return None
        is_between = min(self.widths) < width < max(self.widths)
        return self._line(width) * (_CURIOSITY if is_between else 1.0)

    def _line(self, width: int) -> float:
        """Seconds of a pass by the measured widths on both sides, or on the one there is."""
        below = max((w for w in self.widths if w < width), default=None)
        above = min((w for w in self.widths if w > width), default=None)
        if below is None:
            narrowest = min(self.widths)
            return self.widths[narrowest].value * (1 + _LEAST_ROW * (width - 1)) / (1 + _LEAST_ROW * (narrowest - 1))
        low = self.widths[below].value
        if above is not None:
            high = self.widths[above].value
            return low + (high - low) * (width - below) / (above - below)
        return low + self._slope_beyond(below) * (width - below)

    def _doubt(self, width: int) -> float:
        """A single sample may have met another program: half way, on a log scale, to what the other widths say."""
        others = Series({w: known for w, known in self.widths.items() if w != width})
        value = self.widths[width].value
        if width == 1 or 1 not in others.widths or value <= 0:
            return 1.0
        if len(others.widths) == 1:
            expected = (1 + _SMOOTH_ROW * (width - 1)) * others.widths[1].value
        else:
            expected = others._line(width)
        return min(1.0, math.sqrt(expected / value))

    def _slope_beyond(self, widest: int) -> float:
        """Seconds of a further row beyond the widest pass that was measured."""
        low = self.widths[widest].value
        if widest == 1:
            return _UNKNOWN_ROW * low
        one = self.predict(1) or low
        return _BEYOND * max(0.0, low - one) / (widest - 1)


@dataclass
class CostTable:
    """Measured times of one pair on one machine.

    Attributes:
        verify: target passes, rows -> seconds, by band of cache length.
        step: one proposal, by drafter.
        catch_up: per token, for tokens that the draft takes in before it drafts.
        scale: how slow the machine is now, 1 being what the other values say.
    """

    verify: dict[int, Series] = field(default_factory=dict)
    step: dict[str, Estimate] = field(default_factory=dict)
    catch_up: Estimate = field(default_factory=Estimate)
    scale: float = 1.0

    def add_verify(self, n_past: int, n_rows: int, seconds: float) -> None:
        """Learn from one pass of the target."""
        slowness = self.verify.setdefault(band_of(n_past), Series()).add(n_rows, seconds / self.scale)
        self.scale *= 1 + _FAST * (slowness - 1)

    def add_step(self, drafter: str, seconds: float) -> None:
        """Learn from the proposals of one round: seconds per proposal."""
        self.step.setdefault(drafter, Estimate()).add(seconds / self.scale)

    def add_catch_up(self, seconds: float) -> None:
        """Learn from tokens that a draft took in: seconds per token."""
        self.catch_up.add(seconds / self.scale)

    def verify_s(self, n_past: int, n_rows: int) -> float | None:
        """Seconds of a target pass over `n_rows` rows; None before the first pass.

        A width that this band lacks is taken from the nearest band that has it, at the ratio of their plain steps.
        """
        seconds = self._verify_s(band_of(n_past), n_rows)
        return None if seconds is None else seconds * self.scale

    def _verify_s(self, band: int, n_rows: int) -> float | None:
        own = self.verify.get(band)
        if own is not None and (n_rows in own.widths or len(own.widths) > 2):
            return own.predict(n_rows)
        others = sorted((b for b in self.verify if b != band), key=lambda b: abs(b - band))
        for other in (self.verify[b] for b in others):
            if len(other.widths) > 1:
                predicted, plain = other.predict(n_rows), other.predict(1)
                here = own.predict(1) if own is not None else plain
                return predicted * here / plain if predicted and plain and here else None
        return own.predict(n_rows) if own is not None else None

    def has_plain(self, n_past: int) -> bool:
        """Whether a plain step was measured in this band, or in any."""
        own = self.verify.get(band_of(n_past))
        return any(1 in series.widths for series in ([own] if own else self.verify.values()))

    def step_s(self, drafter: str) -> float | None:
        """Seconds of one proposal; None before the first."""
        known = self.step.get(drafter)
        return known.value * self.scale if known else None

    @property
    def catch_up_s(self) -> float | None:
        """Seconds of one token that a draft takes in; None before the first."""
        return self.catch_up.value * self.scale if self.catch_up.n_samples else None

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads."""
        return {
            "verify_s": {
                str(band): {str(w): [e.value * self.scale, e.n_samples] for w, e in sorted(series.widths.items())}
                for band, series in sorted(self.verify.items())
            },
            "step_s": {name: e.value * self.scale for name, e in self.step.items()},
            "catch_up_s": self.catch_up_s,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> CostTable:
        """A table that trusts what was kept, and can still be moved by what it sees today."""
        return cls(
            verify={
                int(band): Series(
                    {int(w): Estimate(float(s), min(int(n), _FIRST_SAMPLES)) for w, (s, n) in widths.items()}
                )
                for band, widths in data["verify_s"].items()
            },
            step={name: Estimate(float(s), _FIRST_SAMPLES) for name, s in data["step_s"].items()},
            catch_up=Estimate(float(data["catch_up_s"] or 0.0), _FIRST_SAMPLES if data["catch_up_s"] else 0),
        )
