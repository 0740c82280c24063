"""What passes cost on this machine: a table of measured times, and predictions from it.

The machine's speed drifts for all passes together, so a common scale follows every sample quickly while the passes' own
values move slowly. The table is plain data: where it is kept is not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specgen.engine.curve import FIRST_SAMPLES, MUCH_FASTER, Curve, Estimate

BAND_EDGES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Cache lengths at which a new band of costs begins; attention grows with the cache."""

_FAST = 0.25
"""How quickly the common scale follows a pass."""
_WELL_MEASURED = 3
"""A band with so many widths of its own borrows from no other."""


def band_of(n_past: int) -> int:
    """The band of a cache length."""
    return sum(n_past >= edge for edge in BAND_EDGES)


@dataclass
class CostTable:
    """Measured times of one pair on one machine.

    Attributes:
        verify: target passes, rows -> seconds, by band of cache length.
        step: one proposal, by drafter.
        catch_up: per token, for tokens that the draft takes in before it drafts.
        scale: how slow the machine is now, 1 being what the other values say.
    """

    verify: dict[int, Curve] = field(default_factory=dict)
    step: dict[str, Estimate] = field(default_factory=dict)
    catch_up: Estimate = field(default_factory=Estimate)
    scale: float = 1.0

    def add_verify(self, n_past: int, n_rows: int, seconds: float) -> None:
        """Learn from one pass of the target.

        Where plain steps are much faster than what is known, all that is known was measured beside another program.
        """
        curve = self.verify.get(band_of(n_past), Curve())
        if n_rows == 1 and 1 in curve.widths and seconds < MUCH_FASTER * self.scale * curve.widths[1].value:
            self.scale = seconds / curve.widths[1].value
        slowness = self.verify.setdefault(band_of(n_past), Curve()).add(n_rows, seconds / self.scale)
        self.scale *= 1 + _FAST * (slowness - 1)

    def add_step(self, drafter: str, seconds: float) -> None:
        """Learn from the proposals of one round: seconds per proposal."""
        self.step.setdefault(drafter, Estimate()).add(seconds / self.scale)

    def add_catch_up(self, seconds: float) -> None:
        """Learn from tokens that a draft took in: seconds per token."""
        self.catch_up.add(seconds / self.scale)

    def verify_s(self, n_past: int, n_rows: int) -> list[float]:
        """Seconds of target passes over 1 to `n_rows` rows; empty before the first pass.

        Widths that this band lacks are taken from the nearest band that has some, at the ratio of their plain steps.
        """
        return [seconds * self.scale for seconds in self._curve(band_of(n_past), n_rows)]

    def _curve(self, band: int, n_rows: int) -> list[float]:
        own = self.verify.get(band, Curve())
        if len(own.widths) >= _WELL_MEASURED:
            return own.upto(n_rows)
        for other in sorted(self.verify, key=lambda b: abs(b - band)):
            if other != band and len(self.verify[other].widths) > 1:
                borrowed = self.verify[other].upto(n_rows)
                here = own.upto(n_rows)
                ratio = here[0] / borrowed[0] if here else 1.0
                return [here[n] if n + 1 in own.widths else ratio * s for n, s in enumerate(borrowed)]
        return own.upto(n_rows)

    def has_plain(self, n_past: int) -> bool:
        """Whether a plain step was measured in this band, or in any."""
        own = self.verify.get(band_of(n_past))
        return any(1 in curve.widths for curve in ([own] if own else self.verify.values()))

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
                str(band): {str(w): [e.value * self.scale, e.n_samples] for w, e in sorted(curve.widths.items())}
                for band, curve in sorted(self.verify.items())
            },
            "step_s": {name: e.value * self.scale for name, e in self.step.items()},
            "catch_up_s": self.catch_up_s,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> CostTable:
        """A table that trusts what was kept, and can still be moved by what it sees today."""
        return cls(
            verify={
                int(band): Curve(
                    {int(w): Estimate(float(s), min(int(n), FIRST_SAMPLES)) for w, (s, n) in widths.items()}
                )
                for band, widths in data["verify_s"].items()
            },
            step={name: Estimate(float(s), FIRST_SAMPLES) for name, s in data["step_s"].items()},
            catch_up=Estimate(float(data["catch_up_s"] or 0.0), FIRST_SAMPLES if data["catch_up_s"] else 0),
        )
