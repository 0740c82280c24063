"""What one model takes of memory, layer by layer, wherever its layers go.

Formulas for what llama.cpp allocates, from a GGUF header or from what the registry knows of a model that is not here.
Tests compare them with the buffer sizes that llama.cpp logs. (Its own simulation, `no_alloc`, needs the file, takes a
second, and logs every buffer of a device as 0.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from specgen.pairs.sources import ModelShape

KV_BLOCKS = {
    "f32": (4, 1),
    "f16": (2, 1),
    "bf16": (2, 1),
    "q8_0": (34, 32),
    "q5_1": (24, 32),
    "q5_0": (22, 32),
    "q4_1": (20, 32),
    "q4_0": (18, 32),
    "iq4_nl": (18, 32),
}
"""Bytes of a block and the numbers in it, for each precision that a cache can have."""

_CELLS_PADDED_TO = 256
_SNAPSHOT_ARCHITECTURES = ("qwen35", "lfm2", "nemotron_h")
"""How the names of those begin that keep n_rs_seq snapshots of their recurrent state; others keep the state only."""
_REPACKED_TYPES = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "Q8_0"})
"""Weights that the CPU may copy into another order while loading, by instruction set."""
_USUAL_FEED_FORWARD = 4
"""Times the width of the model, where nothing says better."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a GGUF file: its name, ggml's name of its type, and bytes."""

    name: str
    type: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of one model; bytes.

    Attributes:
        name: for people.
        shape: sizes of its cache.
        file_bytes: of all files.
        input_bytes: what is always in RAM: the token embeddings.
        layer_bytes: weights, layer by layer.
        output_bytes: of the output layer, which goes where the last layer goes.
        is_tied: the output layer is the embeddings; on another device than RAM they are there twice.
        repacked_share: part of the layers that the CPU may copy while loading, from 0 to 1.
        is_all_f32: 32-bit weights.
        n_heads: attention heads; the widest layer's.
        n_feed_forward: numbers per token between two matrices of a layer, all experts in use together.
        state_bytes: recurrent state of each layer without a cache; one snapshot.
    """

    name: str
    shape: ModelShape
    file_bytes: int
    input_bytes: int
    layer_bytes: tuple[int, ...]
    output_bytes: int
    is_tied: bool
    repacked_share: float
    is_all_f32: bool
    n_heads: int
    n_feed_forward: int
    state_bytes: int

    def kv_bytes(self, layer: int, n_cells: int, kv_type: str, max_rows: int) -> int:
        """Cache, or state, of one layer. Windows save nothing here: taking tokens back needs the whole cache."""
        heads = self.shape.kv_heads[layer]
        if not heads:
            keeps_snapshots = self.shape.architecture.startswith(_SNAPSHOT_ARCHITECTURES)
            return self.state_bytes * (max_rows if keeps_snapshots else 1)
        block_bytes, block = KV_BLOCKS[kv_type]
        width = heads * (self.shape.key_size + self.shape.value_size)
        return n_cells * width * block_bytes // block

    def layer_work_bytes(self, n_tokens: int, n_cells: int, *, has_flash_attention: bool) -> int:
        """The buffer of a pass through layers: activations, scores and masks of the widest one."""
        shape = self.shape
        heads = self.n_heads * shape.key_size + max(shape.kv_heads) * (shape.key_size + shape.value_size)
        activations = 4 * n_tokens * (2 * self.n_feed_forward + 5 * shape.n_embd + heads)
        scores = 0 if has_flash_attention else 4 * n_tokens * n_cells * self.n_heads
        return activations + scores + self._mask_bytes(n_tokens, n_cells, has_flash_attention=has_flash_attention)

    def input_work_bytes(self, n_tokens: int, n_cells: int, *, has_flash_attention: bool) -> int:
        """The buffer of a pass outside the layers: embeddings and masks."""
        embeddings = 4 * n_tokens * self.shape.n_embd
        return embeddings + self._mask_bytes(n_tokens, n_cells, has_flash_attention=has_flash_attention)

    def _mask_bytes(self, n_tokens: int, n_cells: int, *, has_flash_attention: bool) -> int:
        """One mask for full attention, one for windows."""
        if not any(self.shape.kv_heads):
            return 0
        return n_tokens * n_cells * (2 if has_flash_attention else 4) * (2 if self.shape.window else 1)

    def logits_bytes(self, n_rows: int) -> int:
        """Rows of the vocabulary."""
        return 4 * n_rows * self.shape.n_vocab

    def can_quantize_kv(self, kv_type: str) -> bool:
        """Whether the heads divide into the blocks of a cache's precision."""
        block = KV_BLOCKS[kv_type][1]
        return self.shape.key_size % block == 0 and self.shape.value_size % block == 0


