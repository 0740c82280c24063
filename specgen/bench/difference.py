"""Two saved comparisons: what changed beyond the noise of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specgen.bench.record import Report
from specgen.bench.statistics import Row, Summary
from specgen.bench.tables import Table, markdown_rows


@dataclass(frozen=True, slots=True)
class Change:
    """One number of one arm and category in both reports.

    Attributes:
        what: `speed-up` or `tok/s`.
        is_real: farther apart than both reports' A/A spreads together.
    """

    arm: str
    category: str
    what: str
    old: float
    new: float
    is_real: bool

    @property
    def ratio(self) -> float:
        """New over old."""
        return self.new / self.old


def changes(old: Summary, new: Summary) -> list[Change]:
    """Speeds and speed-ups that both reports have."""
    spread = math.hypot(math.log1p(old.spread), math.log1p(new.spread))
    before = {(row.arm, row.category): row for row in old.rows}
    found = []
    for row in new.rows:
        match = before.get((row.arm, row.category))
        for what, was, now in _numbers(match, row) if match else ():
            found.append(Change(row.arm, row.category, what, was, now, abs(math.log(now / was)) > spread))
    return found


def _numbers(old: Row, new: Row) -> list[tuple[str, float, float]]:
    found = []
    if old.speedup and new.speedup:
        found.append(("speed-up", old.speedup.median, new.speedup.median))
    if old.tok_s and new.tok_s:
        found.append(("tok/s", old.tok_s, new.tok_s))
    return found


def table(found: list[Change]) -> Table:
    """What changed beyond the noise."""
    rows = tuple(
        (f"{c.arm}, {c.category}", c.what, f"{c.old:.2f}", f"{c.new:.2f}", f"{100 * (c.ratio - 1):+.1f} %")
        for c in found
        if c.is_real
    )
    return Table("changed beyond the noise", ("arm, category", "number", "old", "new", "change"), rows)


def notes(old: Report, new: Report) -> list[str]:
    """What else differs between the two: versions, machine, models, settings."""
    pairs = [
        *((f"{name} version", old.versions.get(name), new.versions.get(name)) for name in new.versions),
        *((name, old.machine.get(name), new.machine.get(name)) for name in new.machine if name != "system_info"),
        (
            "target",
            f"{old.target.description}, {old.target.size_bytes:,} bytes",
            f"{new.target.description}, {new.target.size_bytes:,} bytes",
        ),
        ("threads", old.settings.threads, new.settings.threads),
        ("tokens per answer", old.settings.n_tokens, new.settings.n_tokens),
        ("prompts", [p.text for p in old.prompts], [p.text for p in new.prompts]),
        ("arms", [a.name for a in old.arms], [a.name for a in new.arms]),
    ]
    return [
        f"{what} differ" if isinstance(was, list) else f"{what}: {was} before, {now} now"
        for what, was, now in pairs
        if was != now
    ]


def verdict(old: Summary, new: Summary) -> list[str]:
    """What the two reports say together."""
    found = changes(old, new)
    real = [c for c in found if c.is_real and c.what == "speed-up"]
    better, worse = sum(c.ratio > 1 for c in real), sum(c.ratio < 1 for c in real)
    if not found:
        return ["the reports have no arm and category in common"]
    if not any(c.is_real for c in found):
        return [f"nothing changed beyond the noise ({100 * max(old.spread, new.spread):.1f} % A/A spread)"]
    if not real:
        return ["speed-ups are the same within the noise; speeds changed for all arms alike or for some"]
    return [
        f"speed-ups: {better} better, {worse} worse, {sum(c.what == 'speed-up' for c in found) - len(real)} the same"
    ]


def as_data(old: Summary, new: Summary) -> dict[str, object]:
    """For programs."""
    return {
        "schema_version": 1,
        "kind": "difference",
        "verdict": verdict(old, new),
        "notes": notes(old.report, new.report),
        "aa_spread": {"old": old.spread, "new": new.spread},
        "changes": [
            {
                "arm": c.arm,
                "category": c.category,
                "number": c.what,
                "old": c.old,
                "new": c.new,
                "ratio": c.ratio,
                "is_beyond_noise": c.is_real,
            }
            for c in changes(old, new)
        ],
    }


def markdown(old: Summary, new: Summary) -> str:
    """The same, to be shown to others."""
    found = table(changes(old, new))
    rows = markdown_rows(found) if found.rows else []
    lines = [
        "# specgen report",
        "",
        *(f"- {line}" for line in (*verdict(old, new), *notes(old.report, new.report))),
        "",
    ]
    return "\n".join([*lines, *rows, ""])
