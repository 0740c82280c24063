"""What was measured, as Markdown and as data."""

from __future__ import annotations

import dataclasses
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from arms import Arm, Role
from comparison import Comparison, compare, ranked
from measure import Measurement, members
from rigs import Rig

from specgen.llama import library


def tables(rig: Rig, measured: Sequence[Measurement]) -> list[str]:
    """The defaults against what they are judged by, then all arms, then what else was seen."""
    counted = [m for m in measured if m.prompt.category in rig.categories]
    arms = [arm for role in Role for arm in ranked(counted, role)]
    lines = []
    for default in (arm for arm in members(rig.arms, Role.DEFAULT) if arm in arms):
        lines += [*_judgement(rig, measured, counted, default), ""]
    return [*lines, *_overview(counted, arms), "", *_notes(measured)]


def _judgement(rig: Rig, measured: Sequence[Measurement], counted: Sequence[Measurement], default: Arm) -> list[str]:
    """One default, by category: to plain decoding, to the best fixed length, to the best of llama.cpp's settings."""
    rivals = [ranked(counted, role)[:1] for role in (Role.PLAIN, Role.FIXED, Role.PEER)]
    best = [arm for found in rivals for arm in found]
    names = [arm.name if arm.role is Role.PLAIN else f"the best {arm.role}, {arm.name}" for arm in best]
    lines = [f"| {default.name} | plain, tok/s | " + " | ".join(f"to {name}" for name in names) + " |"]
    lines.append("|---" * (2 + len(best)) + "|")

    def row(title: str, part: Sequence[Measurement], *, is_bold: bool = False) -> str:
        plain = statistics.median(m.run.bare_tok_s for m in part if m.arm.role is Role.PLAIN)
        cells = [_cell(compare(part, default, arm), is_bold=is_bold) for arm in best]
        return f"| {title} | {plain:.1f} | " + " | ".join(cells) + " |"

    for category in dict.fromkeys(m.prompt.category for m in measured):
        title = f"{category} (not in the mean)" if category in rig.losing else category
        lines.append(row(title, [m for m in measured if m.prompt.category == category]))
    lines.append(row("geometric mean", counted, is_bold=True))
    worst = [compare(measured, default, arm).worst for arm in best]
    return [*lines, "| worst prompt | | " + " | ".join(f"{value:.3f} ({name})" for name, value in worst) + " |"]


def _overview(counted: Sequence[Measurement], arms: Sequence[Arm]) -> list[str]:
    """Every arm to plain decoding."""
    (plain,) = members(arms, Role.PLAIN)
    lines = [
        "| arm | to plain | worst prompt | accepted | outside the models | peak memory | command |",
        "|---" * 7 + "|",
    ]
    for arm in arms:
        runs = [m.run for m in counted if m.arm == arm]
        n_drafted = sum(run.n_drafted or 0 for run in runs)
        n_accepted = sum(run.n_accepted or 0 for run in runs)
        shares = [run.overhead for run in runs if run.overhead is not None]
        comparison = compare(counted, arm, plain)
        name, worst = comparison.worst
        cells = [
            arm.name,
            _cell(comparison),
            f"{worst:.3f} ({name})",
            f"{n_accepted / n_drafted:.0%}" if n_drafted else "",
            f"{100 * statistics.median(shares):.1f} %" if shares else "",
            f"{max(run.peak_bytes for run in runs) / 1e6:,.0f} MB",
            f"`{arm.command}`",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _notes(measured: Sequence[Measurement]) -> list[str]:
    """Whether all did the same work."""
    plain = {m.prompt: m.run for m in measured if m.arm.role is Role.PLAIN}
    lines = []
    for title, is_ours in (("specgen", True), ("llama.cpp", False)):
        runs = [m for m in measured if m.run.text and (m.run.tok_s is not None) is is_ours]
        n_other = sum(not m.run.text.startswith(plain[m.prompt].text.rstrip("\n")) for m in runs)
        if runs:
            lines.append(f"- {title}: {n_other} of {len(runs)} answers differ from that of plain decoding.")
    n_unequal = sum(m.run.n_prompt != plain[m.prompt].n_prompt for m in measured)
    return [*lines, f"- {n_unequal} of {len(measured)} runs saw a prompt of another length."]


def _cell(comparison: Comparison, *, is_bold: bool = False) -> str:
    low, high = comparison.spread
    mean = f"{comparison.mean:.3f}"
    return f"{f'**{mean}**' if is_bold else mean} ({low:.2f} to {high:.2f})"


def as_data(rig: Rig, measured: Sequence[Measurement], swept: Sequence[Measurement]) -> dict[str, Any]:
    """All runs, for other programs; texts are left out."""
    return {
        "about": rig.about,
        "environment": {
            "llama_cpp": library.versions(),
            "system_info": library.system_info(),
            "platform": platform.platform(),
        },
        "commands": {m.arm.name: m.arm.command for m in (*swept, *measured)},
        "first_round": [_row(m) for m in swept],
        "runs": [_row(m) for m in measured],
    }


def _row(measurement: Measurement) -> dict[str, Any]:
    run = {key: value for key, value in dataclasses.asdict(measurement.run).items() if key != "text"}
    where = {"arm": measurement.arm.name, "prompt": measurement.prompt.name, "repeat": measurement.repeat}
    return {**where, "role": str(measurement.arm.role), **run}
