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
        limit: longest draft that the target's context and the token limit allow.
        ask_limit: longest draft that can end in a token that is asked for, as a draft model's context allows.
        n_past: tokens in the target's cache.
        n_wanted: tokens still wanted, the ones of this round included.
        n_behind: tokens that must be taken in before one can be asked for; 1 when the draft model kept up.
        offered: guesses that are there already, at most `limit`.
    """

    limit: int
    ask_limit: int
    n_past: int
    n_wanted: int
    n_behind: int
    offered: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A draft to make: so many of the offered tokens, then tokens to ask for, up to a length. Empty is a plain step."""

    n_offered: int = 0
    gamma: int = 0


class Policy(Protocol):
    """Decides the draft length of every round."""

    def begin(self, outlook: Outlook) -> Plan:
        """The longest draft worth making now."""

    def next(self, draft: Sequence[Proposal]) -> int | None:
        """After every token that was asked for: None to go on, or how many of `draft` to send, dropping the rest.

        Sampled tokens that were asked for are sent in any case.
        """

    def observe(self, round_: Round) -> None:
        """What came of the round."""

    @property
    def reason(self) -> str:
        """Why it does not draft at present, for people; empty while it does."""


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """The same length every round, as far as there is room."""

    gamma: int
    reason = ""

    def begin(self, outlook: Outlook) -> Plan:
        """γ, or less at the end of a context or of the answer; what is offered comes first."""
        n_offered = min(self.gamma, len(outlook.offered))
        return Plan(n_offered, max(n_offered, min(self.gamma, outlook.ask_limit)))

    def next(self, draft: Sequence[Proposal]) -> int | None:  # noqa: ARG002
        """Always on: `begin` has set the length."""
        return None

    def observe(self, round_: Round) -> None:
        """Nothing to learn."""
