"""The plan's formulas beside the buffer sizes that llama.cpp logs."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from specgen.errors import ModelLoadError
from specgen.llama import library
from specgen.llama.context import ContextParams, LlamaBackend, natural_kv_type
from specgen.llama.memory import MemoryLimit, Ram
from specgen.llama.model import LlamaModel
from specgen.pairs.gguf import Header
from specgen.pairs.plan import MIB, Machine, ModelOptions, PairOptions, make_plan
from specgen.pairs.shape import shape_of
from specgen.pairs.weigh import weigh_file
from specgen.types import Placement

MAX_ROWS = 17
_BUFFER = re.compile(r"(\S+) (model|KV|RS|compute) buffer size = +([\d.]+) MiB")
_PART = {"model": "weights", "KV": "kv", "RS": "kv", "compute": "compute"}


def logged(path: Path, n_ctx: int, kv_type: str | None) -> tuple[dict[str, float], str]:
    """Bytes that llama.cpp says it took, by kind, repacked copies left out, and the cache's precision."""
    lines: list[str] = []
    params = ContextParams(n_ctx, MAX_ROWS, n_threads=1)
    with library.listen(lambda _level, line: lines.append(line)), LlamaModel(path, Placement(0)) as model:
        kv_type = kv_type or natural_kv_type(model)
        LlamaBackend(model, ContextParams(n_ctx, params.max_rows, 1, kv_type)).close()
    found: dict[str, float] = defaultdict(float)
    for line in lines:
        if (match := _BUFFER.search(" ".join(line.split()))) and "REPACK" not in match[1]:
            found[_PART[match[2]]] += float(match[3]) * MIB
    return found, kv_type


def assert_planned(path: Path, n_ctx: int, kv_type: str | None = None) -> None:
    """Weights and cache to the rounding of the log; the buffers within 16 MiB, logits apart, which come on demand."""
    expected, natural = logged(path, n_ctx, kv_type)
    here = Machine(Ram(2**40, (MemoryLimit("nothing", 2**40),)), ())
    footprint = weigh_file(path)
    plan = make_plan(here, footprint, None, PairOptions(ModelOptions(n_ctx, MAX_ROWS, kv_type)))
    need = plan.devices[0].target
    assert plan.options.target.kv_type == natural
    assert need.weights == pytest.approx(expected["weights"], abs=0.02 * MIB)
    assert need.kv == pytest.approx(expected["kv"], rel=0.01, abs=0.03 * MIB)
    assert need.compute - footprint.logits_bytes(MAX_ROWS) == pytest.approx(expected["compute"], rel=0.05, abs=16 * MIB)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba", "lfm2"])
@pytest.mark.parametrize("n_ctx", [300, 2048])
def test_every_kind_of_memory(tiny_models, kind, n_ctx):
    assert_planned(getattr(tiny_models, kind), n_ctx)


def test_lower_precision_of_the_cache(tiny_models):
    assert_planned(tiny_models.llama, 2048, "f16")
    assert_planned(tiny_models.llama, 2048, "bf16")


def test_a_shape_that_no_model_has_is_refused():
    header = Header({"llama.block_count": 1 << 40}, (), "llama", "odd.gguf")
    with pytest.raises(ModelLoadError, match="layers"):
        shape_of(header)
    with pytest.raises(ModelLoadError, match=r"llama\.block_count is no number"):
        shape_of(Header({"llama.block_count": "many"}, (), "llama", "odd.gguf"))
