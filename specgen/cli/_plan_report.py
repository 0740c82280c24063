"""A memory plan as a table and as a JSON object."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from specgen.cli._fitting import shortage
from specgen.pairs.footprint import Footprint
from specgen.pairs.plan import MIB, RAM, DevicePlan, Machine, ModelOptions, Need, Plan, Verdict, proposals
from specgen.types import ALL_LAYERS

SCHEMA_VERSION = 1
_WIDTH = 60  # of the narrowest terminal that shows the table in one piece
_HEADS = ("MiB", "weights", "KV", "compute", "sum", "free", "verdict")


def lines(name: str, machine: Machine, plan: Plan) -> list[str]:
    """The table: RAM and devices, under each what the two models take, and what would make it fit."""
    shown = [_model("target", plan.target, plan.options.target)]
    if plan.draft and plan.options.draft:
        shown.append(_model("draft", plan.draft, plan.options.draft))
    table: list[tuple[str, ...]] = [_HEADS]
    for device in plan.devices:
        table += _rows(device)
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEADS))]
    rows = [_row(row, widths) for row in table]
    return [f"{name}:", *shown, "", *rows, "", *_notes(plan), *_verdict(machine, plan)]


def as_json(name: str, machine: Machine, plan: Plan) -> dict[str, Any]:
    """The object of `plan --json`; keys may be added, these keep their names."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "fits": plan.fits,
        "verdict": plan.verdict,
        "target": _model_json(plan.target, plan.options.target),
        "draft": _model_json(plan.draft, plan.options.draft) if plan.draft and plan.options.draft else None,
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "verdict": device.verdict,
                "free_bytes": device.free_bytes,
                "limited_by": device.limited_by or None,
                "need_bytes": device.need_bytes,
                "spare_bytes": device.spare_bytes,
                "target": dataclasses.asdict(device.target),
                "draft": dataclasses.asdict(device.draft) if device.draft else None,
            }
            for device in plan.devices
        ],
        "proposals": []
        if plan.fits
        else [
            {"flags": found.flags, "effect": found.effect, "need_bytes": sum(d.need_bytes for d in found.plan.devices)}
            for found in proposals(machine, plan)
        ],
    }


def layers(n_layers: int, options: ModelOptions) -> str:
    """Where a model's layers go, in words."""
    placement = options.placement
    if placement.is_on_cpu:
        return "all layers on the CPU"
    n_all = n_layers + 1
    n = n_all if placement.n_gpu_layers == ALL_LAYERS else min(placement.n_gpu_layers, n_all)
    return f"{n} of {n_all} layers on {'+'.join(placement.devices) or 'GPUs'}"


def _model(role: str, footprint: Footprint, options: ModelOptions) -> str:
    text = f"  {role} {footprint.name}, context {options.n_ctx:,}, {options.kv_type} cache"
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _rows(device: DevicePlan) -> list[tuple[str, ...]]:
    parts = {"target": device.target} | ({"draft": device.draft} if device.draft else {})
    total = Need(*(sum(getattr(need, name) for need in parts.values()) for name in ("weights", "kv", "compute")))
    numbers = [_mib(n) for n in (total.weights, total.kv, total.compute, device.need_bytes, device.free_bytes)]
    rows: list[tuple[str, ...]] = [(device.name, *numbers, device.verdict)]
    if len(parts) > 1:
        rows += [
            (f"  {role}", _mib(need.weights), _mib(need.kv), _mib(need.compute), _mib(need.total), "", "")
            for role, need in parts.items()
        ]
    return rows


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *numbers, verdict = (
        cell.ljust(width) if i in (0, len(cells) - 1) else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return " ".join([first, *numbers, f" {verdict}"]).rstrip()


def _notes(plan: Plan) -> list[str]:
    notes = []
    for device in plan.devices:
        if device.name != RAM:
            notes.append(f"{device.name} is {device.description}.")
        elif device.limited_by:
            notes.append(f"RAM is limited by {device.limited_by}.")
    spare = " and ".join(f"{_mib(device.spare_bytes)} on {device.name}" for device in plan.devices)
    notes.append(f"The sums keep free: {spare}.")
    mapped = sum(need.mapped for device in plan.devices for need in (device.target, device.draft) if need)
    ram = plan.devices[0]
    if ram.verdict is Verdict.REREADS:
        notes.append(
            f"{_mib(mapped)} of the weights in RAM are pages of the file. They do not all have room, so every token "
            "reads some of them from the disk again."
        )
    elif mapped and ram.verdict is Verdict.TOO_LARGE:
        notes.append(f"{_mib(mapped)} of the weights in RAM are pages of the file.")
    return [line for note in notes for line in textwrap.wrap(note, _WIDTH, break_long_words=False)]


def _verdict(machine: Machine, plan: Plan) -> list[str]:
    if plan.verdict is Verdict.FITS:
        return ["It fits."]
    found = proposals(machine, plan)
    if plan.verdict is Verdict.REREADS:
        return ["It fits, but runs slowly."]
    first = textwrap.wrap(f"It does not fit: {shortage(plan)}.", _WIDTH, break_long_words=False)
    if not found:
        return [
            *first,
            "No change of context, cache or placement makes it fit:",
            "take a smaller model or quantisation.",
        ]
    return [*first, "What fits:", *(f"  {proposal.flags}  ({proposal.effect})" for proposal in found)]


def _model_json(footprint: Footprint, options: ModelOptions) -> dict[str, Any]:
    return {
        "name": footprint.name,
        "file_bytes": footprint.file_bytes,
        "n_layers": footprint.shape.n_layers,
        "ctx_size": options.n_ctx,
        "kv_type": options.kv_type,
        "gpu_layers": options.placement.n_gpu_layers,
        "devices": list(options.placement.devices),
        "tensor_split": list(options.placement.tensor_split),
    }


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.0f}"
