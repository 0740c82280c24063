"""llama.cpp's grammar as the set of tokens that may come next, and as a text that it forces.

A token that the grammar does not allow must never reach `llama_sampler_accept`: llama.cpp throws through C, which ends
the process. Here such a token ends the constraint instead (`is_lost`): a drafter's guess may break the rules, and what
follows it is rejected with it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specgen.errors import ConfigError
from specgen.llama import library
from specgen.llama.gbnf import ROOT, check_gbnf
from specgen.llama.native import NativeSampler
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.types import IntArray

BoolArray = NDArray[np.bool_]


class Grammar:
    """Follows a text, token by token.

    Args:
        vocabulary: whose tokens it is asked about.
        text: GBNF with a rule `root`.

    Raises:
        ConfigError: the text is no grammar, or one that llama.cpp cannot follow.
    """

    def __init__(self, vocabulary: LlamaVocabulary, text: str) -> None:
        check_gbnf(text)
        lib = library.load()
        with library.collect_errors() as errors:
            handle = lib.llama_sampler_init_grammar(vocabulary.handle, text.encode(), ROOT.encode())
        if not handle:
            reason = " ".join(errors[0].split()) if errors else "no reason given"
            raise ConfigError(
                f"llama.cpp cannot use the grammar: {reason}", "simplify the rule that repeats or recurses"
            )
        self._vocabulary = vocabulary
        self._sampler = NativeSampler(handle)
        self._ends: IntArray = np.array(sorted(vocabulary.eog_ids), dtype=np.int32)
        self._probes: IntArray = np.concatenate([vocabulary.single_bytes, self._ends])
        self.is_lost = False

    def reset(self) -> None:
        """Before the first token."""
        self._sampler.reset()
        self.is_lost = False

    def fork(self) -> Grammar:
        """A copy that goes its own way."""
        copy = Grammar.__new__(Grammar)
        copy.__dict__.update(self.__dict__)
        copy._sampler = self._sampler.clone()
        return copy

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        return bool(self.allows(self._ends).any())

    @property
    def can_continue(self) -> bool:
        """Whether some token, other than an end of generation, may come next."""
        if self.is_lost or self.allows(self._vocabulary.single_bytes).any():
            return True
        return bool(self.allows(self._spoken).any())

    def forced(self, n_bytes: int) -> bytes:
        """The text that must come next, byte by byte, up to where there is a choice or `n_bytes` are reached.

        Looked for among tokens of one byte: where only longer ones spell what else may come, it can be wrong.
        """
        text = bytearray()
        state = self
        n_single = self._vocabulary.single_bytes.size
        while len(text) < n_bytes and not state.is_lost:
            allowed = np.flatnonzero(state.allows(self._probes))
            if allowed.size != 1 or allowed[0] >= n_single:
                break
            state = self.fork() if state is self else state
            token = int(self._probes[allowed[0]])
            text += self._vocabulary.token_bytes(token)
            state.accept(token)
        return bytes(text)

    @cached_property
    def _spoken(self) -> IntArray:
        """All tokens that add to the text."""
        silent = [*self._vocabulary.eog_ids, *self._vocabulary.hidden_ids]
        return np.delete(np.arange(self._vocabulary.n_tokens, dtype=np.int32), silent)

    def allows(self, ids: IntArray) -> BoolArray:
        """(n,) which of some tokens may come next; end-of-generation tokens may where the text is complete."""
        if self.is_lost:
            return np.ones(ids.size, dtype=np.bool_)
        _, logits = self._sampler.apply(ids, np.zeros(ids.size, dtype=np.float32))
        allowed: BoolArray = logits == 0
        return allowed

    def accept(self, token: int) -> None:
        """`token` was generated."""
        if self.is_lost or token in self._vocabulary.eog_ids:
            return
        if 0 <= token < self._vocabulary.n_tokens and self.allows(np.array([token], dtype=np.int32))[0]:
            self._sampler.accept(token)
        else:
            self.is_lost = True
