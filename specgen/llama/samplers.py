"""llama.cpp's sampler chain as a `Sampler`: a setting means here what it means to llama.cpp's users.

The chain ends before llama.cpp's own draw, because verification needs the probabilities: they are read back from the
candidates that the chain leaves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from specgen.engine.sampling import GreedySampler, Sampler
from specgen.llama import library
from specgen.llama.preselection import MovableIds, preselect
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.types import Distribution, FloatArray, IntArray, SamplingParams, point_mass

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data
_DRY_BREAKERS = ("\n", ":", '"', "*")


def make_sampler(
    vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int, banned: Sequence[int] = ()
) -> Sampler:
    """The cheapest sampler that means the same as llama.cpp's chain with these settings.

    Args:
        vocabulary: of the model whose logits it will see.
        params: the settings.
        n_ctx_train: the model's trained context, which bounds how far DRY looks back.
        banned: ids that must not be generated.
    """
    if params.is_greedy and not params.has_penalties and not params.logit_bias:
        return GreedySampler(banned)
    return ChainSampler(vocabulary, params, n_ctx_train, banned)


class ChainSampler:
    """Logit bias, penalties, DRY, top-k, typical-p, top-p, min-p, XTC, temperature: llama.cpp's default order.

    At temperature 0 the chain is bias, penalties and DRY, and the result the most probable token.
    """

    def __init__(
        self, vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int, banned: Sequence[int] = ()
    ) -> None:
        self._lib = library.load()
        self._banned = np.array(sorted(banned), dtype=np.int32)
        self._all_ids: IntArray = np.arange(vocabulary.n_tokens, dtype=np.int32)
        self._n_kept = _n_kept(params)
        self._movable = MovableIds(params, n_ctx_train, vocabulary.n_tokens)
        self._has_state = params.has_penalties
        self.is_greedy = params.is_greedy
        self._handle: Any = _make_chain(self._lib, vocabulary, params, n_ctx_train)

    def reset(self, prompt: Sequence[int]) -> None:
        """Start a new stream; penalties see the prompt."""
        self._lib.llama_sampler_reset(self._handle)
        self._movable.reset()
        if self._has_state:
            for token in prompt:
                self.accept(token)

    def distribution(self, logits: FloatArray) -> Distribution:
        """What the chain leaves of a row of logits, most probable first where the chain sorts.

        Of equal logits at the end of what top-k keeps, llama.cpp keeps any.
        """
        if self._banned.size:
            logits[self._banned] = -np.inf
        if not self._n_kept:
            return self._process(self._all_ids, logits)
        ids, _ = preselect(logits, self._n_kept, self._movable.ids)
        return self._process(ids, logits[ids])

    def _process(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """The chain over some candidates.

        Args:
            ids: (n,) int32 in rising order.
            logits: (n,) float32, theirs.
        """
        candidates = np.zeros(ids.size, dtype=_CANDIDATE)
        candidates["id"] = ids
        candidates["logit"] = logits
        array = self._lib.llama_token_data_array(
            data=candidates.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data)),
            size=candidates.size,
            selected=-1,
            sorted=False,
        )
        self._lib.llama_sampler_apply(self._handle, ctypes.byref(array))
        kept = _read(array, candidates)
        if self.is_greedy:
            return point_mass(int(kept["id"][kept["logit"].argmax()]))
        kept_logits = kept["logit"].astype(np.float64)
        weights = np.exp(kept_logits - kept_logits.max())
        return Distribution(kept["id"].copy(), weights / weights.sum())

    def accept(self, token: int) -> None:
        """`token` was generated."""
        self._lib.llama_sampler_accept(self._handle, token)
        self._movable.accept(token)

    def fork(self) -> Sampler:
        """A copy with its own penalties; itself where nothing depends on earlier tokens."""
        if not self._has_state:
            return self
        copy = ChainSampler.__new__(ChainSampler)
        copy.__dict__.update(self.__dict__)
        copy._handle = self._lib.llama_sampler_clone(self._handle)
        copy._movable = self._movable.fork()
        return copy

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            self._lib.llama_sampler_free(handle)


def _n_kept(params: SamplingParams) -> int:
    """The candidates that the first cut of the chain keeps; 0 where no small number of them can be told beforehand.

    Without a top-k the later cuts weigh the whole vocabulary. DRY may lower any token of a context of thousands, and
    looks for them itself.
    """
    if params.dry_multiplier > 0:
        return 0
    return 1 if params.is_greedy else params.top_k


def _read(array: Any, candidates: np.ndarray) -> np.ndarray:
    """The candidates that a chain left; a sampler may have moved them to memory of its own."""
    address = ctypes.cast(array.data, ctypes.c_void_p).value
    if address == candidates.ctypes.data:
        return candidates[: array.size]
    buffer = (ctypes.c_byte * (array.size * _CANDIDATE.itemsize)).from_address(address or 0)
    return np.frombuffer(buffer, dtype=_CANDIDATE)


def _make_chain(lib: Any, vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int) -> Any:
    """llama.cpp's samplers in the order of its own programs; neutral ones are left out."""
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())

    def add(sampler: Any) -> None:
        lib.llama_sampler_chain_add(chain, sampler)

    n_vocab = vocabulary.n_tokens
    if params.logit_bias:
        biases = (lib.llama_logit_bias * len(params.logit_bias))(*params.logit_bias)
        add(lib.llama_sampler_init_logit_bias(n_vocab, len(biases), biases))
    if params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty:
        n_last = params.repeat_last_n if params.repeat_last_n >= 0 else n_ctx_train
        repeat, frequency, presence = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
        add(lib.llama_sampler_init_penalties(n_vocab, n_last, repeat, frequency, presence))
    if params.dry_multiplier > 0:
        breakers = (ctypes.c_char_p * len(_DRY_BREAKERS))(*(text.encode() for text in _DRY_BREAKERS))
        n_last = params.dry_penalty_last_n if params.dry_penalty_last_n >= 0 else n_ctx_train
        handle, multiplier, base = vocabulary.handle, params.dry_multiplier, params.dry_base
        length = params.dry_allowed_length
        add(lib.llama_sampler_init_dry(handle, multiplier, base, length, n_last, breakers, len(breakers)))
    if params.is_greedy:
        return chain
    if params.top_k > 0:
        add(lib.llama_sampler_init_top_k(params.top_k))
    if params.typical_p < 1:
        add(lib.llama_sampler_init_typical(params.typical_p, 1))
    if params.top_p < 1:
        add(lib.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        add(lib.llama_sampler_init_min_p(params.min_p, 1))
    if params.xtc_probability > 0:
        add(lib.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 1, params.seed))
    add(lib.llama_sampler_init_temp(params.temperature))
    return chain
