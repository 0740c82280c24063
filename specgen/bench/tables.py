"""A comparison as tables: cells for the screen, Markdown, CSV and the data of the JSON report. Prints nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specgen.bench.prediction import step_ratio, verify_ratios
from specgen.bench.record import Report, Role, as_data
from specgen.bench.statistics import ALL, Row, Summary
from specgen.bench.verdict import verdict

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text; the first column is words, the others are numbers.

    Attributes:
        title: one line.
        columns: their heads.
        rows: as many cells as there are columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(summary: Summary) -> list[Table]:
    """For people: a table per arm that is compared, its categories one below the other, then the costs."""
    report = summary.report
    plain = report.arms_of(Role.PLAIN)[0]
    found = []
    for arm in report.arms:
        if arm == plain:
            continue
        rows = []
        for category in [*report.categories, ALL]:
            row, base = summary.row(arm, category), summary.row(plain, category)
            if row.n_answers:
                rows.append((category, _number(base.tok_s, 1), *_cells(row)))
        if rows:
            found.append(Table(arm.name, ("category", "plain", "tok/s", *_HEADS), tuple(rows)))
    return [*found, *_costs(report)]


_HEADS = ("speed-up", "low-high", "predicted", "accepted", "per round")


def _cells(row: Row) -> tuple[str, ...]:
    speedup = row.speedup
    tie = " tie" if speedup is not None and speedup.is_tie else ""
    return (
        _number(row.tok_s, 1),
        f"{speedup.median:.2f}x{tie}" if speedup else NOTHING,
        f"{speedup.low:.2f}-{speedup.high:.2f}" if speedup else NOTHING,
        f"{row.predicted:.2f}x" if row.predicted is not None else NOTHING,
        f"{row.n_accepted / row.n_drafted:.0%}" if row.n_drafted else NOTHING,
        _number(row.mean_accepted_length, 2) if row.n_drafted else NOTHING,
    )


def _costs(report: Report) -> list[Table]:
    v = verify_ratios(report.verify_s)
    if not v:
        return []
    heads = tuple(f"v({n})" for n in v if n > 1)
    values = tuple(f"{ratio:.2f}" for n, ratio in v.items() if n > 1)
    found = [Table("a target pass over n rows, in plain steps", heads, (values,))] if heads else []
    steps = [(pair.name, step_ratio(report, pair)) for pair in report.pairs]
    rows = tuple((name, f"{c:.2f}") for name, c in steps if c is not None)
    if rows:
        found.append(Table("a draft step, in plain steps", ("pair", "c"), rows))
    return found


def markdown(summary: Summary) -> str:
    """The tables and the verdict, ready to be shown to others."""
    report = summary.report
    lines = ["# specgen compare", "", *(f"- {line}" for line in verdict(summary)), ""]
    for table in tables(summary):
        lines += [f"## {_escaped(table.title)}", "", *markdown_rows(table), ""]
    lines += [*(f"- {line}" for line in about(report)), ""]
    return "\n".join(lines)


def markdown_rows(table: Table) -> list[str]:
    """A table in Markdown, without its title."""
    rule = ("---", *("---:" for _ in table.columns[1:]))
    return [f"| {' | '.join(map(_escaped, cells))} |" for cells in (table.columns, rule, *table.rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def about(report: Report) -> list[str]:
    """What was compared, where, and how far it came."""
    settings = report.settings
    drafts = [f"{pair.name}: {pair.draft.description if pair.draft else 'no draft model'}" for pair in report.pairs]
    extent = f"{len(report.prompts)} prompts ({settings.prompts}), {settings.n_tokens} tokens, "
    return [
        f"target {report.target.description} on {'+'.join(report.target.devices)}; {'; '.join(drafts)}",
        f"{extent}{settings.n_repeats} repeats, {settings.threads} threads, context {settings.ctx_size:,}; "
        f"{report.state}",
        f"specgen {report.versions.get('specgen')}, {report.versions.get('llama_cpp')}; "
        f"{report.machine.get('platform')}, {report.machine.get('cpus')} CPUs; {report.created}",
    ]


def as_csv(summary: Summary) -> str:
    """One line per arm and category; ratios are empty where they mean nothing."""
    out = io.StringIO()
    rows = [_flat(row) for row in summary.rows if row.n_answers]
    writer = csv.DictWriter(out, list(_flat(summary.rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(row: Row) -> dict[str, Any]:
    cells = asdict(row)
    for name in ("by_position", "by_length"):
        del cells[name]
    speedup = cells.pop("speedup") or {"median": None, "low": None, "high": None, "is_tie": None}
    return {**cells, **{f"speedup_{name}": value for name, value in speedup.items()}}


def as_report_data(summary: Summary) -> dict[str, Any]:
    """What is saved: the measurements, and what follows from them for those who do not want to compute it again."""
    report = summary.report
    return {
        **as_data(report),
        "summary": {
            "aa_spread": summary.spread,
            "n_controls": summary.n_controls,
            "verdict": verdict(summary),
            "v": {str(n): ratio for n, ratio in verify_ratios(report.verify_s).items()},
            "c": {pair.name: step_ratio(report, pair) for pair in report.pairs},
            "rows": [asdict(row) for row in summary.rows],
        },
    }


def plain_text(table: Table, width: int = 80) -> list[str]:
    """A table as lines for pipes: columns two spaces apart; too wide a one becomes a line per cell, so none is cut."""
    grid = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.columns))]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return [table.title, *_stacked(table)]
    return [
        table.title,
        *(
            "  ".join(
                cell.rjust(n) if i else cell.ljust(n) for i, (cell, n) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in grid
        ),
    ]


def _stacked(table: Table) -> Sequence[str]:
    return [
        f"{row[0]}: " + ", ".join(f"{head} {cell}" for head, cell in zip(table.columns[1:], row[1:], strict=True))
        for row in table.rows
    ]


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
