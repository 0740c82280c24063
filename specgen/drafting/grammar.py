"""Drafting what a grammar leaves no choice about: the names of a JSON object, the rest of a keyword.

Owns how forced text becomes tokens. What is forced, the grammar says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from specgen.drafting.offering import OfferingDrafter
from specgen.types import Proposal

NAME = "grammar"

_CONFIDENCE = 0.95
"""Measured with SmolLM2 and a schema that the prompt shows; a model that is not told cuts a name in odd places."""
_N_CONTEXT = 8  # tokens before the forced text that can matter for how it is cut into tokens
_BYTES_PER_TOKEN = 6
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class ForcingGrammar(Protocol):
    """Follows an answer and knows what must come next."""

    def reset(self) -> None:
        """Before the first token of an answer."""

    def accept(self, token: int) -> None:
        """`token` was generated."""

    def forced(self, n_bytes: int) -> bytes:
        """What must come next, up to `n_bytes` of it."""


class Tokenizer(Protocol):
    """Text into tokens and back."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; empty for control tokens."""

    def tokenize(self, text: str, *, parse_special: bool) -> list[int]:
        """Text into ids."""


class GrammarDrafter(OfferingDrafter):
    """Offers the tokens of forced text.

    Args:
        grammar: of its own, at its beginning.
        tokenizer: the target's.
        clock: seconds.
    """

    def __init__(
        self, grammar: ForcingGrammar, tokenizer: Tokenizer, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(NAME, clock)
        self._grammar = grammar
        self._tokenizer = tokenizer
        self._n_prompt = 0
        self._last: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """The grammar speaks of the answer alone."""
        super().begin(prompt)
        self._n_prompt = len(prompt)

    def _forget(self) -> None:
        self._grammar.reset()
        self._last = []

    def _take_in(self, tokens: Sequence[int]) -> None:
        answer = tokens[self._n_prompt :] if self._n_seen == 0 else tokens
        for token in answer:
            self._grammar.accept(token)
        self._last = [*self._last, *tokens[-_N_CONTEXT:]][-_N_CONTEXT:]

    def _guess(self, n: int) -> list[Proposal]:
        """All forced tokens but the last: that is mostly said in one with what follows, as `":` is after a name."""
        forced = self._grammar.forced(_BYTES_PER_TOKEN * (n + 1))
        return [Proposal(token, NAME, _CONFIDENCE) for token in self._tokenize(forced)[:-1][:n]]

    def _tokenize(self, forced: bytes) -> list[int]:
        """`forced` as it is cut into tokens after what was said last; nothing where that cannot be told."""
        text = (b"".join(self._spoken_last()) + forced).lstrip(_CONTINUATION_BYTES)
        try:
            tokens = self._tokenizer.tokenize(text.decode(), parse_special=False) if forced else []
            made: list[int] = []
            n_left = len(forced)
            while tokens and n_left and (n_bytes := len(self._tokenizer.token_bytes(tokens[-1]))) <= n_left:
                made.insert(0, tokens.pop())
                n_left -= n_bytes
            if n_left:  # the next token began in what was said before; what it adds is cut on its own
                made = self._tokenizer.tokenize(forced[:n_left].decode(), parse_special=False) + made
        except UnicodeDecodeError:  # somewhere in the middle of a character
            return []
        return made if b"".join(map(self._tokenizer.token_bytes, made)) == forced else []

    def _spoken_last(self) -> list[bytes]:
        """The bytes of the last tokens, after any control token."""
        spoken: list[bytes] = []
        for token in reversed(self._last):
            piece = self._tokenizer.token_bytes(token)
            if not piece:
                break
            spoken.insert(0, piece)
        return spoken
