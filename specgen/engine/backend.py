"""The seam to a model: what the loop needs from one sequence in one context.

Owns the protocols and the plain data that describe a model. `specgen.llama` implements them over llama.cpp,
`specgen.engine.fake` with a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from specgen.types import FloatArray


class MemoryKind(StrEnum):
    """What a model remembers, and therefore what can be taken back."""

    FULL = "full"
    SLIDING_WINDOW = "sliding window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do.

    Attributes:
        rollback_limit: tokens that can be taken back after one pass; None means any number, 0 none.
        max_rows: rows of logits that one pass can return.
        max_batch: tokens that one pass can take.
        devices: where the weights are, for people.
        memory: what kind of memory the model has.
    """

    rollback_limit: int | None
    max_rows: int
    max_batch: int
    devices: tuple[str, ...] = ("CPU",)
    memory: MemoryKind = MemoryKind.FULL

    @property
    def can_verify(self) -> bool:
        """Whether rejected tokens can be taken back, which verification needs."""
        return self.rollback_limit is None or self.rollback_limit > 0


class Vocabulary(Protocol):
    """What the loop and the text layer need to know about token ids."""

    @property
    def n_tokens(self) -> int:
        """Number of ids; valid ids are 0 to n_tokens - 1."""

    @property
    def eog_ids(self) -> frozenset[int]:
        """Ids that end an answer."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; empty for control tokens."""


class Backend(Protocol):
    """One model, one context, one sequence, explicit positions."""

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""

    @property
    def n_ctx(self) -> int:
        """Tokens that the cache can hold."""

    @property
    def n_past(self) -> int:
        """Tokens whose keys and values are in the cache."""

    @property
    def busy_s(self) -> float:
        """Seconds spent inside the model since it was made, results fetched."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's token ids."""

    def eval(self, tokens: Sequence[int], n_rows: int, pad_to: int = 1) -> FloatArray:
        """Decode `tokens` at positions n_past, n_past + 1, ... in one pass.

        Args:
            tokens: 1 to capabilities.max_batch ids.
            n_rows: how many rows of logits to return, for the last tokens; 0 to capabilities.max_rows.
            pad_to: widen the pass with rows of no meaning to a multiple of this, and take them back.

        Returns:
            (n_rows, n_vocab) float32 logits: a view into the backend's memory, valid until the next call, writable.

        Raises:
            BackendError: the model failed. The cache then holds what it held before.
        """

    def rollback(self, n_past: int) -> None:
        """Forget the tokens from position `n_past` on. A no-op when there are none.

        Raises:
            BackendError: the memory cannot take them back.
        """
