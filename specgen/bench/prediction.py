"""The speed-up that measured costs and acceptance lead one to expect, and what stands in its way.

With α the chance that a drafted token stands, c a draft step and v(n) a target pass over n rows, both in plain steps:
a draft of γ tokens yields (1 - α^(γ+1)) / (1 - α) tokens for γ·c + v(γ+1) plain steps.

Source: Leviathan et al. 2023, arXiv:2211.17192, with a measured v in place of v = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from specgen.bench.record import PairInfo, Report

LONGEST = 16
_PAYS = 1.05
"""A speed-up worth having, and one that would be noticed."""
_FAST_STEP, _GOOD_ALPHA, _CHEAP_ROW = 0.05, 0.9, 0.03
"""What a quick draft, a good one and a machine bound by its memory are like."""
_SLOW_STEP, _POOR_ALPHA, _DEAR_PASS = 0.5, 0.5, 2.0
"""Where even one of them is remarkable. The last is v(4)."""


def expected_tokens(alpha: float, gamma: float) -> float:
    """Tokens of a round: those that stand and the target's own; γ need not be whole."""
    return gamma + 1 if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def verify_ratios(verify_s: Mapping[int, float]) -> dict[int, float]:
    """v(n) at the measured widths; empty without a plain step."""
    plain_s = verify_s.get(1)
    return {rows: seconds / plain_s for rows, seconds in sorted(verify_s.items())} if plain_s else {}


def step_ratio(report: Report, pair: PairInfo) -> float | None:
    """c: a step of the draft model in plain steps."""
    plain_s = report.verify_s.get(1)
    return pair.step_s / plain_s if pair.step_s is not None and plain_s else None


def v_at(v: Mapping[int, float], rows: float) -> float:
    """v between measured widths on a straight line, and beyond them on the last one."""
    widths = sorted(v)
    if rows > widths[-1] and len(widths) > 1:
        slope = (v[widths[-1]] - v[widths[-2]]) / (widths[-1] - widths[-2])
        return v[widths[-1]] + max(0.0, slope) * (rows - widths[-1])
    return float(np.interp(rows, widths, [v[width] for width in widths]))


def predicted_speedup(alpha: float, gamma: float, draft: float, v: Mapping[int, float], share: float = 1.0) -> float:
    """The formula, where some rounds have no draft.

    Args:
        alpha: chance that a drafted token stands.
        gamma: mean length of a draft.
        draft: what a draft costs, in plain steps.
        v: `verify_ratios`.
        share: of the rounds that have a draft; the others are plain steps.
    """
    tokens = share * expected_tokens(alpha, gamma) + 1 - share
    return tokens / (share * (draft + v_at(v, gamma + 1)) + 1 - share)


@dataclass(frozen=True, slots=True)
class Best:
    """The best fixed draft length, and its speed-up."""

    gamma: int
    speedup: float


def best_length(alpha: float, c: float, v: Mapping[int, float]) -> Best:
    """The draft length that the formula likes best; at least 1."""
    found = [Best(gamma, predicted_speedup(alpha, gamma, gamma * c, v)) for gamma in range(1, LONGEST + 1)]
    return max(found, key=lambda best: best.speedup)


class Obstacle(StrEnum):
    """Why drafting does not pay."""

    SLOW_DRAFT = "the draft is too slow"
    LOW_ACCEPTANCE = "too few of the draft's tokens are accepted"
    COMPUTE_BOUND = "the machine is bound by arithmetic with this target, so verifying several tokens is dear"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the numbers say about a pair.

    Attributes:
        alpha: of all drafted tokens, or the share of the target's tokens that the draft foresees.
        c: a draft step in plain steps.
        v: cost of passes by rows, in plain steps.
        best: what the formula expects at best.
        obstacles: what stands in the way, the worst first; empty where the formula expects a gain.
    """

    alpha: float
    c: float
    v: Mapping[int, float]
    best: Best
    obstacles: Sequence[Obstacle] = field(default=())


def diagnose(alpha: float, c: float, v: Mapping[int, float]) -> Diagnosis:
    """Which of draft, acceptance and machine would have to be better, each taken alone, for drafting to pay.

    Where no single one would help, those that are remarkable in themselves are named.
    """
    best = best_length(alpha, c, v)
    if best.speedup >= _PAYS:
        return Diagnosis(alpha, c, v, best)
    flat = {rows: min(ratio, 1 + _CHEAP_ROW * (rows - 1)) for rows, ratio in v.items()}
    without = {
        Obstacle.LOW_ACCEPTANCE: best_length(max(alpha, _GOOD_ALPHA), c, v).speedup,
        Obstacle.SLOW_DRAFT: best_length(alpha, min(c, _FAST_STEP), v).speedup,
        Obstacle.COMPUTE_BOUND: best_length(alpha, c, flat).speedup,
    }
    obstacles = [name for name, speedup in without.items() if speedup >= _PAYS]
    if not obstacles:
        remarkable = {
            Obstacle.LOW_ACCEPTANCE: alpha < _POOR_ALPHA,
            Obstacle.SLOW_DRAFT: c > _SLOW_STEP,
            Obstacle.COMPUTE_BOUND: v_at(v, 4) > _DEAR_PASS,
        }
        obstacles = [name for name, is_so in remarkable.items() if is_so] or list(without)
    return Diagnosis(alpha, c, v, best, tuple(sorted(obstacles, key=lambda name: -without[name])))
