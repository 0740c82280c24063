"""`specgen compare`: pairs beside plain decoding, and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specgen.cli import _placement
from specgen.errors import EXIT_INTERRUPTED, ConfigError, UsageError

if TYPE_CHECKING:
    from specgen.bench.compare import PairFiles, Task
    from specgen.cli._output import Output

_MEASUREMENT = "Measurement"
_MODELS = "Models"
_MACHINE = "Machine"
_OUTPUT = "Output"


def compare(
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAIR ...]", help="Names of pairs with one target, or a target's GGUF file."),
    ] = None,
    draft: Annotated[
        list[Path] | None,
        typer.Option(help="A model that drafts for the target; repeat it to compare several.", rich_help_panel=_MODELS),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N]", help="Fixed draft lengths to measure beside the default.", rich_help_panel=_MEASUREMENT
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Prompts of your own: text with a line --- between two, or JSONL with {"prompt", "category"}.',
            rich_help_panel=_MEASUREMENT,
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time to spend after loading, such as 90s or 10m: decides how much is measured.",
            rich_help_panel=_MEASUREMENT,
        ),
    ] = "3m",
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Go on with a saved report that was interrupted.", rich_help_panel=_MEASUREMENT
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "-t", min=1, show_default="physical cores", help="CPU threads.", rich_help_panel=_MACHINE
        ),
    ] = None,
    gpu_layers: _placement.GpuLayersOption = "all",
    draft_gpu_layers: _placement.DraftGpuLayersOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help="Save everything that was measured, for specgen report and --resume.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="The saved report on stdout instead of tables.", rich_help_panel=_OUTPUT)
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="One line per arm and category instead.", rich_help_panel=_OUTPUT)
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown tables instead.", rich_help_panel=_OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.", rich_help_panel=_OUTPUT)
    ] = False,
) -> int:
    """Measure whether a pair is worth it here: each pair, plain decoding and the draft alone, taking turns.

    Greedy answers to prompts of several categories. Plain decoding runs twice, and a difference no larger than that
    between the two is called a tie.
    """
    from specgen.bench.compare import Interrupted, Moment, Watchers
    from specgen.bench.compare import compare as measure
    from specgen.bench.record import Report, load, save
    from specgen.bench.statistics import Summary
    from specgen.bench.tables import as_report_data
    from specgen.cli._comparison import Format, show
    from specgen.cli._interrupt import Interrupt
    from specgen.cli._output import Output, restore_terminal
    from specgen.llama import library
    from specgen.llama.model import LoadCancelledError

    form = Format.of(json=json, csv=csv, markdown=markdown)
    out = Output(is_quiet=quiet, is_json=json)
    saved = load(resume) if resume is not None else None
    library.before_abort(restore_terminal)
    with Interrupt() as interrupt:
        task = _task(out, pairs or [], draft or [], gamma, prompts, budget, threads, gpu_layers, draft_gpu_layers)
        file = output or resume

        def on_block(report: Report) -> None:
            if file is not None:
                save(as_report_data(Summary(report)), file)

        try:
            with out.progress() as progress, out.countdown() as move:

                def on_load(path: Path, fraction: float) -> bool:
                    progress(f"loading {path.name}", fraction)
                    return not interrupt.is_set

                def on_moment(moment: Moment) -> None:
                    move(moment.doing, moment.done, moment.left_s)

                report = measure(task, Watchers(on_load, on_moment, on_block, interrupt), saved)
        except (LoadCancelledError, Interrupted):
            return EXIT_INTERRUPTED
        on_block(report)
        show(out, Summary(report), form)
        if file is not None:
            out.line(f"saved as {file}; specgen report {file} shows it again")
    return EXIT_INTERRUPTED if report.state == "interrupted" else 0


def _task(
    output: Output,
    words: Sequence[str],
    drafts: Sequence[Path],
    gamma: str | None,
    prompts: Path | None,
    budget: str,
    threads: int | None,
    gpu_layers: str,
    draft_gpu_layers: str | None,
) -> Task:
    """What the words and options ask for.

    Raises:
        UsageError, ConfigError: they contradict each other.
    """
    from specgen.bench.budget import parse_duration
    from specgen.bench.compare import Task
    from specgen.bench.workload import built_in, read_prompts
    from specgen.cli._options import session_params

    gammas, budget_s = _gammas(gamma), parse_duration(budget)
    asked = tuple(read_prompts(prompts) if prompts is not None else built_in())
    target, files = _files(output, words, drafts)
    params = session_params(
        has_draft=any(pair.draft is not None for pair in files),
        has_grammar=False,
        gamma="auto",
        draft_type="auto",
        corpus=None,
        threads=threads,
        placement=_placement.placement_options(
            gpu_layers=gpu_layers,
            draft_gpu_layers=draft_gpu_layers,
            device=None,
            draft_device=None,
            tensor_split=None,
            kv_type=None,
            draft_kv_type=None,
            fit=False,
            rpc=(),
        ),
        requires_draft=False,
        note=output.note,
    )
    source = "built in" if prompts is None else prompts.name
    return Task(target, files, params, gammas, asked, source, budget_s)


def _files(output: Output, words: Sequence[str], drafts: Sequence[Path]) -> tuple[Path, tuple[PairFiles, ...]]:
    """The target's file, and the drafts that are compared.

    Raises:
        ConfigError: more than one target.
    """
    from specgen.bench.compare import PairFiles, named
    from specgen.cli._options import DEFAULT_PAIR
    from specgen.pairs.resolve import find, resolve

    found = []
    replacements: Sequence[Path | None] = drafts or [None]
    with output.progress() as progress:
        for word in words or [DEFAULT_PAIR]:
            found += [resolve(find(word), draft, progress) for draft in replacements]
    targets = {files.target.resolve() for files in found}
    if len(targets) > 1:
        several = " and ".join(path.name for path in sorted(targets))
        raise ConfigError(f"these pairs have several targets: {several}", "compare the pairs of one target at a time")
    has_names = not drafts
    names = named([files.name if has_names or files.draft is None else files.draft.stem for files in found])
    pairs = tuple(PairFiles(name, files.draft) for name, files in zip(names, found, strict=True))
    return found[0].target, pairs


def _gammas(text: str | None) -> tuple[int, ...]:
    """Distinct fixed lengths.

    Raises:
        UsageError: something else than lengths.
    """
    from specgen.engine.adaptive import MAX_GAMMA

    words = [word.strip() for word in (text or "").split(",")] if text is not None else []
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_GAMMA for word in words):
        raise UsageError(
            f"--gamma must be lengths of 1 to {MAX_GAMMA} with commas between", "for example --gamma 2,4,8"
        )
    return tuple(dict.fromkeys(int(word) for word in words))
