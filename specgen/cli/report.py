"""`specgen report`: saved comparisons drawn again, or two of them beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specgen.errors import UsageError


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="A report of specgen compare --output.")],
    new: Annotated[
        Path | None, typer.Argument(metavar="[NEW.json]", help="A later one: shows what changed beyond the noise.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="One line per arm and category; for one report.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown.")] = False,
) -> int:
    """Show a saved comparison, or what changed between two of them. Needs no models."""
    from specgen.bench import difference
    from specgen.bench.record import load
    from specgen.bench.statistics import Summary
    from specgen.cli._comparison import Format, show, show_table
    from specgen.cli._output import Output

    form = Format.of(json=json, csv=csv, markdown=markdown)
    output = Output(is_json=json)
    old = Summary(load(file))
    if new is None:
        show(output, old, form)
        return 0
    if form is Format.CSV:
        raise UsageError("--csv is for one report", "use --json or --markdown for two")
    later = Summary(load(new))
    if form is Format.JSON:
        output.json(lambda: difference.as_data(old, later))
    elif form is Format.MARKDOWN:
        output.text(difference.markdown(old, later))
    else:
        changed = difference.table(difference.changes(old, later))
        if changed.rows:
            show_table(output, changed)
        output.text("\n".join((*difference.verdict(old, later), *difference.notes(old.report, later.report))))
    return 0
