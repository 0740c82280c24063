"""What a comparison means, in words."""

from __future__ import annotations

from specgen.bench.prediction import Diagnosis, diagnose, step_ratio, v_at, verify_ratios
from specgen.bench.record import Arm, PairInfo, Role
from specgen.bench.statistics import Row, Summary

_GB = 1e9
_BETTER_LENGTH = 1.05
"""How much faster a fixed length must be than the default to be worth a word."""


def verdict(summary: Summary) -> list[str]:
    """Lines: what to use, then what there is to say about every pair."""
    report = summary.report
    arms = [arm for arm in report.arms_of(Role.PAIR) if summary.row(arm).speedup is not None]
    if not arms:
        return ["nothing was compared yet"]
    best = max(arms, key=lambda arm: _gain(summary, arm))
    lines = []
    if _pays(summary, best):
        lines.append(f"use {best.name}: {_gains(summary, best)}{_costs(summary, best)}{_rest(summary, best)}")
        lines += [_against(summary, arm, best) for arm in arms if arm != best]
    else:
        lines.append(f"decode plainly: {'no pair pays' if len(arms) > 1 else f'{best.name} does not pay'} here")
        lines += [f"{arm.name} {_why_not(summary, arm)}" for arm in arms]
    for arm in arms:
        lines += _details(summary, arm)
    lines.append(
        f"a difference of up to {100 * summary.spread:.1f} % is a tie: plain decoding differs from itself by as much"
    )
    return lines


def _gain(summary: Summary, arm: Arm) -> float:
    speedup = summary.row(arm).speedup
    return speedup.median if speedup else 0.0


def _categories(summary: Summary, arm: Arm) -> list[Row]:
    rows = [summary.row(arm, category) for category in summary.report.categories]
    return [row for row in rows if row.speedup is not None]


def _pays(summary: Summary, arm: Arm) -> bool:
    """Whether it is faster somewhere, and not slower over all."""
    over_all = summary.row(arm).speedup
    wins = [row for row in _categories(summary, arm) if _is_faster(row)]
    return bool(wins) and over_all is not None and over_all.median > 1


def _is_faster(row: Row) -> bool:
    return row.speedup is not None and not row.speedup.is_tie and row.speedup.median > 1


def _is_slower(row: Row) -> bool:
    return row.speedup is not None and not row.speedup.is_tie and row.speedup.median < 1


def _gains(summary: Summary, arm: Arm) -> str:
    """Where it is faster, the most first."""
    rows = sorted(filter(_is_faster, _categories(summary, arm)), key=lambda row: -_median(row))
    return ", ".join(f"{_median(row):.2f}x on {row.category}" for row in rows)


def _costs(summary: Summary, arm: Arm) -> str:
    draft = _pair(summary, arm).draft
    if draft is None:
        return ", costs no memory"
    size = draft.size_bytes
    amount = f"{size / _GB:.1f} GB" if size >= _GB / 10 else f"{max(1, round(size / 1e6))} MB"
    return f", costs {amount} more"


def _rest(summary: Summary, arm: Arm) -> str:
    """Where it is not faster."""
    rows = _categories(summary, arm)
    slower = [f"{_median(row):.2f}x on {row.category}" for row in rows if _is_slower(row)]
    ties = [row for row in rows if row.speedup is not None and row.speedup.is_tie]
    off = [row.category for row in ties if row.is_switched_off]
    even = [row.category for row in ties if not row.is_switched_off]
    parts = []
    if off:
        parts.append(f"on {', '.join(off)} it switches itself off")
    if even:
        parts.append(f"no difference on {', '.join(even)}")
    if slower:
        parts.append(f"but slower: {', '.join(slower)}")
    return "".join(f"; {part}" for part in parts)


def _against(summary: Summary, arm: Arm, best: Arm) -> str:
    """Another pair beside the best."""
    speedup = summary.speedup(arm, best)
    if speedup is None:
        return f"{arm.name}: not compared with {best.name}"
    if speedup.is_tie:
        return f"{arm.name} and {best.name} are a tie: {speedup.median:.2f}x"
    return f"{arm.name} runs at {speedup.median:.2f}x of {best.name}: {_gain(summary, arm):.2f}x of plain decoding"


def _why_not(summary: Summary, arm: Arm) -> str:
    """Why a pair is not worth it, with the numbers."""
    row, pair = summary.row(arm), _pair(summary, arm)
    measured = f"{_median(row):.2f}x measured" + (", a tie" if row.speedup and row.speedup.is_tie else "")
    found = _diagnosis(summary, pair, row)
    if found is None:
        return f"does not pay ({measured}): {pair.speculation}"
    if not found.obstacles:
        return (
            f"does not pay ({measured}), although γ = {found.best.gamma} promises {found.best.speedup:.2f}x: "
            f"{_numbers(found)}"
        )
    return f"does not pay ({measured}) because {' and '.join(found.obstacles)}: {_numbers(found)}"


def _diagnosis(summary: Summary, pair: PairInfo, row: Row) -> Diagnosis | None:
    """The formula's view; acceptance is what was drafted, or what the draft model would have foreseen."""
    v, c = verify_ratios(summary.report.verify_s), step_ratio(summary.report, pair)
    alpha = pair.n_agreed / pair.n_compared if pair.n_compared else row.alpha_hat
    if len(v) < 2 or c is None or alpha is None:
        return None
    return diagnose(alpha, c, v)


def _numbers(found: Diagnosis) -> str:
    v = ", ".join(f"v({n}) = {v_at(found.v, n):.2f}" for n in (2, 4, 8))
    return (
        f"α = {found.alpha:.2f}, c = {found.c:.2f}, {v}; at best γ = {found.best.gamma} with "
        f"{found.best.speedup:.2f}x predicted"
    )


def _details(summary: Summary, arm: Arm) -> list[str]:
    """Prediction beside measurement, a better fixed length, and the draft alone."""
    report, row, pair = summary.report, summary.row(arm), _pair(summary, arm)
    lines = []
    if row.predicted is not None and row.speedup is not None:
        lines.append(f"{arm.name}: {row.predicted:.2f}x predicted, {row.speedup.median:.2f}x measured over all")
    fixed = [each for each in report.arms_of(Role.FIXED) if each.pair == arm.pair]
    for each in sorted(fixed, key=lambda each: -_gain(summary, each))[:1]:
        speedup = summary.speedup(each, arm)
        if speedup and not speedup.is_tie and speedup.median > _BETTER_LENGTH:
            lines.append(f"--gamma {each.gamma} is faster than the default here: {_gain(summary, each):.2f}x of plain")
    alone = next((each for each in report.arms_of(Role.DRAFT) if each.pair == arm.pair), None)
    speedup = summary.row(alone).speedup if alone else None
    if speedup and pair.n_compared:
        lines.append(
            f"{arm.name}: the draft alone runs at {speedup.median:.2f}x of the target, and would say {pair.n_agreed:,} "
            f"of the target's {pair.n_compared:,} tokens ({pair.n_agreed / pair.n_compared:.0%})"
        )
    return lines


def _pair(summary: Summary, arm: Arm) -> PairInfo:
    return next(pair for pair in summary.report.pairs if pair.name == arm.pair)


def _median(row: Row) -> float:
    return row.speedup.median if row.speedup else 1.0
