"""The shape of a model, from its header: what its memory is computed from."""

from __future__ import annotations

import numpy as np

from specgen.errors import ModelLoadError
from specgen.pairs.gguf import Header
from specgen.pairs.sources import ModelShape

_WITHOUT_CACHE = ("mamba",)
"""Architectures, by the start of their names, whose layers all keep a recurrent state and no keys and values."""
_MAX_LAYERS = 1 << 16


def shape_of(header: Header) -> ModelShape:
    """The shape, with llama.cpp's defaults where the header is silent.

    Raises:
        ModelLoadError: a key holds something else than it should.
    """
    architecture = header.architecture

    def numbers(key: str, default: int = 0) -> list[int]:
        """One number for all layers, or one per layer."""
        value = header.metadata.get(f"{architecture}.{key}", default)
        try:
            return [int(number) for number in np.atleast_1d(np.asarray(value))]
        except (TypeError, ValueError):
            raise ModelLoadError(
                f"{header.name}: {architecture}.{key} is no number", "download it again, or convert it anew"
            ) from None

    def number(key: str, default: int = 0) -> int:
        return max(numbers(key, default), default=default)

    n_layers, width = number("block_count"), number("embedding_length")
    if n_layers > _MAX_LAYERS:
        raise ModelLoadError(f"{header.name}: it claims {n_layers:,} layers", "download it again, or convert it anew")
    n_heads = number("attention.head_count")
    kv_heads = numbers("attention.head_count_kv", n_heads)
    if architecture.startswith(_WITHOUT_CACHE):
        kv_heads = [0]
    key_size = number("attention.key_length", width // max(1, n_heads))
    tokens = header.metadata.get("tokenizer.ggml.tokens", ())
    return ModelShape(
        architecture,
        n_layers,
        tuple(kv_heads) if len(kv_heads) > 1 else tuple(kv_heads) * n_layers,
        key_size,
        number("attention.value_length", key_size),
        width,
        len(tokens) if hasattr(tokens, "__len__") else 0,
        number("context_length"),
        number("attention.sliding_window"),
    )
