"""STAND-IN until the header part is merged: reads a local GGUF header, nothing else."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from specgen.errors import ModelLoadError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TYPES = {
    0: ("F32", 4, 1), 1: ("F16", 2, 1), 2: ("Q4_0", 18, 32), 3: ("Q4_1", 20, 32), 6: ("Q5_0", 22, 32),
    7: ("Q5_1", 24, 32), 8: ("Q8_0", 34, 32), 10: ("Q2_K", 84, 256), 11: ("Q3_K", 110, 256), 12: ("Q4_K", 144, 256),
    13: ("Q5_K", 176, 256), 14: ("Q6_K", 210, 256), 30: ("BF16", 2, 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    type: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    architecture: str
    name: str


def read_file_header(path: Path) -> Header:
    from specgen.llama.model import check_gguf

    check_gguf(path)
    try:
        with path.open("rb") as file:
            return _read(file)
    except (struct.error, KeyError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise ModelLoadError(f"{path}: its header cannot be read", "download it again") from error


def _read(file: BinaryIO) -> Header:
    def scalar(code: str) -> Any:
        return struct.unpack("<" + code, file.read(struct.calcsize("<" + code)))[0]

    def text() -> str:
        return file.read(scalar("Q")).decode("utf-8", "replace")

    def value(kind: int) -> Any:
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = scalar("I"), scalar("Q")
            if inner in _SCALARS:
                return list(struct.unpack(f"<{n}{_SCALARS[inner]}", file.read(n * struct.calcsize(_SCALARS[inner]))))
            return [value(inner) for _ in range(n)]
        return scalar(_SCALARS[kind])

    file.read(8)
    n_tensors, n_keys = scalar("Q"), scalar("Q")
    metadata = {}
    for _ in range(n_keys):
        key = text()
        metadata[key] = value(scalar("I"))
    tensors = []
    for _ in range(n_tensors):
        name = text()
        n = 1
        for size in [scalar("Q") for _ in range(scalar("I"))]:
            n *= size
        kind, block_bytes, block = _TYPES[scalar("I")]
        scalar("Q")
        tensors.append(Tensor(name, kind, n * block_bytes // block))
    return Header(metadata, tuple(tensors), metadata["general.architecture"], metadata.get("general.name", ""))
