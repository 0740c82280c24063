"""Where layers go, whether they fit, and which changes make them fit. No model and no device is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specgen.llama.devices import DeviceInfo, DeviceKind
from specgen.llama.memory import MemoryLimit, Ram
from specgen.pairs.footprint import estimate
from specgen.pairs.plan import (
    MIB,
    RAM,
    Machine,
    ModelOptions,
    PairOptions,
    Verdict,
    fewer_gpu_layers,
    fit,
    make_plan,
    places,
    proposals,
)
from specgen.pairs.sources import ModelShape
from specgen.types import Placement

GIB = 2**30
LARGE = ModelShape("qwen3", 36, (8,) * 36, 128, 128, 4096, 151_936, 40_960)
SMALL = ModelShape("qwen3", 28, (8,) * 28, 128, 128, 1024, 151_936, 40_960)
TARGET = estimate("target.gguf", LARGE, 5_027_783_488, "Q4_K_M")
DRAFT = estimate("draft.gguf", SMALL, 639_446_688, "Q8_0")


def gpu(name: str, gib: float) -> DeviceInfo:
    size = int(gib * GIB)
    return DeviceInfo(name, f"a card of {gib} GiB", DeviceKind.GPU, size, size, name.rstrip("0123456789"))


def machine(*gpus: DeviceInfo, ram_gib: float = 64, **limits: int) -> Machine:
    found = [MemoryLimit("what the machine has free", int(ram_gib * GIB))]
    found += [MemoryLimit("ulimit -v", free, counts_mappings=True) for free in limits.values()]
    return Machine(Ram(128 * GIB, tuple(sorted(found, key=lambda limit: limit.free_bytes))), gpus)


def options(n_ctx: int = 4096, **target: object) -> PairOptions:
    return PairOptions(ModelOptions(n_ctx, 17, **target), ModelOptions(n_ctx, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(), ["A0", "A0", "A0", "A1", "A1"]),
        (Placement(0), [RAM] * 5),
        (Placement(2), [RAM, RAM, RAM, "A0", "A1"]),
        (Placement(99), ["A0", "A0", "A0", "A1", "A1"]),
        (Placement(tensor_split=(4, 1)), ["A0", "A0", "A0", "A0", "A1"]),
        (Placement(tensor_split=(0, 1)), ["A1"] * 5),
    ],
    ids=str,
)
def test_layers_are_spread_as_llama_cpp_spreads_them(placement, expected):
    assert places(4, placement, [gpu("A0", 8), gpu("A1", 8)]) == expected


def test_all_that_a_model_has_is_somewhere_once():
    plan = make_plan(machine(gpu("A0", 24)), TARGET, None, options())
    ram, card = plan.devices
    # The embeddings stay in RAM; the output layer is on the card.
    assert ram.target.weights + card.target.weights == TARGET.file_bytes
    assert card.target.kv == 36 * 4352 * 8 * 256 * 2
    assert ram.target.kv == 0


def test_a_model_that_is_not_here_is_planned_from_its_shape():
    total = TARGET.input_bytes + sum(TARGET.layer_bytes) + TARGET.output_bytes
    assert total == TARGET.file_bytes
    assert sum(DRAFT.layer_bytes) + DRAFT.input_bytes == DRAFT.file_bytes  # tied: one table for both ends


def test_every_proposal_fits_and_is_as_large_as_can_be():
    here = machine(gpu("A0", 6.2))
    plan = make_plan(here, TARGET, DRAFT, options(8192))
    assert plan.verdict is Verdict.TOO_LARGE
    found = {proposal.flags: proposal.plan for proposal in proposals(here, plan)}
    assert all(fitting.fits for fitting in found.values())
    assert {"--draft-gpu-layers 0", "--draft-type suffix"} <= found.keys()
    flag = next(flags for flags in found if flags.startswith("--gpu-layers"))
    more = replace(plan.options.target, placement=Placement(int(flag.split()[1]) + 1))
    assert not make_plan(here, TARGET, DRAFT, replace(plan.options, target=more)).fits


def test_a_smaller_context_is_nearly_the_largest_that_fits():
    here = machine(gpu("A0", 8))
    plan = make_plan(here, TARGET, None, options(40_960))
    found = next(proposal for proposal in proposals(here, plan) if proposal.flags.startswith("--ctx-size"))
    n_ctx = int(found.flags.split()[1])
    assert found.plan.fits
    assert 0 < n_ctx < 40_960
    larger = replace(plan.options, target=replace(plan.options.target, n_ctx=n_ctx * 5 // 4))
    assert not make_plan(here, TARGET, None, larger).fits


def test_where_no_single_change_helps_two_are_proposed():
    here = machine(gpu("A0", 1.5), ram_gib=8)
    plan = make_plan(here, TARGET, DRAFT, options(32_768))
    found = proposals(here, plan)
    assert found
    assert all(proposal.plan.fits and proposal.flags.count("--") == 2 for proposal in found)


def test_where_nothing_helps_nothing_is_proposed():
    here = machine(ram_gib=0.1)
    assert proposals(here, make_plan(here, TARGET, DRAFT, options())) == []


def test_the_drafts_cache_is_never_made_coarser():
    here = machine(gpu("A0", 6.2))
    plan = make_plan(here, TARGET, DRAFT, options(8192))
    for proposal in proposals(here, plan):
        assert proposal.plan.options.draft is None or proposal.plan.options.draft.kv_type == "f16"


def test_fit_moves_the_draft_first_and_then_layers():
    here = machine(gpu("A0", 6.2))
    moved = fit(here, make_plan(here, TARGET, DRAFT, options(4096)))
    assert moved.fits
    assert moved.options.draft.placement == Placement(0)
    assert moved.options.target.placement == Placement()
    here = machine(gpu("A0", 3))
    moved = fit(here, make_plan(here, TARGET, DRAFT, options(4096)))
    assert moved.fits
    assert 0 < moved.options.target.placement.n_gpu_layers < 37


def test_auto_takes_as_many_layers_as_fit():
    here = machine(gpu("A0", 4))
    moved = fewer_gpu_layers(here, make_plan(here, TARGET, DRAFT, options(4096)))
    n = moved.options.target.placement.n_gpu_layers
    assert moved.fits
    more = replace(moved.options, target=replace(moved.options.target, placement=Placement(n + 1)))
    assert not make_plan(here, TARGET, DRAFT, more).fits


def test_pages_of_a_file_need_not_all_have_room_but_the_rest_must():
    mapped = replace(TARGET, repacked_share=0.0)
    verdicts = [make_plan(machine(ram_gib=gib), mapped, None, options()).verdict for gib in (16, 3, 0.5)]
    assert verdicts == [Verdict.FITS, Verdict.REREADS, Verdict.TOO_LARGE]


def test_a_limit_of_addresses_counts_whole_files_even_of_weights_on_a_gpu():
    card = gpu("A0", 24)
    assert make_plan(machine(card, limit=8 * GIB), TARGET, None, options()).fits
    plan = make_plan(machine(card, limit=4 * GIB), TARGET, None, options())
    assert plan.devices[0].verdict is Verdict.TOO_LARGE
    assert plan.devices[0].need_bytes > TARGET.file_bytes
    assert plan.devices[0].limited_by == "ulimit -v"


def test_a_device_that_does_not_say_its_memory_is_trusted():
    card = replace(gpu("A0", 0), total_bytes=0)
    assert make_plan(machine(card), TARGET, None, options()).fits


@pytest.mark.parametrize(("name", "expected"), [("CUDA0", "f16"), ("RPC0", "f32")])
def test_32_bit_weights_get_a_32_bit_cache_where_no_local_gpu_computes(name, expected):
    exact = replace(TARGET, is_all_f32=True)
    assert make_plan(machine(gpu(name, 48)), exact, None, options()).options.target.kv_type == expected


def test_a_draft_has_a_batch_of_its_own():
    plan = make_plan(machine(), TARGET, DRAFT, options())
    assert plan.devices[0].draft.compute < 64 * MIB
