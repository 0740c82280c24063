"""A plan for what a user named and asked for, and what to do when it does not fit."""

from __future__ import annotations

from pathlib import Path

from specgen.cli._placement import PlacementOptions
from specgen.errors import ConfigError, NotEnoughMemoryError
from specgen.pairs import weigh
from specgen.pairs.footprint import Footprint
from specgen.pairs.plan import (
    MIB,
    Machine,
    ModelOptions,
    PairOptions,
    Plan,
    Verdict,
    fewer_gpu_layers,
    fit,
    make_plan,
    proposals,
)
from specgen.pairs.registry import Pair
from specgen.session import DEFAULT_CONTEXT, DRAFT_ROWS, target_rows


def machine() -> Machine:
    """What there is now."""
    from specgen.llama.devices import gpus
    from specgen.llama.memory import ram

    return Machine(ram(), tuple(gpus()))


def plan_pair(
    here: Machine,
    model: Pair | Path,
    draft: Path | None,
    options: PlacementOptions,
    *,
    n_ctx: int | None = None,
    n_wanted: int = 0,
    gamma: int | None = None,
    has_draft: bool = True,
) -> Plan:
    """The plan of a pair or of two files; layers are moved if the options ask for it.

    Args:
        here: the machine.
        model: a pair, or a target's file.
        draft: replaces the pair's own.
        options: placements and caches.
        n_ctx: tokens of context; None for the usual one, or more if prompt and answer need more.
        n_wanted: tokens of prompt and answer.
        gamma: draft length; None for what the policy may choose.
        has_draft: False leaves the draft out.

    Raises:
        ModelNotFoundError, ModelLoadError: a file is missing or no GGUF.
        ConfigError: a cache precision that the model's heads do not allow.
    """
    target = _weigh(model, "target")
    if not has_draft:
        draft_footprint = None
    elif draft is not None:
        draft_footprint = weigh.weigh_file(draft)
    else:
        draft_footprint = None if isinstance(model, Path) else _weigh(model, "draft")
    n_ctx = n_ctx or min(max(DEFAULT_CONTEXT, n_wanted), target.shape.n_ctx_train)
    target_options = ModelOptions(n_ctx, target_rows(gamma), options.kv_type, options.target)
    draft_options = None
    _require_divisible(target, options.kv_type, "--kv-type")
    if draft_footprint is not None:
        _require_divisible(draft_footprint, options.draft_kv_type, "--draft-kv-type")
        n_draft_ctx = min(n_ctx, draft_footprint.shape.n_ctx_train)
        draft_options = ModelOptions(n_draft_ctx, DRAFT_ROWS, options.draft_kv_type, options.draft)
    plan = make_plan(here, target, draft_footprint, PairOptions(target_options, draft_options))
    if options.is_fitted:
        return fit(here, plan)
    return fewer_gpu_layers(here, plan) if options.is_auto else plan


def without_draft(here: Machine, plan: Plan) -> Plan:
    """The same target alone."""
    return make_plan(here, plan.target, None, plan.options)


def require_room(here: Machine, plan: Plan) -> None:
    """Refuse what cannot be loaded, with numbers and a change after which it can.

    Raises:
        NotEnoughMemoryError: it does not fit.
    """
    if plan.fits:
        return
    found = proposals(here, plan)
    hint = f"{found[0].flags} fits ({found[0].effect})" if found else "take a smaller model or quantisation"
    raise NotEnoughMemoryError(f"not enough memory: {shortage(plan)}", f"{hint}; specgen plan shows all numbers")


def why_no_draft(here: Machine, plan: Plan) -> str:
    """Why the draft model stays out, and how it could come in."""
    found = [proposal for proposal in proposals(here, plan) if proposal.plan.draft is not None]
    remedy = f"; {found[0].flags} makes room for it" if found else ""
    return f"no memory for the draft model: {shortage(plan)}{remedy}"


def shortage(plan: Plan) -> str:
    """The devices where it does not fit, in numbers."""
    short = [device for device in plan.devices if device.verdict is Verdict.TOO_LARGE]
    return " and ".join(
        f"{device.name} needs {device.need_bytes / MIB:,.0f} MiB and has {device.free_bytes / MIB:,.0f}"
        + (f" ({device.limited_by})" if device.limited_by else "")
        for device in short
    )


def _weigh(model: Pair | Path, role: str) -> Footprint:
    if isinstance(model, Path):
        return weigh.weigh_file(model)
    return weigh.weigh(model.target if role == "target" else model.draft, None)


def _require_divisible(footprint: Footprint, kv_type: str | None, flag: str) -> None:
    if kv_type is not None and not footprint.can_quantize_kv(kv_type):
        size = footprint.shape.key_size
        raise ConfigError(
            f"{flag} {kv_type} is not possible for {footprint.name}: its heads of {size} numbers do not divide by 32",
            f"use {flag} f16",
        )
