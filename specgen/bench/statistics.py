"""Speeds and speed-ups of a comparison, and what is no difference.

| number | formula |
|---|---|
| speed of a category | tokens after the first, of all answers / time after the first, of all answers |
| speed-up of one repeat | that speed / plain decoding's, over prompts that both answered in that repeat |
| speed-up | median of the repeats; the lowest and the highest stand beside it |
| A/A spread | how far plain decoding lies from plain decoding: 19 of 20 ratios of the control, by repeat and category |
| tie | a speed-up no farther from 1 than the A/A spread |

Ratios are taken within a repeat, whose arms ran within the same minute, so that a drifting machine does not enter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specgen.bench.prediction import predicted_speedup, step_ratio, verify_ratios
from specgen.bench.record import Answer, Arm, Report, Role, Rounds
from specgen.engine.metrics import ratio

ALL = "all"
"""The category of every prompt."""

_QUANTILE = 0.95
_LEAST_SPREAD = 0.01
_SPREAD_OF_FEW = 0.05
"""Where the control says little about itself."""
_FEW = 4
_SWITCHED_OFF = 0.1
"""Of the rounds: a pair that drafts in fewer of them leaves the text to the target."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """One arm's speed over another's.

    Attributes:
        median, low, high: of the repeats.
        is_tie: no farther from 1 than two equal arms.
    """

    median: float
    low: float
    high: float
    is_tie: bool


@dataclass(frozen=True, slots=True)
class PositionCount:
    """Drafted tokens at one position of a draft, or drafts of one length: how many, and how many tokens stood."""

    n_drafted: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on one category.

    Attributes:
        n_tokens, seconds: after the first token of every answer.
        tok_s: the first by the second.
        speedup: to plain decoding; None for plain decoding itself, or where there is nothing to compare with.
        predicted: the speed-up that measured costs and acceptance lead one to expect.
        drafting_share: of the rounds that had a draft.
        by_position: the draft's token number i + 1.
        by_length: drafts of length i + 1.
    """

    arm: str
    category: str
    n_answers: int
    n_tokens: int
    seconds: float
    tok_s: float | None
    ttft_s: float | None
    speedup: Speedup | None
    predicted: float | None
    n_rounds: int
    n_drafted: int
    n_accepted: int
    alpha_hat: float | None
    mean_accepted_length: float | None
    drafting_share: float | None
    by_position: tuple[PositionCount, ...]
    by_length: tuple[PositionCount, ...]

    @property
    def is_switched_off(self) -> bool:
        """Whether it hardly drafted."""
        return self.drafting_share is not None and self.drafting_share < _SWITCHED_OFF


