"""`specgen pull`: models of the Hub onto this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def pull(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="hf:OWNER/REPO/FILE[@REVISION]...", help="Files of the Hub; the first of a split model."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be fetched, and where to.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Fetch models, going on where an earlier run ended; prints the path of each.

    What is here already, in the Hub's cache or that of llama.cpp, LM Studio or Ollama, is used and not fetched again.
    """
    from specgen.cli._output import Output, print_text
    from specgen.pairs import hub_cache
    from specgen.pairs.download import disk_free, fetch_missing, gigabytes, survey
    from specgen.pairs.hub import hub_file

    output = Output(is_quiet=quiet)
    surveys = [survey(hub_file(name)) for name in names]
    missing = [part for model in surveys for part in model.missing]
    needed = sum(part.remote.size - part.n_have for part in missing)
    if missing:
        free = disk_free()
        room = "" if free is None else f", {gigabytes(free)} free"
        output.line(f"{gigabytes(needed)} to fetch into {hub_cache.root()}{room}")
    if not dry_run:
        with output.progress() as progress:
            fetch_missing(surveys, lambda t: progress(t.file.name, t.n_bytes / max(t.file.size, 1)))
    for model in surveys:
        print_text(str(model.path))