def cells(n_ctx: int, max_rows: int) -> int:
    """Cells of a cache for a context and the padding rows of a pass."""
    return -(-(n_ctx + max_rows) // _CELLS_PADDED_TO) * _CELLS_PADDED_TO


def footprint_of(
    name: str, shape: ModelShape, metadata: Mapping[str, object], tensors: Iterable[TensorInfo]
) -> Footprint:
    """From a file's header; of a split model, from the headers of all its files together."""
    layer_bytes = [0] * shape.n_layers
    input_bytes = output_bytes = repackable = 0
    is_tied = is_all_f32 = True
    for tensor in tensors:
        prefix, _, rest = tensor.name.partition(".")
        number = rest.partition(".")[0]
        if prefix == "blk" and number.isdecimal() and int(number) < shape.n_layers:
            layer_bytes[int(number)] += tensor.n_bytes
            repackable += tensor.n_bytes if tensor.type in _REPACKED_TYPES else 0
        elif prefix in ("token_embd", "per_layer_token_embd", "position_embd"):
            input_bytes += tensor.n_bytes
        else:
            output_bytes += tensor.n_bytes
        is_tied = is_tied and tensor.name != "output.weight"
        is_all_f32 = is_all_f32 and tensor.type == "F32"

    def number_of(key: str, default: int = 0) -> int:
        value = metadata.get(f"{shape.architecture}.{key}", default)
        values = value if isinstance(value, list | tuple) else [value]
        return max((int(n) for n in values if isinstance(n, int | float)), default=default)

    n_experts = number_of("expert_used_count")
    n_expert_ff = number_of("expert_feed_forward_length", number_of("feed_forward_length"))
    return Footprint(
        name=name,
        shape=shape,
        file_bytes=input_bytes + sum(layer_bytes) + output_bytes,
        input_bytes=input_bytes,
        layer_bytes=tuple(layer_bytes),
        output_bytes=output_bytes + (input_bytes if is_tied else 0),
        is_tied=is_tied,
        repacked_share=repackable / max(1, sum(layer_bytes)),
        is_all_f32=is_all_f32,
        n_heads=number_of("attention.head_count") or shape.n_embd // max(1, shape.key_size),
        n_feed_forward=n_experts * (n_expert_ff + shape.n_embd) if n_experts else number_of("feed_forward_length"),
        state_bytes=_state_bytes(shape.n_embd, number_of),
    )


def estimate(name: str, shape: ModelShape, file_bytes: int, quant: str = "") -> Footprint:
    """From what the registry says of a model that is not here: the layers share what the embeddings leave.

    Raises:
        ValueError: no layers.
    """
    n_layer_weights = shape.n_layers * shape.n_embd * shape.n_embd * 12
    is_tied = shape.n_vocab * shape.n_embd * 4 > n_layer_weights  # small models share input and output
    n_weights = n_layer_weights + shape.n_vocab * shape.n_embd * (1 if is_tied else 2)
    table_bytes = file_bytes * shape.n_vocab * shape.n_embd // n_weights
    in_layers = file_bytes - table_bytes * (1 if is_tied else 2)
    first, others = divmod(in_layers, shape.n_layers)
    return Footprint(
        name=name,
        shape=shape,
        file_bytes=file_bytes,
        input_bytes=table_bytes,
        layer_bytes=(first + others, *[first] * (shape.n_layers - 1)),
        output_bytes=table_bytes,
        is_tied=is_tied,
        repacked_share=1.0 if any(quant.upper().startswith(kind) for kind in _REPACKED_TYPES) else 0.0,
        is_all_f32=quant.upper() == "F32",
        n_heads=max(1, shape.n_embd // max(1, shape.key_size)),
        n_feed_forward=_USUAL_FEED_FORWARD * shape.n_embd,
        state_bytes=0,
    )


def _state_bytes(n_embd: int, number_of: Callable[[str], int]) -> int:
    """32-bit convolution and recurrent state of a layer: short convolutions (LFM2) or Mamba's.

    Source: llama.cpp, `llama_hparams::n_embd_r` and `n_embd_s`.
    """
    if n_cache := number_of("shortconv.l_cache"):
        return 4 * n_embd * (n_cache - 1)
    inner, state = number_of("ssm.inner_size"), number_of("ssm.state_size")
    convolution = max(0, number_of("ssm.conv_kernel") - 1) * (inner + 2 * number_of("ssm.group_count") * state)
    return 4 * (convolution + state * inner)
