"""Every statistic of an answer, defined once.

| number | formula |
|---|---|
| draft_acceptance_rate | accepted / drafted |
| alpha_hat | accepted / (accepted + recovered): only tokens that were tested |
| mean_accepted_length | tokens of all rounds / rounds |
| decode_tok_s | (n_generated - 1) / decode_s: the first token belongs to the prefill |
| overhead_s | decode_s - target_s - draft_s - draft_prefill_s |
| speedup_estimated | decode_tok_s · seconds of a plain step, as measured |
| speedup_predicted | arXiv:2211.17192's formula at alpha_hat and the mean draft length, with measured costs |

Counts stand beside every ratio, and a ratio without a denominator is None. A drafted end-of-generation token counts as
drafted and accepted but not as generated, so: tokens of all rounds + 1 = n_generated, + 1 if such a token ended it all.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from specgen.engine.cost import CostTable
from specgen.types import Ending, FinishReason, Round, Step


def ratio(numerator: float, denominator: float) -> float | None:
    """A ratio, or None where it means nothing."""
    return numerator / denominator if denominator > 0 else None


@dataclass(frozen=True, slots=True)
class PositionStats:
    """How often the draft's token at one position was sent to verification, and accepted."""

    n_drafted: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """One drafter's share; draft_s is time inside it, catching up excluded."""

    n_drafted: int
    n_accepted: int
    draft_s: float


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of one answer; times in seconds. The module docstring has the formulas.

    accept_histogram[n] counts rounds in which n drafted tokens were accepted; accept_by_position[i] belongs to the
    draft's token number i + 1. ttft_s runs from the start of the prompt's first pass, model load excluded.
    """

    n_prompt: int
    n_generated: int
    n_rounds: int
    n_drafted: int
    n_accepted: int
    n_recovered: int
    n_bonus: int
    n_dropped: int
    load_s: float
    calibration_s: float
    prefill_s: float
    ttft_s: float | None
    draft_prefill_s: float
    decode_s: float
    decode_tok_s: float | None
    target_s: float
    draft_s: float
    overhead_s: float
    draft_acceptance_rate: float | None
    alpha_hat: float | None
    mean_accepted_length: float | None
    accept_histogram: list[int]
    accept_by_position: list[PositionStats]
    speedup_estimated: float | None
    speedup_predicted: float | None
    by_drafter: dict[str, DrafterStats]


class Metrics:
    """Gathers the steps of one answer as they happen.

    Args:
        n_prompt: tokens of the prompt.
        prefill_s: asked once, at the first step, for the seconds inside the target so far.
        load_s: seconds that loading the models took.
        clock: seconds; the same clock as the engine's.
        cost: what passes cost, for the two speed-ups; without it they are None.
    """

    def __init__(
        self,
        n_prompt: int,
        prefill_s: Callable[[], float] = lambda: 0.0,
        load_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        cost: CostTable | None = None,
    ) -> None:
        self.rounds: list[Round] = []
        self.token_ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        self._n_prompt = n_prompt
        self._ask_prefill_s = prefill_s
        self._prefill_s = 0.0
        self._load_s = load_s
        self._clock = clock
        self._cost = cost
        self._start = clock()
        self._first: float | None = None
        self._last = self._start

    def add(self, step: Step) -> None:
        """Count one step; call it as soon as the step is there."""
        self._last = self._clock()
        if self._first is None:
            self._first = self._last
            self._prefill_s = self._ask_prefill_s()
        if step.round is not None:
            self.rounds.append(step.round)
        self.token_ids.extend(event.token for event in step.tokens)
        self.text += step.text
        self.finish_reason = step.finish_reason

    def stats(self) -> Stats:
        """The statistics up to the last step."""
        rounds = self.rounds
        n_drafted = sum(r.n_drafted for r in rounds)
        n_accepted = sum(r.n_accepted for r in rounds)
        n_recovered = sum(r.ending is Ending.RECOVERED for r in rounds)
        target_s = sum(r.target_s for r in rounds)
        draft_s = sum(r.draft_s for r in rounds)
        draft_prefill_s = sum(r.draft_prefill_s for r in rounds)
        decode_s = 0.0 if self._first is None else self._last - self._first
        n_generated = len(self.token_ids)
        decode_tok_s = ratio(n_generated - 1, decode_s) if n_generated > 1 else None
        alpha_hat = ratio(n_accepted, n_accepted + n_recovered)
        return Stats(
            n_prompt=self._n_prompt,
            n_generated=n_generated,
            n_rounds=len(rounds),
            n_drafted=n_drafted,
            n_accepted=n_accepted,
            n_recovered=n_recovered,
            n_bonus=sum(r.ending is Ending.BONUS for r in rounds),
            n_dropped=sum(r.n_dropped for r in rounds),
            load_s=self._load_s,
            calibration_s=0.0,
            prefill_s=self._prefill_s,
            ttft_s=self._first - self._start if self._first is not None and self.token_ids else None,
            draft_prefill_s=draft_prefill_s,
            decode_s=decode_s,
            decode_tok_s=decode_tok_s,
            target_s=target_s,
            draft_s=draft_s,
            overhead_s=decode_s - target_s - draft_s - draft_prefill_s,
            draft_acceptance_rate=ratio(n_accepted, n_drafted),
            alpha_hat=alpha_hat,
            mean_accepted_length=ratio(sum(r.n_tokens for r in rounds), len(rounds)),
            accept_histogram=_histogram(rounds),
            accept_by_position=_by_position(rounds),
            speedup_estimated=_estimated(rounds, decode_tok_s, self._cost),
            speedup_predicted=_predicted(rounds, alpha_hat, self._cost),
            by_drafter=_by_drafter(rounds),
        )


def _estimated(rounds: list[Round], decode_tok_s: float | None, cost: CostTable | None) -> float | None:
    """Speed over that of plain steps, where plain steps were measured."""
    plain_s = _plain_s(rounds, cost)
    return None if plain_s is None or decode_tok_s is None else decode_tok_s * plain_s


def _predicted(rounds: list[Round], alpha_hat: float | None, cost: CostTable | None) -> float | None:
    """The speed-up that the formula gives for drafts of the mean length."""
    plain_s = _plain_s(rounds, cost)
    drafting = [r for r in rounds if r.n_drafted]
    if cost is None or plain_s is None or alpha_hat is None or not drafting:
        return None
    gamma = round(sum(r.n_drafted for r in drafting) / len(drafting))
    curve = cost.verify_s(drafting[-1].n_past, gamma + 1)
    step_s = cost.step_s(drafting[-1].drafted_by[-1])
    if not curve or step_s is None:
        return None
    return sum(alpha_hat**i for i in range(gamma + 1)) * plain_s / (gamma * step_s + curve[gamma])


def _plain_s(rounds: list[Round], cost: CostTable | None) -> float | None:
    if cost is None or not rounds or not cost.has_plain(rounds[-1].n_past):
        return None
    return cost.verify_s(rounds[-1].n_past, 1)[0]


def _histogram(rounds: list[Round]) -> list[int]:
    counts = Counter(r.n_accepted for r in rounds)
    return [counts[n] for n in range(max(counts, default=-1) + 1)]


def _by_position(rounds: list[Round]) -> list[PositionStats]:
    longest = max((r.n_drafted for r in rounds), default=0)
    return [
        PositionStats(sum(r.n_drafted > i for r in rounds), sum(r.n_accepted > i for r in rounds))
        for i in range(longest)
    ]


def _by_drafter(rounds: list[Round]) -> dict[str, DrafterStats]:
    n_drafted: Counter[str] = Counter()
    n_accepted: Counter[str] = Counter()
    draft_s: defaultdict[str, float] = defaultdict(float)
    for r in rounds:
        n_drafted.update(r.drafted_by)
        n_accepted.update(r.drafted_by[: r.n_accepted])
        for name, seconds in r.draft_s_by:
            draft_s[name] += seconds
    return {name: DrafterStats(n_drafted[name], n_accepted[name], draft_s[name]) for name in draft_s}
