"""Ratios between arms. Each is taken within one repeat of one prompt, so that a drifting machine does not enter it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from arms import Arm, Role, ratio
from measure import Measurement, members


def geometric_mean(values: Collection[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


@dataclass(frozen=True)
class Comparison:
    """The speed of one arm to another's.

    Attributes:
        by_prompt: a prompt's name to its ratios, one per repeat.
    """

    by_prompt: dict[str, list[float]]

    @property
    def mean(self) -> float:
        """Geometric mean over prompts of the medians over repeats."""
        return geometric_mean(self.medians.values())

    @property
    def medians(self) -> dict[str, float]:
        """The median over repeats of every prompt."""
        return {name: statistics.median(ratios) for name, ratios in self.by_prompt.items()}

    @property
    def worst(self) -> tuple[str, float]:
        """The prompt with the smallest median."""
        return min(self.medians.items(), key=lambda item: item[1])

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest single ratio."""
        ratios = [ratio for part in self.by_prompt.values() for ratio in part]
        return min(ratios), max(ratios)


def compare(measured: Sequence[Measurement], arm: Arm, other: Arm) -> Comparison:
    """One arm to another, on all prompts that both were measured on."""
    runs = {(m.arm, m.prompt, m.repeat): m.run for m in measured}
    by_prompt: dict[str, list[float]] = {}
    for (who, prompt, repeat), run in runs.items():
        if who == arm and (other, prompt, repeat) in runs:
            by_prompt.setdefault(prompt.name, []).append(ratio(run, runs[other, prompt, repeat]))
    return Comparison(by_prompt)


def ranked(measured: Sequence[Measurement], role: Role) -> list[Arm]:
    """The arms of a role, fastest first: by geometric mean over prompts, to plain decoding."""
    arms = list(dict.fromkeys(m.arm for m in measured))
    plain = members(arms, Role.PLAIN)
    return sorted(members(arms, role), key=lambda arm: compare(measured, arm, plain[0]).mean, reverse=True)
