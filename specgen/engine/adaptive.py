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
from specgen.engine.cost import CostTable, expected_tokens
from specgen.engine.policy import Outlook
from specgen.types import Proposal, Round

MAX_GAMMA = 16

_FIRST_PAUSE = 16
_MAX_PAUSE = 512
_MEMORY = 0.9
"""Per round: how much of what was earned before still counts."""
_JUDGED_AFTER = 12.0
"""Plain steps' worth of drafting before it is judged by what it earned."""
_LEAST_GAIN = 1.0
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
        self._pause = _FIRST_PAUSE
        self._until_probe = 0
        self._earned_tokens = 0.0
        self._earned_s = 0.0
        self._start_round(Outlook(0, 0, 0, 1), 0, [])

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

    def begin(self, outlook: Outlook) -> int:
        """The longest draft worth making, 0 for a plain step."""
        limit = min(outlook.limit, self._max_gamma, 2 * self._knowledge.cost.widest(outlook.n_past))
        known = [self._knowledge.cost.verify_s(outlook.n_past, m + 1) for m in range(limit + 1)]
        verify_s = [seconds for seconds in known if seconds is not None]
        self._start_round(outlook, limit, verify_s)
        if limit < 1 or not verify_s or self._until_probe > 0:
            return 0
        step_s = self._knowledge.cost.step_s(self._drafter)
        if step_s is None:
            return self._probe()
        typical = self._knowledge.of(self._drafter).typical
        rates = self._rates(typical, step_s)
        if max(self._rates(1.0, step_s)) <= rates[0]:
            self._rest(_MAX_PAUSE)
            return 0
        if max(rates) <= _LEAST_GAIN * rates[0]:
            return self._probe()
        if not self._is_catching_up_worth_it(max(rates), step_s):
            return 0
        earned = self._earned_tokens / self._earned_s if self._is_judged() else 0.0
        self._worth = max(rates[0], max(rates), earned)
        self._best = (1.0 - self._worth * verify_s[0], 0)
        return limit

    def next(self, draft: Sequence[Proposal]) -> int | None:
        """Draft on while a longer draft promises more, else send the prefix that promises most."""
        self._made = draft
        if self._is_probing:
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
        if self._made:
            self._judge(round_)
        else:
            self._until_probe -= round_.n_tokens

    # What a length is worth.

    def _rates(self, acceptance: float, step_s: float) -> list[float]:
        """Tokens per second of every draft length, each token accepted with the same probability."""
        return [
            expected_tokens(acceptance, m) / (m * step_s + self._verify_s[m]) for m in range(len(self._verify_s))
        ]

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
        per_token_s = self._knowledge.cost.catch_up.value or _CATCH_UP_GUESS * step_s
        gain_s = self._outlook.n_wanted * (self._verify_s[0] - 1 / rate)
        return gain_s > n_behind * per_token_s

    # Whether it pays.

    def _probe(self) -> int:
        """Try one token, to learn."""
        self._is_probing = True
        self._limit = 1
        return 1

    def _rest(self, n_tokens: int) -> None:
        self._until_probe = n_tokens
        self._earned_tokens = self._earned_s = 0.0

    def _is_judged(self) -> bool:
        return self._earned_s > _JUDGED_AFTER * self._verify_s[0]

    def _judge(self, round_: Round) -> None:
        plain_s = self._verify_s[0] if self._verify_s else round_.target_s
        if self._is_probing:
            if round_.n_accepted < round_.n_drafted:
                self._rest(self._pause)
                self._pause = min(2 * self._pause, _MAX_PAUSE)
            return
        self._earned_tokens = _MEMORY * self._earned_tokens + round_.n_tokens
        self._earned_s = _MEMORY * self._earned_s + round_.target_s + round_.draft_s
        if self._earned_s < _JUDGED_AFTER * plain_s / 2:
            return
        gain = self._earned_tokens / self._earned_s * plain_s
        if gain < 0.97:
            self._rest(self._pause)
            self._pause = min(2 * self._pause, _MAX_PAUSE)
        elif gain > 1.05:
            self._pause = _FIRST_PAUSE

    def _learn_acceptance(self, source: str, sent: Sequence[Proposal], n_accepted: int) -> None:
        """Hand one drafter its part of the draft: its tokens up to the first rejection."""
        tested = sent[: n_accepted + 1]
        confidences = [proposal.confidence for proposal in tested if proposal.source == source]
        n_own = sum(proposal.source == source for proposal in sent[:n_accepted])
        self._knowledge.of(source).observe(confidences, n_own)
