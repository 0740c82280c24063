"""The policy that drafts as long as it pays, and not at all where it does not.

Every round maximises expected tokens - λ · time over the whole horizon, where λ is the rate in tokens per second that
can be had: then time is worth exactly what it could earn elsewhere (the average-reward criterion of renewal theory).
Expected tokens come from calibrated acceptance, time from measured passes, width by width, so a draft may stop before a
cliff in v(n) and go on to a dip behind it. The next token alone never decides: v jumps from one row to two and is flat
after that.

Guarding against being slower: while drafting, what was really earned is compared with plain decoding; where it falls
behind, drafting stops, and is tried again after a pause that doubles with every try that fails. If no length could pay
even with every token accepted, nothing is tried.

Sources: Leviathan et al. 2023, arXiv:2211.17192 (expected tokens, here with a measured v instead of v = 1); SpecDec++,
arXiv:2405.19715 (the best rule stops at a threshold on predicted rejection).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specgen.engine.acceptance import Acceptance
from specgen.engine.cost import CostTable
from specgen.engine.policy import Outlook, Plan
from specgen.types import Proposal, Round

MAX_GAMMA = 16

_FIRST_DRAFT = 4
_NEW = 6
"""A drafter with fewer tested tokens is new, and is tried before it is judged."""
_WELL_KNOWN = 24
_FIRST_PAUSE = 16
_MAX_PAUSE = 512
_MAX_PATIENCE = 4
_FOREVER = 1 << 30
_PROBE_SHARE = 0.02
"""Of the time, at most, for looking whether things have changed."""
_SURPRISE = 0.35
_MEMORY = 0.97
"""Per round: how much of what was earned before still counts."""
_JUDGED_AFTER = 40.0
"""Plain steps' worth of drafting before it is judged by what it earned."""
_LEAST_GAIN = 1.03
"""What drafting must promise, relative to plain decoding, to be tried: estimates err."""
_CATCH_UP_GUESS = 0.3
"""Before the first: catching up on a token, in draft steps."""


