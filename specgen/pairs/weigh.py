"""The footprint of a model by what is known of its source: its header where it is here, else the registry's shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from specgen.errors import ModelNotFoundError
from specgen.pairs.derived import derived_path, packaged_file
from specgen.pairs.footprint import Footprint, TensorInfo, estimate, footprint_of
from specgen.pairs.gguf import Header, read_file_header
from specgen.pairs.shape import shape_of
from specgen.pairs.sources import HubFile, ModelShape, PackagedModel, Source

_BITS_PER_WEIGHT = {
    "F32": 32.0,
    "F16": 16.0,
    "BF16": 16.0,
    "Q8_0": 8.5,
    "Q6_K": 6.6,
    "Q5_K": 5.6,
    "Q4_K": 4.8,
    "Q4_0": 4.6,
    "Q4_1": 5.0,
    "Q3_K": 3.9,
    "Q2_K": 3.0,
}
"""Of a whole model in that precision, a few tensors in a finer one included; by ggml's name of the type."""

Locate = Callable[[HubFile], Path | None]
"""Finds a file of the Hub on this machine."""


def weigh(source: Source, shape: ModelShape | None, quant: str = "", locate: Locate = lambda _: None) -> Footprint:
    """What a model takes, without loading it and without a request.

    Args:
        source: where it comes from.
        shape: what the registry knows of it; needed where its file is not here.
        quant: its precision, as the registry says it.
        locate: finds files of the Hub that are here.

    Raises:
        ModelNotFoundError: the file is not here, and its sizes are not known.
        ModelLoadError: the file is here, and no GGUF.
    """
    if isinstance(source, PackagedModel):
        path = derived_path(source)
        return weigh_file(path) if path.exists() else _weigh_derived(source)
    found = locate(source) if isinstance(source, HubFile) else source
    if found is not None:
        return weigh_file(found)
    if shape is None or not isinstance(source, HubFile) or source.size is None:
        raise ModelNotFoundError(
            f"{source} is not here, and nothing says how large it is", "fetch it with specgen pull, then plan again"
        )
    return estimate(Path(source.file).name, shape, source.size, quant)


def weigh_file(path: Path) -> Footprint:
    """From the header of a file, and of the other shards beside it.

    Raises:
        ModelNotFoundError: no such file.
        ModelLoadError: not a GGUF, or its header is damaged.
    """
    header = read_file_header(path)
    shards = HubFile("", str(path)).shards
    others = [read_file_header(Path(shard)) for shard in shards if Path(shard) != path]
    tensors = [tensor for part in (header, *others) for tensor in _tensors(part)]
    return footprint_of(path.name, shape_of(header), header.metadata, tensors)


def _weigh_derived(model: PackagedModel) -> Footprint:
    """A file that will be made from a packaged one: the same tensors in another precision."""
    header = read_file_header(packaged_file(model))
    kind = model.quant.removesuffix("_M").removesuffix("_S")
    tensors = [
        TensorInfo(tensor.name, kind, round(tensor.n_bytes * _BITS_PER_WEIGHT[kind] / _BITS_PER_WEIGHT[tensor.type]))
        if tensor.type in _BITS_PER_WEIGHT and tensor.type != "F32"
        else tensor
        for tensor in _tensors(header)
    ]
    return footprint_of(derived_path(model).name, shape_of(header), header.metadata, tensors)


def _tensors(header: Header) -> Iterator[TensorInfo]:
    for tensor in header.tensors:
        yield TensorInfo(tensor.name, tensor.type, tensor.n_bytes)
