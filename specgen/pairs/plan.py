"""Does a pair fit? Weights, cache and compute buffers of both models on every device, before anything is loaded.

Knows the rules by which llama.cpp spreads layers over devices. When a pair does not fit, looks for changes after which
it does; it never makes them itself, but for `fit`, which moves layers when the user asks for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate

from specgen.llama.context import MAX_BATCH_CPU, MAX_BATCH_GPU
from specgen.llama.devices import DeviceInfo
from specgen.llama.memory import MemoryLimit, Ram
from specgen.pairs.footprint import Footprint, cells
from specgen.types import ALL_LAYERS, Placement

RAM = "RAM"
"""The name of the machine's memory in a plan."""

MIB = 2**20
_SPARE_RAM = 64 * MIB
"""What Python, vocabularies and threads take beyond the buffers."""
_SPARE_ADDRESSES = 128 * MIB
"""What stacks and heaps of threads reserve without using it; counts where a limit counts addresses."""
_SPARE_GPU = 256 * MIB
"""What a driver takes beyond the buffers."""
_SPARE_WORKER = 64 * MIB
_SMALLEST_CONTEXT = 512
_CONTEXT_STEP = 256
_SMALLER_KV = "q8_0"


class Verdict(StrEnum):
    """Whether what is planned for a device has room there."""

    FITS = "fits"
    REREADS = "slow"  # weights are read from the file again and again
    TOO_LARGE = "does not fit"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How one model will be loaded.

    Attributes:
        n_ctx: tokens of context.
        max_rows: rows of logits of a pass.
        kv_type: precision of the cache; None for what does the model justice.
        placement: where its layers go.
    """

    n_ctx: int
    max_rows: int
    kv_type: str | None = None
    placement: Placement = field(default_factory=Placement)


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How a pair will be loaded; no draft, no options for it."""

    target: ModelOptions
    draft: ModelOptions | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What one model takes of one device; bytes.

    Attributes:
        weights: all of them, mapped or not.
        kv: cache and recurrent state.
        compute: buffers of a pass, logits included.
        mapped: the part of the weights that is a file's pages, which the system may drop and read again.
    """

    weights: int = 0
    kv: int = 0
    compute: int = 0
    mapped: int = 0

    @property
    def total(self) -> int:
        """Weights, cache, buffers."""
        return self.weights + self.kv + self.compute


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What is planned for one device.

    Attributes:
        name: llama.cpp's, or RAM.
        description: of the device.
        free_bytes: room now.
        limited_by: what limits it, in words; empty where that is the device's own size.
        target, draft: needs of the two.
        spare_bytes: kept free beside them.
        verdict: whether it fits.
    """

    name: str
    description: str
    free_bytes: int
    limited_by: str
    target: Need
    draft: Need | None
    spare_bytes: int
    verdict: Verdict

    @property
    def need_bytes(self) -> int:
        """All that is planned, with what is kept free."""
        return self.target.total + (self.draft.total if self.draft else 0) + self.spare_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """A pair on the devices of this machine.

    Attributes:
        target, draft: the models; no draft, no memory for it.
        options: how they would be loaded, the precisions of the caches filled in.
        devices: RAM first, then the GPUs that take part.
    """

    target: Footprint
    draft: Footprint | None
    options: PairOptions
    devices: tuple[DevicePlan, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all devices."""
        order = tuple(Verdict)
        return max((device.verdict for device in self.devices), key=order.index)

    @property
    def fits(self) -> bool:
        """Whether it can be loaded."""
        return self.verdict is not Verdict.TOO_LARGE


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change after which a pair fits.

    Attributes:
        flags: of the command line.
        effect: in words.
        plan: the plan after it.
    """

    flags: str
    effect: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to plan with: memory, and GPUs in llama.cpp's order."""

    ram: Ram
    gpus: tuple[DeviceInfo, ...]


def make_plan(machine: Machine, target: Footprint, draft: Footprint | None, options: PairOptions) -> Plan:
    """Spread both models over the machine as llama.cpp will.

    Raises:
        ValueError: a draft without options for it.
    """
    target_options = _completed(target, options.target, machine)
    target_needs = _needs(target, target_options, machine)
    draft_options, draft_needs = None, None
    if draft is not None:
        if options.draft is None:
            raise ValueError("a draft without options")
        draft_options = _completed(draft, options.draft, machine)
        draft_needs = _needs(draft, draft_options, machine)
    file_bytes = target.file_bytes + (draft.file_bytes if draft else 0)
    lines = [_plan_ram(machine.ram, target_needs, draft_needs, file_bytes)]
    for gpu in machine.gpus:
        if gpu.name in target_needs or gpu.name in (draft_needs or ()):
            draft_need = draft_needs.get(gpu.name, Need()) if draft_needs is not None else None
            lines.append(_plan_gpu(gpu, target_needs.get(gpu.name, Need()), draft_need))
    return Plan(target, draft, PairOptions(target_options, draft_options), tuple(lines))


def proposals(machine: Machine, plan: Plan) -> list[Proposal]:
    """Changes after which a pair that does not fit does, the mildest first; single ones if there are any."""
    single = [found for change in _CHANGES for found in change(machine, plan)]
    fitting = [proposal for proposal in single if proposal.plan.fits]
    if fitting:
        return fitting
    for first in single:
        for change in _CHANGES:
            for second in change(machine, first.plan):
                if second.plan.fits and second.flags.split()[0] not in first.flags:
                    flags = f"{first.flags} {second.flags}"
                    fitting.append(Proposal(flags, f"{first.effect}, {second.effect}", second.plan))
    best = {frozenset(proposal.flags.split(" --")): proposal for proposal in reversed(fitting)}
    return list(reversed(best.values()))[:3]


def fit(machine: Machine, plan: Plan) -> Plan:
    """Move layers until it fits: the draft off the GPUs, then so many of the target's as must.

    Returns:
        The given plan where it fits already or nothing helps.
    """
    if plan.fits:
        return plan
    moved = [proposal.plan for proposal in (*_move_draft(machine, plan), *_fewer_gpu_layers(machine, plan))]
    for first in tuple(moved):
        moved += [proposal.plan for proposal in _fewer_gpu_layers(machine, first)]
    return next((candidate for candidate in moved if candidate.fits), plan)


def fewer_gpu_layers(machine: Machine, plan: Plan) -> Plan:
    """As many of the target's layers on GPUs as fit; the given plan where that helps nothing."""
    if plan.fits:
        return plan
    return next((found.plan for found in _fewer_gpu_layers(machine, plan) if found.plan.fits), plan)


def _completed(footprint: Footprint, options: ModelOptions, machine: Machine) -> ModelOptions:
    """With the cache that does the model justice, and a context that it was trained for."""
    if options.kv_type is not None:
        return options
    is_on_local_gpu = any(not gpu.is_remote for gpu in _chosen(options.placement, machine))
    return replace(options, kv_type="f32" if footprint.is_all_f32 and not is_on_local_gpu else "f16")


def _chosen(placement: Placement, machine: Machine) -> list[DeviceInfo]:
    """The GPUs that a model uses."""
    if placement.is_on_cpu:
        return []
    by_name = {gpu.name: gpu for gpu in machine.gpus}
    return [by_name[name] for name in placement.devices] if placement.devices else list(machine.gpus)


def places(n_layers: int, placement: Placement, gpus: Sequence[DeviceInfo]) -> list[str]:
    """The device of each layer, the output layer's last.

    Source: llama.cpp, `llama_model_base::load_tensors`.
    """
    n_all = n_layers + 1
    n_on_gpu = n_all if placement.n_gpu_layers == ALL_LAYERS else min(placement.n_gpu_layers, n_all)
    if not gpus or not n_on_gpu:
        return [RAM] * n_all
    parts = placement.tensor_split or tuple(float(gpu.free_bytes) for gpu in gpus)
    parts = tuple((*parts, *[0.0] * len(gpus))[: len(gpus)])
    ends = [end / (sum(parts) or 1) for end in accumulate(parts)]
    on_gpu = [gpus[min(bisect_right(ends, i / n_on_gpu), len(gpus) - 1)].name for i in range(n_on_gpu)]
    return [RAM] * (n_all - n_on_gpu) + on_gpu


def _needs(footprint: Footprint, options: ModelOptions, machine: Machine) -> dict[str, Need]:
    """What a model takes of each device; RAM is always there."""
    gpus = _chosen(options.placement, machine)
    where = places(footprint.shape.n_layers, options.placement, gpus)
    kv_type = options.kv_type or "f16"
    n_tokens = max(2 * options.max_rows, MAX_BATCH_GPU if gpus else MAX_BATCH_CPU)
    n_cells = cells(options.n_ctx, options.max_rows)
    has_flash_attention = kv_type != "f32"
    needs = {}
    for device in dict.fromkeys((RAM, *where)):
        layers = [i for i, place in enumerate(where[:-1]) if place == device]
        has_output = where[-1] == device
        in_layers = sum(footprint.layer_bytes[i] for i in layers)
        weights = in_layers
        if has_output:
            weights += footprint.output_bytes
        if device == RAM and not (has_output and footprint.is_tied):
            weights += footprint.input_bytes
        logits = footprint.logits_bytes(options.max_rows)
        compute = footprint.input_work_bytes(n_tokens, n_cells, has_flash_attention=has_flash_attention)
        if has_output:
            compute += logits
        if layers:
            in_pass = footprint.layer_work_bytes(n_tokens, n_cells, has_flash_attention=has_flash_attention)
            compute = max(compute, in_pass)
        needs[device] = Need(
            weights=weights,
            kv=sum(footprint.kv_bytes(i, n_cells, kv_type, options.max_rows) for i in layers),
            compute=compute + (logits if device == RAM else 0),  # the rows come back to RAM
            mapped=weights - int(in_layers * footprint.repacked_share) if device == RAM else 0,
        )
    return needs


def _plan_ram(ram: Ram, target: dict[str, Need], draft: dict[str, Need] | None, file_bytes: int) -> DevicePlan:
    """RAM under the limit that is the tightest for this plan."""
    own = [needs[RAM] for needs in (target, draft) if needs is not None]
    total = sum(need.total for need in own) + _SPARE_RAM
    mapped = sum(need.mapped for need in own)

    # Whole files are mapped, also where their weights are copied to another place.
    only_addresses = file_bytes - mapped + _SPARE_ADDRESSES

    def room(limit: MemoryLimit) -> tuple[Verdict, int]:
        """The verdict under a limit, and what would be left."""
        left = limit.free_bytes - total
        if limit.counts_mappings:
            left -= only_addresses
            return (Verdict.FITS if left >= 0 else Verdict.TOO_LARGE), left
        if left >= 0:
            return Verdict.FITS, left
        return (Verdict.REREADS if left + mapped >= 0 else Verdict.TOO_LARGE), left

    order = tuple(Verdict)
    tightest = max(ram.limits, key=lambda limit: (order.index(room(limit)[0]), -room(limit)[1]))
    return DevicePlan(
        name=RAM,
        description="this machine's memory",
        free_bytes=tightest.free_bytes,
        limited_by=tightest.name,
        target=target[RAM],
        draft=draft[RAM] if draft is not None else None,
        spare_bytes=_SPARE_RAM + (only_addresses if tightest.counts_mappings else 0),
        verdict=room(tightest)[0],
    )


def _plan_gpu(gpu: DeviceInfo, target: Need, draft: Need | None) -> DevicePlan:
    spare = _SPARE_WORKER if gpu.is_remote else _SPARE_GPU
    total = target.total + (draft.total if draft else 0) + spare
    fits = total <= gpu.free_bytes or not gpu.total_bytes  # some say nothing of their memory
    verdict = Verdict.FITS if fits else Verdict.TOO_LARGE
    return DevicePlan(gpu.name, gpu.description, gpu.free_bytes, "", target, draft, spare, verdict)


def _largest(low: int, high: int, is_possible: Callable[[int], bool]) -> int | None:
    """The largest number from `low` to `high` that is possible, if every smaller one is too."""
    if not is_possible(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle - 1)
    return low


def _with_context(options: PairOptions, n_ctx: int) -> PairOptions:
    draft = options.draft and replace(options.draft, n_ctx=min(n_ctx, options.draft.n_ctx))
    return PairOptions(replace(options.target, n_ctx=n_ctx), draft)


def _smaller_context(machine: Machine, plan: Plan) -> Iterator[Proposal]:
    def planned(n_steps: int) -> Plan:
        options = _with_context(plan.options, n_steps * _CONTEXT_STEP)
        return make_plan(machine, plan.target, plan.draft, options)

    lowest, highest = _SMALLEST_CONTEXT // _CONTEXT_STEP, (plan.options.target.n_ctx - 1) // _CONTEXT_STEP
    if highest >= lowest:
        n_steps = _largest(lowest, highest, lambda n: planned(n).fits) or lowest
        # Round, and up to an eighth below: a moment later a little less memory may be free.
        n_steps -= n_steps % 2 ** max(0, n_steps.bit_length() - 4)
        n_ctx = n_steps * _CONTEXT_STEP
        yield Proposal(f"--ctx-size {n_ctx}", f"a context of {n_ctx:,} tokens", planned(n_steps))


def _smaller_cache(machine: Machine, plan: Plan) -> Iterator[Proposal]:
    """The target's only: a draft with a coarse cache is accepted far less often."""
    target = plan.options.target
    if target.kv_type in ("f32", "f16", "bf16") and plan.target.can_quantize_kv(_SMALLER_KV):
        options = replace(plan.options, target=replace(target, kv_type=_SMALLER_KV))
        planned = make_plan(machine, plan.target, plan.draft, options)
        yield Proposal(f"--kv-type {_SMALLER_KV}", f"a {_SMALLER_KV} cache, a little less exact", planned)


def _move_draft(machine: Machine, plan: Plan) -> Iterator[Proposal]:
    """To one GPU, or to the CPU."""
    draft = plan.options.draft
    if plan.draft is None or draft is None or not machine.gpus or draft.placement.is_on_cpu:
        return
    elsewhere = {f"--draft-device {gpu.name}": Placement(devices=(gpu.name,)) for gpu in machine.gpus}
    for flags, placement in {**elsewhere, "--draft-gpu-layers 0": Placement(0)}.items():
        if placement != draft.placement:
            options = replace(plan.options, draft=replace(draft, placement=placement))
            name = placement.devices[0] if placement.devices else "the CPU"
            planned = make_plan(machine, plan.target, plan.draft, options)
            yield Proposal(flags, f"the draft on {name}", planned)


def _fewer_gpu_layers(machine: Machine, plan: Plan) -> Iterator[Proposal]:
    target = plan.options.target
    if not _chosen(target.placement, machine):
        return

    def planned(n: int) -> Plan:
        placement = replace(target.placement, n_gpu_layers=n)
        options = replace(plan.options, target=replace(target, placement=placement))
        return make_plan(machine, plan.target, plan.draft, options)

    n_all = plan.target.shape.n_layers + 1
    n_now = n_all if target.placement.n_gpu_layers == ALL_LAYERS else min(target.placement.n_gpu_layers, n_all)
    for n in range(n_now - 1, -1, -1):  # not monotonous: what leaves a GPU comes into RAM
        candidate = planned(n)
        if candidate.fits or n == 0:
            yield Proposal(f"--gpu-layers {n}", f"{n} of {n_all} layers on a GPU", candidate)
            return


def _no_draft(machine: Machine, plan: Plan) -> Iterator[Proposal]:
    if plan.draft is not None:
        planned = make_plan(machine, plan.target, None, plan.options)
        yield Proposal("--draft-type suffix", "no draft model", planned)


_CHANGES: tuple[Callable[[Machine, Plan], Iterator[Proposal]], ...] = (
    _move_draft,
    _smaller_context,
    _fewer_gpu_layers,
    _smaller_cache,
    _no_draft,
)