@dataclass
class Knowledge:
    """What is learned about a pair, and worth keeping between answers and runs.

    Attributes:
        cost: measured times.
        acceptance: by drafter.
    """

    cost: CostTable = field(default_factory=CostTable)
    acceptance: dict[str, Acceptance] = field(default_factory=dict)

    def of(self, drafter: str) -> Acceptance:
        """The acceptance of a drafter, new where nothing is known."""
        return self.acceptance.setdefault(drafter, Acceptance())

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads."""
        return {
            "cost": self.cost.as_data(),
            "acceptance": {name: acceptance.as_data() for name, acceptance in self.acceptance.items()},
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Knowledge:
        """What was learned before."""
        acceptance = {name: Acceptance.from_data(kept) for name, kept in data["acceptance"].items()}
        return cls(CostTable.from_data(data["cost"]), acceptance)


class AdaptivePolicy:
    """Chooses the length of every draft. Pure: it sees counts, confidences and times, and no clock.

    Args:
        knowledge: what is known about the pair; learned on in place.
        drafter: name of the drafter that the proposals come from.
        max_gamma: longest draft.
    """

    def __init__(self, knowledge: Knowledge, drafter: str, max_gamma: int = MAX_GAMMA) -> None:
        self._knowledge = knowledge
        self._drafter = drafter
        self._max_gamma = max_gamma
        self._patience = 1
        self._until_probe = 0
        self._has_rested = False
        self._is_failing = False
        self._earned_tokens = 0.0
        self._earned_s = 0.0
        self._start_round(Outlook(0, 0, 0, 0, 1), 0, [])

    def _start_round(self, outlook: Outlook, limit: int, verify_s: list[float]) -> None:
        self._outlook = outlook
        self._limit = limit
        self._verify_s = verify_s  # of a pass with m drafted tokens, that is m + 1 rows
        self._is_probing = False
        self._worth = 0.0  # λ, tokens per second
        self._made: Sequence[Proposal] = ()
        self._survival = 1.0
        self._expected = 1.0
        self._best = (0.0, 0)

    # The protocol.

    def begin(self, outlook: Outlook) -> Plan:
        """The longest draft worth making, 0 for a plain step."""
        return Plan(0, self._begin(outlook))

    def _begin(self, outlook: Outlook) -> int:
        cost = self._knowledge.cost
        limit = min(outlook.ask_limit, self._max_gamma)
        known = [cost.verify_s(outlook.n_past, m + 1) for m in range(limit + 1)]
        self._start_round(outlook, limit, [seconds for seconds in known if seconds is not None])
        if limit < 1:
            return 0
        step_s = cost.step_s(self._drafter)
        if step_s is None:
            return self._probe(_FIRST_DRAFT)
        if not cost.has_plain(outlook.n_past):
            return 0
        acceptance = self._knowledge.of(self._drafter)
        rates = self._rates(acceptance.typical, step_s)
        if self._until_probe > 0 and self._is_failing:
            return 0
        if max(rates) <= _LEAST_GAIN * rates[0]:
            return self._look(acceptance, step_s)
        if not self._is_catching_up_worth_it(max(rates), step_s):
            return 0
        earned = self._earned_tokens / self._earned_s if self._is_judged() else 0.0
        self._worth = max(max(rates), earned)
        self._best = (1.0 - self._worth * self._verify_s[0], 0)
        return limit

    def next(self, draft: Sequence[Proposal]) -> int | None:
        """Draft on while a longer draft promises more, else send the prefix that promises most."""
        self._made = draft
        if self._is_probing and self._limit > 1:
            return len(draft) if len(draft) >= self._limit else None
        acceptance = self._knowledge.of(draft[-1].source)
        self._survival *= acceptance.predict(draft[-1].confidence)
        self._expected += self._survival
        n = len(draft)
        self._best = max(self._best, (self._expected - self._worth * self._verify_s[n], n))
        if n < self._limit and self._promise(acceptance.typical, n) > self._best[0]:
            return None
        return self._best[1]

    def observe(self, round_: Round) -> None:
        """Learn costs and acceptance, and judge whether drafting pays."""
        cost = self._knowledge.cost
        cost.add_verify(round_.n_past, round_.n_drafted + 1, round_.target_s)
        made = Counter(proposal.source for proposal in self._made)
        for source, seconds in round_.draft_s_by:
            if made[source]:
                cost.add_step(source, seconds / made[source])
        if round_.draft_prefill_s:
            cost.catch_up.add(round_.draft_prefill_s / max(1, self._outlook.n_behind))
        sent = self._made[: round_.n_drafted]
        for source in dict.fromkeys(proposal.source for proposal in sent):
            self._learn_acceptance(source, sent, round_.n_accepted)
        if round_.would_have_matched is not None:
            dropped = self._made[round_.n_drafted]
            self._knowledge.of(dropped.source).observe([dropped.confidence], int(round_.would_have_matched))
        if self._made:
            self._judge(round_)
        else:
            self._until_probe -= round_.n_tokens

    # What a length is worth.

    def _rates(self, acceptance: float, step_s: float) -> list[float]:
        """Tokens per second of every draft length, each token accepted with the same probability."""
        rates = []
        survival = expected = 1.0
        for m, verify_s in enumerate(self._verify_s):
            rates.append(expected / (m * step_s + verify_s))
            survival *= acceptance
            expected += survival
        return rates

    def _promise(self, acceptance: float, n: int) -> float:
        """The most that drafting on after `n` tokens promises."""
        step_s = self._knowledge.cost.step_s(self._made[-1].source) or self._knowledge.cost.step_s(self._drafter) or 0.0
        best = float("-inf")
        survival, expected = self._survival, self._expected
        for m in range(n + 1, self._limit + 1):
            survival *= acceptance
            expected += survival
            best = max(best, expected - self._worth * (self._verify_s[m] + (m - n) * step_s))
        return best

    def _is_catching_up_worth_it(self, rate: float, step_s: float) -> bool:
        """Whether what the draft must take in first is paid back by the tokens still wanted."""
        n_behind = self._outlook.n_behind - 1
        gain_s = self._outlook.n_wanted * (self._verify_s[0] - 1 / rate)
        return gain_s > n_behind * self._catch_up_s(step_s)

    def _catch_up_s(self, step_s: float) -> float:
        """Seconds per token that the draft takes in before it drafts."""
        return self._knowledge.cost.catch_up.value or _CATCH_UP_GUESS * step_s

    # Whether it pays.

    def _look(self, acceptance: Acceptance, step_s: float) -> int:
        """Drafting does not pay as things are: now and then see whether they changed, if a change could matter."""
        if self._until_probe > 0:
            return 0
        if acceptance.n_seen >= _NEW and not self._has_rested:
            return self._rest()
        hopeful = self._rates((1.0 + acceptance.typical) / 2, step_s)
        if max(hopeful) <= hopeful[0]:
            self._until_probe = _MAX_PAUSE
            return 0
        return self._probe(1)

    def _probe(self, n: int) -> int:
        """Draft without asking whether it pays, to learn; a single token is verified only if that pays, and else
        compared with what the target decides.
        """
        self._is_probing = True
        self._limit = min(self._limit, n)
        self._worth = 1 / self._verify_s[0] if self._verify_s else 0.0
        self._best = (0.0, 0)
        return self._limit

    def _rest(self) -> int:
        """Decode plainly for so long that looking again costs a small share of the time; longer after every failure.

        A look costs a draft step, and taking in every token decoded meanwhile: where that alone costs more than the
        share, nothing is looked at again in this answer, except once for a drafter that is hardly known.
        """
        plain_s = self._verify_s[0]
        step_s = self._knowledge.cost.step_s(self._drafter) or 0.0
        spare_s = _PROBE_SHARE * plain_s - self._catch_up_s(step_s)
        affordable = step_s / spare_s if spare_s > 0 else _FOREVER
        pause = max(_FIRST_PAUSE, affordable) * self._patience
        if spare_s > 0:
            self._until_probe = int(min(_MAX_PAUSE, pause))
        else:
            is_known = self._knowledge.of(self._drafter).n_seen >= _WELL_KNOWN or self._has_rested
            self._until_probe = _FOREVER if is_known else 2 * _FIRST_PAUSE
        self._patience = min(2 * self._patience, _MAX_PATIENCE)
        self._has_rested = True
        self._earned_tokens = self._earned_s = 0.0
        return 0

    def _is_judged(self) -> bool:
        return self._earned_s > _JUDGED_AFTER * self._verify_s[0]

    def _judge(self, round_: Round) -> None:
        plain_s = self._verify_s[0] if self._verify_s else round_.target_s
        if self._is_probing:
            self._is_failing = False
            self._after_probe(round_.n_accepted + bool(round_.would_have_matched) > 0)
            return
        self._earned_tokens = _MEMORY * self._earned_tokens + round_.n_tokens
        self._earned_s = _MEMORY * self._earned_s + round_.target_s + round_.draft_s
        if self._earned_s < _JUDGED_AFTER * plain_s:
            return
        gain = self._earned_tokens / self._earned_s * plain_s
        if gain < 0.97:
            self._is_failing = True
            self._rest()
        elif gain > 1.05:
            self._patience = 1

    def _after_probe(self, is_accepted: bool) -> None:
        """A surprise deserves a second look at once; anything else a rest, unless the drafter is new."""
        acceptance = self._knowledge.of(self._drafter)
        if is_accepted and acceptance.typical < _SURPRISE:
            self._patience = 1
        elif acceptance.n_seen >= _NEW:
            self._rest()

    def _learn_acceptance(self, source: str, sent: Sequence[Proposal], n_accepted: int) -> None:
        """Hand one drafter its part of the draft: its tokens up to the first rejection."""
        tested = sent[: n_accepted + 1]
        confidences = [proposal.confidence for proposal in tested if proposal.source == source]
        n_own = sum(proposal.source == source for proposal in sent[:n_accepted])
        self._knowledge.of(source).observe(confidences, n_own)
