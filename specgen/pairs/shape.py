"""STAND-IN until the header part is merged."""

from __future__ import annotations

from specgen.pairs.gguf import Header
from specgen.pairs.sources import ModelShape


def shape_of(header: Header) -> ModelShape:
    a = header.architecture

    def get(key: str, default: object = 0) -> object:
        return header.metadata.get(f"{a}.{key}", default)

    n, width = int(get("block_count")), int(get("embedding_length"))  # type: ignore[call-overload]
    heads = get("attention.head_count")
    n_heads = max(heads) if isinstance(heads, list) else int(heads)  # type: ignore[call-overload]
    kv = get("attention.head_count_kv", n_heads)
    kv_heads = tuple(kv) if isinstance(kv, list) else (int(kv),) * n  # type: ignore[call-overload]
    if a.startswith("mamba"):
        kv_heads = (0,) * n
    size = int(get("attention.key_length", width // max(1, n_heads)))  # type: ignore[call-overload]
    return ModelShape(
        a, n, kv_heads, size, int(get("attention.value_length", size)), width,  # type: ignore[call-overload]
        len(header.metadata.get("tokenizer.ggml.tokens", ())), int(get("context_length")),  # type: ignore[call-overload]
        int(get("attention.sliding_window")),  # type: ignore[call-overload]
    )  # fmt: skip