class Summary:
    """The numbers of a report.

    Args:
        report: with the answers to count; those of a repeat that lacks arms count as far as they can be compared.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._category_of = {prompt.name: prompt.category for prompt in report.prompts}
        self.n_controls = 0
        self.spread = self._aa_spread()
        self.rows = [self._row(arm, category) for category in [*report.categories, ALL] for arm in report.arms]

    def row(self, arm: Arm, category: str = ALL) -> Row:
        """One arm on one category."""
        return next(row for row in self.rows if (row.arm, row.category) == (arm.name, category))

    def speedup(self, arm: Arm, other: Arm, category: str = ALL) -> Speedup | None:
        """One arm against another; None where they share no prompt."""
        ratios = self._ratios(arm, other, category)
        if not ratios:
            return None
        median = statistics.median(ratios)
        is_tie = abs(math.log(median)) <= math.log1p(self.spread)
        return Speedup(median, min(ratios), max(ratios), is_tie)

    def _aa_spread(self) -> float:
        plain, control = self.report.arms_of(Role.PLAIN), self.report.arms_of(Role.CONTROL)
        ratios = [
            r
            for category in self.report.categories
            if plain and control
            for r in self._ratios(control[0], plain[0], category)
        ]
        self.n_controls = len(ratios)
        apart = [abs(math.log(r)) for r in ratios]
        widest = math.expm1(float(np.quantile(apart, _QUANTILE))) if apart else 0.0
        return max(widest, _LEAST_SPREAD if len(ratios) >= _FEW else _SPREAD_OF_FEW)

    def _answers(self, arm: Arm, category: str) -> list[Answer]:
        return [
            answer
            for answer in self.report.answers
            if answer.arm == arm.name and category in (ALL, self._category_of.get(answer.prompt))
        ]

    def _ratios(self, arm: Arm, other: Arm, category: str) -> list[float]:
        """Speed ratios, one per repeat."""
        ours = {(a.repeat, a.prompt): a for a in self._answers(arm, category)}
        theirs = {(a.repeat, a.prompt): a for a in self._answers(other, category)}
        shared = sorted(ours.keys() & theirs.keys())
        found = []
        for repeat in sorted({repeat for repeat, _ in shared}):
            keys = [key for key in shared if key[0] == repeat]
            our_speed = _speed([ours[key] for key in keys])
            their_speed = _speed([theirs[key] for key in keys])
            if our_speed and their_speed:
                found.append(our_speed / their_speed)
        return found

    def _row(self, arm: Arm, category: str) -> Row:
        answers = self._answers(arm, category)
        rounds = [answer.rounds for answer in answers]
        n_rounds = sum(map(len, rounds))
        n_drafted = sum(sum(r.n_drafted) for r in rounds)
        n_accepted = sum(sum(r.n_accepted) for r in rounds)
        alpha_hat = ratio(n_accepted, n_accepted + sum(a.n_recovered for a in answers))
        plain = self.report.arms_of(Role.PLAIN)[0]
        return Row(
            arm=arm.name,
            category=category,
            n_answers=len(answers),
            n_tokens=sum(a.n_decoded for a in answers),
            seconds=sum(a.decode_s for a in answers),
            tok_s=_speed(answers),
            ttft_s=statistics.median(a.ttft_s for a in answers) if answers else None,
            speedup=None if arm == plain else self.speedup(arm, plain, category),
            predicted=self._predicted(arm, rounds, alpha_hat),
            n_rounds=n_rounds,
            n_drafted=n_drafted,
            n_accepted=n_accepted,
            alpha_hat=alpha_hat,
            mean_accepted_length=ratio(sum(sum(r.n_tokens) for r in rounds), n_rounds),
            drafting_share=ratio(sum(n > 0 for r in rounds for n in r.n_drafted), n_rounds)
            if arm.role in (Role.PAIR, Role.FIXED)
            else None,
            by_position=_by_position(rounds),
            by_length=_by_length(rounds),
        )

    def _predicted(self, arm: Arm, rounds: Sequence[Rounds], alpha: float | None) -> float | None:
        if arm.role not in (Role.PAIR, Role.FIXED) or alpha is None:
            return None
        pair = next(pair for pair in self.report.pairs if pair.name == arm.pair)
        v = verify_ratios(self.report.verify_s)
        n_rounds, n_drafting = sum(map(len, rounds)), sum(n > 0 for r in rounds for n in r.n_drafted)
        if not v or not n_drafting:
            return None
        n_asked = sum(sum(r.n_model) + sum(r.n_dropped) for r in rounds)
        gamma = sum(sum(r.n_drafted) for r in rounds) / n_drafting
        c = step_ratio(self.report, pair) or 0.0
        return predicted_speedup(alpha, gamma, c * n_asked / n_drafting, v, n_drafting / n_rounds)


def _speed(answers: Sequence[Answer]) -> float | None:
    """Total tokens over total time."""
    return ratio(sum(a.n_decoded for a in answers), sum(a.decode_s for a in answers if a.n_decoded)) or None


def _by_position(rounds: Sequence[Rounds]) -> tuple[PositionCount, ...]:
    drafted = [n for r in rounds for n in r.n_drafted]
    accepted = [n for r in rounds for n in r.n_accepted]
    return tuple(
        PositionCount(sum(n > i for n in drafted), sum(n > i for n in accepted)) for i in range(max(drafted, default=0))
    )


def _by_length(rounds: Sequence[Rounds]) -> tuple[PositionCount, ...]:
    both = [(d, a) for r in rounds for d, a in zip(r.n_drafted, r.n_accepted, strict=True)]
    return tuple(
        PositionCount(sum(d for d, _ in both if d == length), sum(a for d, a in both if d == length))
        for length in range(1, max((d for d, _ in both), default=0) + 1)
    )
