"""A model's token ids: what they mean, text into ids, ids into bytes."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from specgen.errors import ModelLoadError
from specgen.llama import library
from specgen.types import IntArray

_HIDDEN = 1 | 8  # LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_CONTROL
_FIRST_PART = 4096
_TYPES = {0: "none", 1: "spm", 2: "bpe", 3: "wpm", 4: "ugm", 5: "rwkv", 6: "plamo2", 7: "test"}


class LlamaVocabulary:
    """The vocabulary of a loaded model; the model must outlive it.

    Args:
        handle: `llama_vocab *`.
        name: what to call the model in messages.
    """

    def __init__(self, handle: Any, name: str) -> None:
        self._lib = library.load()
        self.handle = handle
        self._bytes: dict[int, bytes] = {}
        self.name = name
        self.n_tokens: int = self._lib.llama_vocab_n_tokens(handle)
        self.type: str = _TYPES.get(self._lib.llama_vocab_type(handle), "unknown")
        self.bos_id: int = self._lib.llama_vocab_bos(handle)
        self.eos_id: int = self._lib.llama_vocab_eos(handle)
        self.adds_bos: bool = self._lib.llama_vocab_get_add_bos(handle)
        self.adds_eos: bool = self._lib.llama_vocab_get_add_eos(handle)

    @cached_property
    def eog_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        is_eog = self._lib.llama_vocab_is_eog
        return frozenset(token for token in range(self.n_tokens) if is_eog(self.handle, token))

    @cached_property
    def hidden_ids(self) -> frozenset[int]:
        """Ids that add nothing to the text and do not end it, such as `<|im_start|>`."""
        attributes = self._lib.llama_vocab_get_attr
        hidden = (token for token in range(self.n_tokens) if attributes(self.handle, token) & _HIDDEN)
        return frozenset(hidden) - self.eog_ids

    @cached_property
    def single_bytes(self) -> IntArray:
        """(n,) tokens of one byte each, one for every byte that has one; rare bytes may be missed."""
        found: dict[bytes, int] = {}
        for token in range(self.n_tokens):
            if len(found) == 256 or (token >= _FIRST_PART and len(found) >= 128):
                break  # they stand together near the beginning; some vocabularies leave some out
            text = self.token_bytes(token)
            if len(text) == 1:
                found.setdefault(text, token)
        return np.array([found[byte] for byte in sorted(found)], dtype=np.int32)

    def token_text(self, token: int) -> bytes:
        """The token as the vocabulary spells it, for comparing vocabularies."""
        self._require_tokenizer()
        text: bytes | None = self._lib.llama_vocab_get_text(self.handle, token)
        return text or b""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; empty for control tokens."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._piece(token)
        return found

    def tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Text into ids.

        Args:
            text: any text; NUL bytes are kept.
            parse_special: read `<|im_end|>` and the like as the tokens they name, not as text.
            add_special: add what the vocabulary says belongs around a text, such as BOS.
        """
        self._require_tokenizer()
        data = text.encode()
        size = len(data) + 8
        while True:
            buffer = (ctypes.c_int32 * size)()
            n = self._lib.llama_tokenize(self.handle, data, len(data), buffer, size, add_special, parse_special)
            if n >= 0:
                return list(buffer[:n])
            size = -n

    def _require_tokenizer(self) -> None:
        if self.type == "none":
            raise ModelLoadError(
                f"{self.name} carries no tokenizer, so text cannot become tokens",
                "use a GGUF with tokenizer.ggml.* keys",
            )

    def _piece(self, token: int) -> bytes:
        self._require_tokenizer()
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = self._lib.llama_token_to_piece(self.handle, token, buffer, size, 0, False)
            if n >= 0:
                return buffer.raw[:n]
            size = -n
