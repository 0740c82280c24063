"""A comparison on stdout, in the form that was asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from specgen.bench import tables
from specgen.bench.statistics import Summary
from specgen.bench.verdict import verdict
from specgen.cli._output import Output
from specgen.errors import UsageError


class Format(StrEnum):
    """What stdout carries."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"

    @classmethod
    def of(cls, *, json: bool, csv: bool, markdown: bool) -> Self:
        """The one that was asked for.

        Raises:
            UsageError: several were.
        """
        asked = [name for name, is_wanted in (("json", json), ("csv", csv), ("markdown", markdown)) if is_wanted]
        if len(asked) > 1:
            raise UsageError(f"--{asked[0]} and --{asked[1]} contradict each other", "leave out one of them")
        return cls(asked[0] if asked else "table")


def show(output: Output, summary: Summary, form: Format) -> None:
    """Tables and the verdict below, or the one text that was asked for."""
    if form is Format.CSV:
        output.text(tables.as_csv(summary))
    elif form is Format.MARKDOWN:
        output.text(tables.markdown(summary))
    elif form is Format.JSON:
        output.json(lambda: tables.as_report_data(summary))
    else:
        for table in tables.tables(summary):
            show_table(output, table)
        for line in tables.about(summary.report):
            output.line(line)
        output.text("\n".join(verdict(summary)))


def show_table(output: Output, table: tables.Table) -> None:
    """One table."""
    output.table(table.title, table.columns, table.rows, tables.plain_text(table))
