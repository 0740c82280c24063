"""llama.cpp's sampler chain as a `Sampler`: a setting means here what it means to llama.cpp's users.

The chain ends before llama.cpp's own draw, because verification needs the probabilities: they are read back from the
candidates that the chain leaves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from specgen.engine.sampling import GreedySampler, Sampler, without
from specgen.errors import ConfigError, SpecgenError
from specgen.llama import library
from specgen.llama.grammar import Grammar
from specgen.llama.native import chain_of
from specgen.llama.preselection import MovableIds, is_settled, n_kept, preselect
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.types import Distribution, FloatArray, IntArray, SamplingParams, point_mass

_DRY_BREAKERS = ("\n", ":", '"', "*")
_N_TRIED = 256
"""Candidates that are looked at first where it cannot be known how many are needed."""


def make_sampler(
    vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int, banned: Sequence[int] = ()
) -> Sampler:
    """The cheapest sampler that means the same as llama.cpp's chain with these settings.

    Args:
        vocabulary: of the model whose logits it will see.
        params: the settings.
        n_ctx_train: the model's trained context, which bounds how far DRY looks back.
        banned: ids that must not be generated.

    Raises:
        ConfigError: the grammar is none, or one that llama.cpp cannot follow.
    """
    if params.is_greedy and not params.has_penalties and not params.logit_bias and not params.grammar:
        return GreedySampler(banned)
    return ChainSampler(vocabulary, params, n_ctx_train, banned)


class ChainSampler:
    """Grammar, logit bias, penalties, DRY, top-k, typical-p, top-p, min-p, XTC, temperature: llama.cpp's default order.

    At temperature 0 the result is the most probable token that the grammar allows, after bias, penalties and DRY.

    The grammar comes before everything else, as with llama.cpp's `grammar_first`: the distribution is that of the
    allowed tokens. By default llama.cpp's programs draw without it and draw again, grammar first, where the token
    breaks it, because that saves them a look at the whole vocabulary; greedily both take the same token.
    """

    def __init__(
        self, vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int, banned: Sequence[int] = ()
    ) -> None:
        n_vocab = vocabulary.n_tokens
        self._params = params
        self._all_ids: IntArray = np.arange(n_vocab, dtype=np.int32)
        self._grammar = Grammar(vocabulary, params.grammar) if params.grammar else None
        unwanted = {*banned, *(vocabulary.hidden_ids if self._grammar else ())}  # a grammar speaks of the visible text
        self._banned: IntArray = np.array(sorted(unwanted), dtype=np.int32)
        self._movable = MovableIds(params, n_ctx_train, n_vocab)
        self._adjust = chain_of(_adjusting(vocabulary, params, n_ctx_train))
        self._cut = chain_of(_cutting(params)) if not params.is_greedy else None
        n_first = _N_TRIED if self._grammar else n_kept(params) or _N_TRIED
        self._widths = (n_first, 16 * n_first, n_vocab)
        self._is_fork = False
        self.is_greedy = params.is_greedy

    def reset(self, prompt: Sequence[int]) -> None:
        """Start a new stream; penalties see the prompt, a grammar does not."""
        for part in (self._adjust, self._cut, self._grammar, self._movable):
            if part is not None:
                part.reset()
        if self._params.has_penalties:
            for token in prompt:
                self._remember(token)

    def distribution(self, logits: FloatArray) -> Distribution:
        """What the chain leaves of a row of logits, most probable first where the chain sorts.

        Of equal logits at the end of what top-k keeps, llama.cpp keeps any.
        """
        logits[self._banned] = -np.inf
        if self._grammar and self.is_greedy and not self._adjust:
            best = int(logits.argmax())
            if self._grammar.allows(np.array([best], dtype=np.int32))[0]:
                return point_mass(best)
        return self._finish(*self._candidates(logits))

    @property
    def n_candidates(self) -> int | None:
        """What top-k keeps, where nothing before it looks at single tokens."""
        n_first = n_kept(self._params)
        return None if self._grammar or self._adjust or not n_first else n_first + self._banned.size

    def distribution_among(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """What the chain leaves of the likeliest tokens."""
        return self._finish(*without(self._banned, ids, logits))

    def _candidates(self, logits: FloatArray) -> tuple[IntArray, FloatArray]:
        """As few allowed tokens as decide the rest of the chain, in id order, with bias and penalties applied."""
        if self._movable.is_anything and self._adjust:
            _, logits = self._adjust.apply(self._all_ids, logits)
        for width in self._widths:
            ids, floor = preselect(logits, width, self._movable.ids)
            values = logits[ids]
            if self._adjust and not self._movable.is_anything:
                _, values = self._adjust.apply(ids, values)
            if self._grammar:
                is_allowed = self._grammar.allows(ids)
                logits[ids[~is_allowed]] = -np.inf
                ids, values = ids[is_allowed], values[is_allowed]
            if is_settled(values, floor, self._params, self._all_ids.size):
                return ids, values
        raise SpecgenError("no token is left to choose from", "this is a bug in specgen: report it")

    def _finish(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """The rest of the chain over candidates in id order."""
        if self._cut is None:
            return point_mass(int(ids[logits.argmax()]))
        ids, logits = self._cut.apply(ids, logits)
        weights = np.exp(logits.astype(np.float64) - logits.max())
        return Distribution(ids, weights / weights.sum())

    def accept(self, token: int) -> None:
        """`token` was generated."""
        self._remember(token)
        if self._grammar:
            self._grammar.accept(token)

    def _remember(self, token: int) -> None:
        if self._adjust:
            self._adjust.accept(token)
        self._movable.accept(token)

    def is_finished(self) -> bool:
        """Whether the grammar allows no further token.

        Raises:
            ConfigError: but it wants more. A fork only stops: it follows guesses.
        """
        if self._grammar is None or self._grammar.can_continue:
            return False
        if not self._is_fork and not self._grammar.is_complete:
            raise ConfigError(
                "the grammar wants text here that no token of the model spells", "allow other characters in the grammar"
            )
        return True

    def fork(self) -> Sampler:
        """A copy with its own penalties and grammar; itself where nothing depends on earlier tokens."""
        if not self._params.has_penalties and not self._grammar:
            return self
        copy = ChainSampler.__new__(ChainSampler)
        copy.__dict__.update(self.__dict__)
        copy._adjust = self._adjust and self._adjust.clone()
        copy._grammar = self._grammar and self._grammar.fork()
        copy._movable = self._movable.fork()
        copy._is_fork = True
        return copy


def _adjusting(vocabulary: LlamaVocabulary, params: SamplingParams, n_ctx_train: int) -> list[Any]:
    """Samplers that move single logits, in the order of llama.cpp's own programs; neutral ones are left out."""
    lib = library.load()
    n_vocab = vocabulary.n_tokens
    samplers = []
    if params.logit_bias:
        biases = (lib.llama_logit_bias * len(params.logit_bias))(*params.logit_bias)
        samplers.append(lib.llama_sampler_init_logit_bias(n_vocab, len(biases), biases))
    if params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty:
        n_last = params.repeat_last_n if params.repeat_last_n >= 0 else n_ctx_train
        repeat, frequency, presence = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
        samplers.append(lib.llama_sampler_init_penalties(n_vocab, n_last, repeat, frequency, presence))
    if params.dry_multiplier > 0:
        breakers = (ctypes.c_char_p * len(_DRY_BREAKERS))(*(text.encode() for text in _DRY_BREAKERS))
        n_last = params.dry_penalty_last_n if params.dry_penalty_last_n >= 0 else n_ctx_train
        handle, multiplier, base = vocabulary.handle, params.dry_multiplier, params.dry_base
        length = params.dry_allowed_length
        samplers.append(lib.llama_sampler_init_dry(handle, multiplier, base, length, n_last, breakers, len(breakers)))
    return samplers


def _cutting(params: SamplingParams) -> list[Any]:
    """Samplers that drop candidates, and the temperature, in the same order."""
    lib = library.load()
    samplers = []
    if params.top_k > 0:
        samplers.append(lib.llama_sampler_init_top_k(params.top_k))
    if params.typical_p < 1:
        samplers.append(lib.llama_sampler_init_typical(params.typical_p, 1))
    if params.top_p < 1:
        samplers.append(lib.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        samplers.append(lib.llama_sampler_init_min_p(params.min_p, 1))
    if params.xtc_probability > 0:
        samplers.append(lib.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 1, params.seed))
    samplers.append(lib.llama_sampler_init_temp(params.temperature))
    return samplers
