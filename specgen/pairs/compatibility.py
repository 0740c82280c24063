"""Whether a draft's token ids mean what the target's mean.

One pure function over two descriptions, so that every command that asks gets the same answer with the same reason.

Source: the rule of llama.cpp's draft check (equal type, equal effective BOS and EOS, sizes at most 128 apart, equal
token texts), which says its reasons at debug level only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MAX_PADDING = 128
"""Vocabularies are padded to round sizes; Qwen2.5's differ by exactly this."""
N_TOLERATED = 5
"""llama.cpp does not compare the first ids: control tokens that families name differently."""


class VocabularyInfo(Protocol):
    """What the comparison reads."""

    @property
    def name(self) -> str:
        """What to call the model."""

    @property
    def type(self) -> str:
        """Tokenizer type, such as bpe or spm."""

    @property
    def n_tokens(self) -> int:
        """Number of ids."""

    @property
    def bos_id(self) -> int:
        """Beginning of text, -1 without one."""

    @property
    def eos_id(self) -> int:
        """End of text, -1 without one."""

    @property
    def adds_bos(self) -> bool:
        """Whether a text is given BOS."""

    @property
    def adds_eos(self) -> bool:
        """Whether a text is given EOS."""

    def token_text(self, token: int) -> bytes:
        """A token as the vocabulary spells it."""


class Match(StrEnum):
    """The verdict on a pair."""

    MATCHES = "matches"
    WITH_NOTES = "matches with notes"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The verdict, the first reason to refuse, and what was tolerated."""

    match: Match
    reason: str = ""
    notes: tuple[str, ...] = ()


def compare(target: VocabularyInfo, draft: VocabularyInfo) -> Compatibility:
    """Whether `draft` can propose tokens to `target`, with the first real difference if not."""
    reason = _first_difference(target, draft)
    if reason:
        return Compatibility(Match.REFUSED, reason)
    notes = []
    if target.n_tokens != draft.n_tokens:
        notes.append(f"padded tails differ: {target.n_tokens:,} and {draft.n_tokens:,} tokens")
    for token in range(min(N_TOLERATED, target.n_tokens, draft.n_tokens)):
        if target.token_text(token) != draft.token_text(token):
            notes.append(_difference(target, draft, token))
    return Compatibility(Match.WITH_NOTES if notes else Match.MATCHES, notes=tuple(notes))


def _first_difference(target: VocabularyInfo, draft: VocabularyInfo) -> str:
    """The first reason to refuse, or nothing."""
    if target.type != draft.type:
        return f"tokenizer types differ: {target.type} and {draft.type}"
    if abs(target.n_tokens - draft.n_tokens) > MAX_PADDING:
        sizes = f"vocabulary sizes differ by more than padding: {target.n_tokens:,} and {draft.n_tokens:,} tokens"
        token = _first_different_token(target, draft)
        return sizes if token is None else f"{sizes}; {_difference(target, draft, token)}"
    for word, target_adds, draft_adds, target_id, draft_id in (
        ("BOS", target.adds_bos, draft.adds_bos, target.bos_id, draft.bos_id),
        ("EOS", target.adds_eos, draft.adds_eos, target.eos_id, draft.eos_id),
    ):
        if target_adds != draft_adds:
            adds, does_not = (target, draft) if target_adds else (draft, target)
            return f"{adds.name} begins or ends texts with {word}, {does_not.name} does not"
        if target_adds and target_id != draft_id:
            return f"{word} is token {target_id} and token {draft_id}"
    token = _first_different_token(target, draft)
    return "" if token is None else _difference(target, draft, token)


def _first_different_token(target: VocabularyInfo, draft: VocabularyInfo) -> int | None:
    for token in range(N_TOLERATED, min(target.n_tokens, draft.n_tokens)):
        if target.token_text(token) != draft.token_text(token):
            return token
    return None


def _difference(target: VocabularyInfo, draft: VocabularyInfo, token: int) -> str:
    texts = (text.decode("utf-8", "replace") for text in (target.token_text(token), draft.token_text(token)))
    return "token {} is {!r} and {!r}".format(token, *texts)
