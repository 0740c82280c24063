"""A context of a loaded model as a `Backend`: the only place that decodes.

Batches are written through numpy views of llama.cpp's own arrays and logits are read through one, so a pass costs
Python a few microseconds whatever the size of the vocabulary.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from specgen.engine.backend import Capabilities, MemoryKind
from specgen.errors import BackendError, ModelLoadError, NotEnoughMemoryError
from specgen.llama import library
from specgen.llama.model import LlamaModel
from specgen.llama.native import NativeSampler, chain_of
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.types import FloatArray, IntArray

_Result = TypeVar("_Result")

MAX_BATCH_CPU = 128
"""Tokens of one pass on the CPU: wide enough to be bound by arithmetic, short enough for Ctrl-C."""
MAX_BATCH_GPU = 512
KV_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q5_1": 7,
    "q5_0": 6,
    "q4_1": 3,
    "q4_0": 2,
    "iq4_nl": 20,
}
"""`enum ggml_type` of the precisions that a cache can have."""
_FLASH_ATTENTION_OFF = 0


@dataclass(frozen=True, slots=True)
class ContextParams:
    """How to make a context.

    Attributes:
        n_ctx: tokens it holds.
        max_rows: rows of logits of one pass; bounds llama.cpp's output buffer.
        n_threads: CPU threads.
        kv_type: precision of the cache, a key of KV_TYPES.
    """

    n_ctx: int
    max_rows: int
    n_threads: int
    kv_type: str = "f16"


def natural_kv_type(model: LlamaModel) -> str:
    """The cache that does a model justice: 32 bits for 32-bit weights on CPUs and workers, else llama.cpp's 16.

    A pass over one row and a pass over several use different kernels, whose last bits differ. A 16-bit cache rounds
    such bits up to differences of 0.02 in the logits, enough to flip a near tie in some hundred tokens; a 32-bit one
    keeps them below 1e-4, and without flash attention it is no slower, and faster for several rows of a long cache.
    """
    return "f32" if model.is_all_f32 and not model.is_on_local_gpu else "f16"


class LlamaBackend:
    """One context with one sequence. Satisfies `specgen.engine.backend.Backend`.

    Args:
        model: must outlive the context.
        params: sizes and threads.

    Raises:
        ModelLoadError: not enough memory, or a model that cannot generate.
    """

    def __init__(self, model: LlamaModel, params: ContextParams) -> None:
        lib = library.load()
        self._lib = lib
        if not model.has_decoder:
            raise ModelLoadError(
                f"{model.path} is an encoder: it does not generate text", "use a text generation model"
            )
        is_offloaded = model.device_names != ("CPU",)
        max_batch = max(2 * params.max_rows, MAX_BATCH_GPU if is_offloaded else MAX_BATCH_CPU)

        c_params = lib.llama_context_default_params()
        c_params.n_ctx = params.n_ctx + params.max_rows  # cells for padding rows, which come and go
        c_params.n_batch = c_params.n_ubatch = max_batch
        # Without these, llama.cpp reserves n_batch rows of the vocabulary (100 to 500 MB), or a single one.
        c_params.n_outputs_max = c_params.n_outputs_max_per_seq = params.max_rows
        # Passes of two tokens and more use n_threads_batch: a verify pass is one of them.
        c_params.n_threads = c_params.n_threads_batch = params.n_threads
        c_params.type_k = c_params.type_v = KV_TYPES[params.kv_type]
        if params.kv_type == "f32":
            c_params.flash_attn_type = _FLASH_ATTENTION_OFF  # its CPU kernel rounds a 32-bit cache to 16 bits
        # The whole cache also for sliding windows: without it, a rollback across the window is wrong without a word.
        c_params.swa_full = True
        # Snapshots of a recurrent state, where the architecture keeps them; read back below.
        c_params.n_rs_seq = params.max_rows - 1 if model.is_recurrent or model.is_hybrid else 0
        with library.collect_errors() as errors:
            self._handle: Any = lib.llama_init_from_model(model.handle, c_params)
        if not self._handle:
            reason = errors[0] if errors else "llama.cpp gave no reason"
            raise NotEnoughMemoryError(
                f"no context of {params.n_ctx:,} tokens for {model.path.name}: {' '.join(reason.split())}",
                "use a smaller --ctx-size or fewer --gpu-layers",
            )
        self._memory = lib.llama_get_memory(self._handle)
        if not self._memory or not model.has_decoder:
            raise ModelLoadError(
                f"{model.path} is an encoder: it does not generate text", "use a text generation model"
            )
        self.model = model
        self.kv_type = params.kv_type
        self.vocabulary: LlamaVocabulary = model.vocabulary
        self.n_vocab: int = self.vocabulary.n_tokens
        self.n_ctx = min(params.n_ctx, int(lib.llama_n_ctx(self._handle)))
        self.n_past = 0
        self._n_snapshots = 0
        self.busy_s = 0.0
        self.capabilities = _capabilities(lib, model, self._handle, params.max_rows, max_batch)
        self._n_shortlist = 0
        self._shortlist_sampler: NativeSampler | None = None
        self._make_batch(max_batch)

    def _make_batch(self, max_batch: int) -> None:
        """A batch for one sequence, and numpy views of its arrays."""
        self._batch = self._lib.llama_batch_init(max_batch, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, (max_batch,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (max_batch,))
        self._wants_logits = np.ctypeslib.as_array(self._batch.logits, (max_batch,))
        np.ctypeslib.as_array(self._batch.n_seq_id, (max_batch,))[:] = 1
        for i in range(max_batch):
            self._batch.seq_id[i][0] = 0

    def eval(self, tokens: Sequence[int], n_rows: int, pad_to: int = 1) -> FloatArray:
        """One `llama_decode`; see Backend.eval."""
        if n_rows:
            self.shorten(0)
        return self._pass(tokens, n_rows, pad_to, lambda: self._logits(n_rows))

    def shortlist(self, tokens: Sequence[int], n: int) -> tuple[IntArray, FloatArray]:
        """Decode `tokens` in one pass; the `n` likeliest next ones, in the order of their ids, with their logits.

        The model's own device chooses them; a whole row of logits never leaves it.
        """
        self.shorten(n)
        return self._pass(tokens, 1, 1, self._candidates)

    def shorten(self, n: int) -> bool:
        """Have the device return the `n` likeliest tokens of a pass, or whole rows where `n` is 0.

        `shortlist` and `eval` do so by themselves; asked beforehand, it tells whether the device can.
        """
        if n == self._n_shortlist:
            return True
        # A chain serves one context once, and must outlive its use there.
        sampler = chain_of([self._lib.llama_sampler_init_top_k(n)]) if n else None
        if not self._lib.llama_set_sampler(self._handle, 0, sampler.handle if sampler else None) and n:
            return False
        self._shortlist_sampler, self._n_shortlist = sampler, n
        return True

    def _pass(self, tokens: Sequence[int], n_rows: int, pad_to: int, fetch: Callable[[], _Result]) -> _Result:
        """Decode, and fetch the result while the clock runs."""
        start_s = time.perf_counter()
        n, n_past = len(tokens), self.n_past
        n_padded = -(-n // pad_to) * pad_to
        if n_past + n > self.n_ctx:
            raise BackendError(
                f"{self.model.path.name}: {n} tokens at {n_past} do not fit the context of {self.n_ctx}",
                "use a larger --ctx-size",
            )
        if n_padded > n and self.capabilities.rollback_limit is not None:
            raise BackendError(f"{self.model.path.name}: its {self.capabilities.memory} memory cannot be padded")
        self._tokens[:n] = tokens
        self._tokens[n:n_padded] = tokens[-1]
        self._positions[:n_padded] = np.arange(n_past, n_past + n_padded)
        self._wants_logits[:n_padded] = 0
        self._wants_logits[n - n_rows : n] = 1
        self._batch.n_tokens = n_padded

        status = self._lib.llama_decode(self._handle, self._batch)
        if status != 0:
            self._lib.llama_memory_seq_rm(self._memory, 0, n_past, -1)
            raise BackendError(
                f"{self.model.path.name}: llama_decode failed with status {status} on {n_padded} tokens at {n_past}",
                "use a smaller --ctx-size, or -v for llama.cpp's log",
            )
        result = fetch()  # waits for the device
        self.n_past = n_past + n_padded
        self._n_snapshots = n_padded - 1
        if n_padded > n:
            self.rollback(n_past + n)
        self.busy_s += time.perf_counter() - start_s
        return result

    def _candidates(self) -> tuple[IntArray, FloatArray]:
        """What the device kept of the pass's last row."""
        lib, handle = self._lib, self._handle
        ids = lib.llama_get_sampled_candidates_ith(handle, -1)  # waits for the device
        logits = lib.llama_get_sampled_logits_ith(handle, -1)
        n = int(lib.llama_get_sampled_candidates_count_ith(handle, -1))
        if not n or not ids or not logits or n != lib.llama_get_sampled_logits_count_ith(handle, -1):
            raise BackendError(f"{self.model.path.name}: llama.cpp returned no candidates")
        kept = np.ctypeslib.as_array(ids, (n,))
        order = kept.argsort()
        return kept[order], np.ctypeslib.as_array(logits, (n,))[order]

    def _logits(self, n_rows: int) -> FloatArray:
        """The pass's rows; llama.cpp keeps them side by side in batch order."""
        if n_rows == 0:
            self._lib.llama_synchronize(self._handle)
            return np.empty((0, self.n_vocab), dtype=np.float32)
        pointer = self._lib.llama_get_logits(self._handle)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if not address:
            raise BackendError(f"{self.model.path.name}: llama.cpp returned no logits")
        buffer = (ctypes.c_float * (n_rows * self.n_vocab)).from_address(address)
        return np.ctypeslib.as_array(buffer).reshape(n_rows, self.n_vocab)

    def rollback(self, n_past: int) -> None:
        """Drop the cache from `n_past` on; see Backend.rollback."""
        if n_past >= self.n_past:
            return
        reason = self._why_not(n_past) if n_past else ""
        if not reason and not self._lib.llama_memory_seq_rm(self._memory, 0, n_past, -1):
            reason = f"llama.cpp refuses to forget the tokens from {n_past} on"
        if reason:
            raise BackendError(f"{self.model.path.name}: {reason}", "run it without a draft")
        self._n_snapshots = 0
        self.n_past = n_past

    def _why_not(self, n_past: int) -> str:
        """Why a rollback to `n_past` would give wrong logits, or nothing; llama.cpp itself does not always say.

        A pass of n tokens leaves n - 1 snapshots of a recurrent state, good for one rollback, but any number up to
        n_rs_seq is accepted. A sliding window may have dropped cells that the next token sees, which is silent too.
        """
        limit = self.capabilities.rollback_limit
        n_dropped = self.n_past - n_past
        if limit is not None and n_dropped > min(self._n_snapshots, limit):
            return f"its {self.capabilities.memory} memory cannot take back {n_dropped} tokens"
        n_swa = self.model.n_swa
        if n_swa:
            oldest = self._lib.llama_memory_seq_pos_min(self._memory, 0)
            if not 0 <= oldest <= max(0, n_past - n_swa + 1):
                return f"its sliding window of {n_swa} has lost what a rollback to {n_past} needs"
        return ""

    def close(self) -> None:
        """Free the context."""
        if self._handle:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _capabilities(lib: Any, model: LlamaModel, handle: Any, max_rows: int, max_batch: int) -> Capabilities:
    memory = MemoryKind.FULL
    rollback_limit = None
    if model.is_recurrent or model.is_hybrid:
        memory = MemoryKind.HYBRID if model.is_hybrid else MemoryKind.RECURRENT
        # llama.cpp clamps n_rs_seq to 0 for architectures without snapshots, and says so at debug level only.
        rollback_limit = int(lib.llama_n_rs_seq(handle))
    elif model.n_swa:
        memory = MemoryKind.SLIDING_WINDOW
    return Capabilities(rollback_limit, max_rows, max_batch, model.device_names, memory)
