"""`specgen plan`: does a pair fit this machine, and what would make it fit?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specgen.cli import _placement


def plan(
    model: Annotated[
        str, typer.Argument(metavar="PAIR|FILE", help="A pair's name or a GGUF file; it need not be here yet.")
    ] = "demo",
    draft: Annotated[Path | None, typer.Option(help="The model that drafts; replaces a pair's own.")] = None,
    no_draft: Annotated[bool, typer.Option("--no-draft", help="Plan the target alone.")] = False,
    ctx_size: Annotated[
        int | None, typer.Option("--ctx-size", "-c", min=1, show_default="4096", help="Tokens of context.")
    ] = None,
    kv_type: _placement.KvTypeOption = None,
    draft_kv_type: _placement.DraftKvTypeOption = None,
    gpu_layers: _placement.GpuLayersOption = "all",
    draft_gpu_layers: _placement.DraftGpuLayersOption = None,
    device: _placement.DeviceOption = None,
    draft_device: _placement.DraftDeviceOption = None,
    tensor_split: _placement.TensorSplitOption = None,
    rpc: _placement.RpcOption = None,
    fit: _placement.FitOption = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of the table.")] = False,
) -> int:
    """Show what a pair takes of the memory of each device, before anything is loaded or downloaded.

    Exits with 0 also when it does not fit: the answer is the table.
    """
    from specgen.cli import _plan_report
    from specgen.cli._fitting import machine, plan_pair
    from specgen.cli._output import Output, print_text
    from specgen.errors import UsageError
    from specgen.pairs.resolve import find

    output = Output(is_json=json)
    if no_draft and draft is not None:
        raise UsageError("--draft and --no-draft contradict each other", "leave out one of them")
    options = _placement.placement_options(
        gpu_layers=gpu_layers,
        draft_gpu_layers=draft_gpu_layers,
        device=device,
        draft_device=draft_device,
        tensor_split=tensor_split,
        kv_type=kv_type,
        draft_kv_type=draft_kv_type,
        fit=fit,
        rpc=rpc or (),
    )
    if options.note:
        output.note(options.note)
    here = machine()
    found = plan_pair(here, find(model), draft, options, n_ctx=ctx_size, has_draft=not no_draft)
    if json:
        output.json(lambda: _plan_report.as_json(model, here, found))
    else:
        print_text("\n".join(_plan_report.lines(model, here, found)))
    return 0
