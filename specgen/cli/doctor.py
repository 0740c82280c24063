"""`specgen doctor`: what is here, and what is wrong with it."""

from __future__ import annotations

import shutil
import textwrap
from typing import Annotated

import typer

_WIDEST = 100


def doctor(
    online: Annotated[bool, typer.Option("--online", help="Also see whether the model hub can be reached.")] = False,
    rpc: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Show the devices of a worker there. Repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of the text.")] = False,
) -> int:
    """Show versions, devices, memory and cache of this machine, and each problem with its remedy.

    Exits with 0 whatever it finds: a problem is an answer. Nothing is sent anywhere without --online.
    """
    from specgen.cli import _checkup
    from specgen.cli._output import Output, print_text

    output = Output(is_json=json)
    report = _checkup.examine(rpc or (), is_online=online)
    if json:
        output.json(report.as_json)
    else:
        print_text("\n".join(_lines(report.facts, report.problems)))
    return 0


def _lines(facts: dict[str, list[str]], problems: list[tuple[str, str]]) -> list[str]:
    columns = min(_WIDEST, shutil.get_terminal_size().columns)
    width = max(map(len, facts)) + 2
    lines = []
    for name, values in facts.items():
        for i, value in enumerate(values or ["none"]):
            head = (name if i == 0 else "").ljust(width)
            lines += textwrap.wrap(
                value,
                columns,
                initial_indent=head,
                subsequent_indent=" " * width,
                break_long_words=False,
                break_on_hyphens=False,
            )
    lines.append("")
    if not problems:
        return [*lines, "No problem found."]
    for problem, remedy in problems:
        lines += [f"problem: {problem}", f"  remedy: {remedy}"]
    return lines
