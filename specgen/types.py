"""The frozen values that cross layers. No behaviour beyond reading themselves; no llama.cpp, no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from specgen.choices import ALL_LAYERS as ALL_LAYERS
from specgen.choices import ANYWHERE as ANYWHERE
from specgen.choices import AcceptRule as AcceptRule
from specgen.choices import DraftType as DraftType
from specgen.choices import Placement as Placement

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
ProbArray = NDArray[np.float64]


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"  # an end-of-generation token, a stop string, or the end of a grammar
    LENGTH = "length"  # the token limit, or the context is full
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """llama.cpp's sampling settings under llama.cpp's names, with its defaults except temperature.

    Temperature 0 is greedy: the most probable token after penalties and bias. A value at its neutral element (top_k 0,
    top_p 1, min_p 0, a penalty of 1 or 0) leaves that sampler out of the chain. A grammar is GBNF text; empty is none.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str = ""
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken, without randomness."""
        return self.temperature <= 0

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the probabilities of later ones."""
        repeats = self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return (repeats and self.repeat_last_n != 0) or self.dry_multiplier > 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities over part of a vocabulary; every id that is not listed has probability zero.

    Attributes:
        ids: (k,) int32 token ids, each at most once.
        probs: (k,) float64, positive or zero, summing to one.
    """

    ids: IntArray
    probs: ProbArray

    def prob(self, token: int) -> float:
        """Probability of `token`, zero where it is not listed."""
        at = np.flatnonzero(self.ids == token)
        return float(self.probs[at[0]]) if at.size else 0.0

    def draw(self, uniform: float) -> int:
        """The token at quantile `uniform` in [0, 1), in the order of `ids`."""
        if self.ids.size == 1:
            return int(self.ids[0])
        cumulative = np.cumsum(self.probs)
        at = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
        return int(self.ids[min(at, self.ids.size - 1)])


_CERTAIN: ProbArray = np.ones(1, dtype=np.float64)


def point_mass(token: int) -> Distribution:
    """The distribution that gives `token` probability one."""
    return Distribution(np.array([token], dtype=np.int32), _CERTAIN)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One drafted token.

    Attributes:
        token: id in the target's vocabulary; the loop drops it, and ends the draft, when it is not.
        source: name of the drafter.
        confidence: the drafter's own probability that the target will agree, 0 to 1.
        distribution: what `token` was sampled from, or None for a point mass (a greedy draft, a lookup).
    """

    token: int
    source: str
    confidence: float = 1.0
    distribution: Distribution | None = None

    @property
    def draft_prob(self) -> float:
        """Probability with which `token` was proposed; one for a point mass."""
        return 1.0 if self.distribution is None else self.distribution.prob(self.token)


@dataclass(frozen=True, slots=True)
class Draft:
    """The drafted tokens that go to verification.

    Attributes:
        proposals: in order.
        n_dropped: tokens that were asked for after these, and dropped by the policy.
        spare: the guess after these that was not sent, if there was one.
    """

    proposals: tuple[Proposal, ...] = ()
    n_dropped: int = 0
    spare: Proposal | None = None

    def __len__(self) -> int:
        return len(self.proposals)

    @property
    def tokens(self) -> list[int]:
        """The drafted ids in order."""
        return [proposal.token for proposal in self.proposals]


@dataclass(frozen=True, slots=True)
class Decision:
    """What verification makes of one position: a drafted token kept, or a token of the target's own."""

    token: int
    is_accepted: bool


class Ending(StrEnum):
    """How the last token of a round came about."""

    RECOVERED = "recovered"  # the target's token in place of a rejected one
    BONUS = "bonus"  # the target's token after a fully accepted draft (or after none)
    CUT = "cut"  # the answer ended inside the accepted run


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token and where it came from: `target`, or the name of the drafter that proposed it."""

    token: int
    source: str


TARGET = "target"


@dataclass(frozen=True, slots=True)
class Round:
    """One draft and one verification, measured. Times are in seconds; a plain step is a round without a draft.

    Attributes:
        n_past: tokens in the target's cache before the round.
        drafted_by: source of each drafted token, in order; its length is the number sent to verification.
        n_dropped: drafted, but dropped by the policy.
        would_have_matched: whether the first guess that was not sent was what the target then decided; None where that
            cannot be told. It lets a policy learn from guesses that it does not verify.
        n_accepted: drafted tokens that the target confirmed, up to where the answer ended.
        ending: how the last token came about.
        target_s, draft_s: inside the models, results fetched.
        draft_prefill_s: catching up on the draft before its first step; not part of draft_s.
        draft_s_by: draft_s per drafter.
    """

    n_past: int
    drafted_by: tuple[str, ...]
    n_dropped: int
    n_accepted: int
    ending: Ending
    target_s: float
    draft_s: float = 0.0
    draft_prefill_s: float = 0.0
    draft_s_by: tuple[tuple[str, float], ...] = ()
    would_have_matched: bool | None = None

    @property
    def n_drafted(self) -> int:
        """Tokens sent to verification."""
        return len(self.drafted_by)

    @property
    def n_tokens(self) -> int:
        """Tokens that the round decided."""
        return self.n_accepted + (self.ending is not Ending.CUT)


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass of the target added to the answer.

    Attributes:
        tokens: generated tokens, without an end-of-generation token.
        text: text that became certain; may be shorter or longer than the tokens', because incomplete characters and
            possible beginnings of stop strings are held back.
        round: the measurement; None for the first step, whose token comes from the prompt's own pass.
        finish_reason: set on the last step.
    """

    tokens: tuple[TokenEvent, ...] = ()
    text: str = ""
    round: Round | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and its limits.

    Attributes:
        prompt: token ids, at least one.
        max_tokens: generated tokens at most, zero or more.
        stop: strings that end the answer and are not part of it.
    """

    prompt: Sequence[int]
    max_tokens: int
    stop: tuple[str, ...] = field(default=())
