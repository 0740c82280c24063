"""Where a model comes from, and what is known of it before it is here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model made on this machine from a GGUF file inside an installed Python package.

    Attributes:
        package: name to install.
        module: importable name, to find the file.
        file: path inside the module.
        sha256: of that file.
        quant: precision to derive.
    """

    package: str
    module: str
    file: str
    sha256: str
    quant: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """A GGUF file in a repository of the Hugging Face Hub.

    Attributes:
        repo: owner/name.
        file: path inside the repository; the first shard stands for a split model.
        revision: branch, tag or commit.
        size: bytes, where it is known; of all shards together.
        sha256: of the file, where it is known; of the first shard of a split model.
    """

    repo: str
    file: str
    revision: str = "main"
    size: int | None = None
    sha256: str | None = None

    @property
    def shards(self) -> tuple[str, ...]:
        """Every file of the model, the first one first."""
        found = _SHARD.search(self.file)
        if not found:
            return (self.file,)
        stem, n = self.file[: found.start()], int(found[2])
        return tuple(f"{stem}-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1))

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.file}@{self.revision}"


Source = PackagedModel | HubFile | Path
"""Whatever can be turned into a GGUF file on this machine. A path is one already."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model's memory is computed from, as a header or the registry says it.

    Attributes:
        architecture: llama.cpp's name of it.
        n_layers: transformer blocks.
        kv_heads: heads of the cache, layer by layer; 0 where a layer keeps none.
        key_size: of one head.
        value_size: of one head.
        n_embd: width of the model.
        n_vocab: rows of the output layer.
        n_ctx_train: tokens it was trained for.
        window: tokens of a sliding window, 0 without one.
    """

    architecture: str
    n_layers: int
    kv_heads: tuple[int, ...]
    key_size: int
    value_size: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    window: int = 0
