"""How long to draft. The loop asks before a round and after every drafted token.

A policy sees counts, confidences and times; it knows no tokens, no models and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specgen.types import Proposal, Round


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a round could do.

    Attributes:
        limit: longest draft that both contexts and the token limit allow.
        n_past: tokens in the target's cache.
        n_wanted: tokens still wanted, the ones of this round included.
        n_behind: tokens that the drafter must take in before it can propose the next one; 1 when it kept up.
    """

    limit: int
    n_past: int
    n_wanted: int
    n_behind: int


class Policy(Protocol):
    """Decides the draft length of every round."""

    def begin(self, outlook: Outlook) -> int:
        """The longest draft worth making now; 0 is a plain step and leaves the drafter alone."""

    def next(self, draft: Sequence[Proposal]) -> int | None:
        """Asked after every drafted token: None to draft on, or how many of `draft` to send, dropping the rest."""

    def observe(self, round_: Round) -> None:
        """What came of the round."""


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """The same length every round, as far as there is room."""

    gamma: int

    def begin(self, outlook: Outlook) -> int:
        """γ, or less at the end of a context or of the answer."""
        return min(self.gamma, outlook.limit)

    def next(self, draft: Sequence[Proposal]) -> int | None:  # noqa: ARG002
        """Always on: `begin` has set the length."""
        return None

    def observe(self, round_: Round) -> None:
        """Nothing to learn."""
