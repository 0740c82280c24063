"""The policy that drafts as long as it pays, and not at all where it does not.

Every round takes the draft that is worth most over its whole horizon (`specgen.engine.horizon`), from measured costs
(`cost`) and calibrated acceptance (`acceptance`). Offered guesses cost nothing, so the best prefix of them is taken
whole. A draft model is asked token by token, as long as one more token promises more than its time.

Guarding against being slower: where asking does not pay, the draft model is left alone, and looked at again after a
pause that is long enough for looking to cost a small share of the time, and longer after every look in vain. What
drafting really earned is compared with plain decoding; where it falls behind, estimates are wrong and drafting pauses.

Sources: see `horizon`; the pauses are a back-off as in bandits with switching costs, kept simple.
"""

from __future__ import annotations

from collections.abc import Sequence

from specgen.engine.acceptance import Acceptance
from specgen.engine.horizon import Horizon, best_fixed
from specgen.engine.knowledge import Knowledge
from specgen.engine.policy import Outlook, Plan
from specgen.types import Proposal, Round

MAX_GAMMA = 16

_TRIAL_LENGTH = 6
_TRIAL_SURVIVAL = 0.6
"""A drafter about which nothing is known drafts on while its tokens are this likely to be reached."""
_NEW = 6
"""A drafter with fewer tested tokens is new, and is tried before it is judged."""
_LEAST_GAIN = 0.02
"""What asking must promise beyond a plain step, in plain steps: estimates err."""
_LOOK_SHARE = 0.02
"""Of the time, at most, for looking whether things have changed."""
_FIRST_PAUSE, _MAX_PAUSE = 16, 512
_SECOND_LOOK = 32
"""Tokens after which an answer gets one more look, whatever it costs, where asking usually pays: beginnings are not
typical."""
_MAX_PATIENCE = 4
_FOREVER = 1 << 30
_ANSWERS_UNASKED = 8
"""After so many answers without asking, one begins with a look: costs may have been learned beside another program."""
_SURPRISE = 0.35
"""A match is one where fewer are expected."""
_AT_BEST = 0.95
"""Acceptance that a text could bring; where not even that would pay, nothing is looked at."""
_USUAL_ANSWER = 256
"""Tokens of an answer whose end is not known: token limits are seldom reached."""
_OPTIMISM = 1.0
"""Standard deviations by which acceptance may be better than it seems: what is not known well is worth finding out."""
_MEMORY = 0.98
"""Per round: how much of what was earned before still counts."""
_LEANING = 40.0
"""Tokens at the rate of plain decoding that the rate earned so far starts from."""
_JUDGED_AFTER, _JUDGED_AT_ONCE = 24.0, 6.0
"""Plain steps' worth of drafting before it is judged by what it earned; half as much after every failure."""
_FAILING = 0.97
_PAYING = 1.05
"""Of the speed of plain decoding: drafting stops below the first, and above the second its failures are forgotten."""
_CLEARLY = 3.0
"""A speed-up that no guess of the plain step can explain."""
_PLAIN_DEBT = 20.0
"""Plain steps' worth of gain after which even then a plain step is taken, to measure it."""


class AdaptivePolicy:
    """Chooses the length of every draft. Pure: it sees counts, confidences and times, and no clock.

    Args:
        knowledge: what is known about target and drafters; learned on in place.
        asked: name of the drafter that is asked; None where all only offer.
        max_gamma: longest draft.
    """

    def __init__(self, knowledge: Knowledge, asked: str | None, max_gamma: int = MAX_GAMMA) -> None:
        self._knowledge = knowledge
        self._asked = asked
        self._max_gamma = max_gamma
        self._earned = _Earnings()  # by all rounds, which tells λ
        self._drafting = _Earnings()  # by rounds with a draft, which tells whether drafting pays
        self._pause = 0  # tokens until the draft model may be asked again
        self._stop = 0  # tokens until anything may be drafted again
        self._next_stop = _FIRST_PAUSE
        self._judged_after = _JUDGED_AFTER
        self._patience = 1
        self._pays_usually: bool | None = None
        self._has_had_second_look = False
        self._saved_s = 0.0
        self._reason = ""
        self._is_look_due = knowledge.n_unasked >= _ANSWERS_UNASKED
        knowledge.n_unasked += asked is not None
        for acceptance in knowledge.acceptance.values():
            acceptance.begin()
        self._start_round(Outlook(0, 0, 0, 0, 1))

    def _start_round(self, outlook: Outlook) -> None:
        cost = self._knowledge.cost
        limit = min(outlook.limit, self._max_gamma)
        self._outlook = outlook
        self._verify_s = cost.verify_s(outlook.n_past, limit + 1)
        self._horizon: Horizon | None = None
        self._made: Sequence[Proposal] = ()
        self._spare: Proposal | None = None
        self._is_look = False
        self._expected = self._survival = 1.0
        self._best = (0.0, 0)

    # The protocol.

    def begin(self, outlook: Outlook) -> Plan:
        """The offered tokens that are worth sending, and how far the draft model may go on from them."""
        self._start_round(outlook)
        if not self._verify_s:
            return self._first_plan()
        self._horizon = self._make_horizon()
        if self._stop > 0:
            return Plan()
        n_offered = self._best_offer()
        n_asked = self._ask_up_to(n_offered)
        self._made = outlook.offered[:n_offered]
        if not n_asked:
            self._spare = next(iter(outlook.offered[n_offered:]), None)
        return Plan(n_offered, max(n_offered, n_asked))

    def next(self, draft: Sequence[Proposal]) -> int | None:
        """Draft on while one more token promises more than its time, else send the prefix that is worth most."""
        self._made = draft
        n = len(draft)
        acceptance = self._acceptance_of(draft[-1].source, n - 1)
        self._survival *= acceptance.predict(draft[-1].confidence)
        self._expected += self._survival
        if self._horizon is None:  # nothing is known: see what the draft believes of itself, and verify all
            return None if n < _TRIAL_LENGTH and self._survival > _TRIAL_SURVIVAL else n
        self._best = max(self._best, (self._horizon.worth(self._expected, n), n))
        if self._is_look and acceptance.n_tested >= _NEW:
            return self._best[1]
        if acceptance.n_tested < _NEW and n < _TRIAL_LENGTH and self._survival > _TRIAL_SURVIVAL:
            return None
        if self._horizon.asking(n, self._expected, self._survival, self._best[0]) > self._best[0]:
            return None
        return self._best[1]

    def observe(self, round_: Round) -> None:
        """Learn costs and acceptance, and judge whether drafting pays."""
        made, n_sent = self._made, round_.n_drafted
        spare = made[n_sent] if n_sent < len(made) else self._spare
        self._learn_costs(round_)
        for position, proposal in enumerate(made[: min(n_sent, round_.n_accepted + 1)]):
            self._learn_acceptance(proposal, position, position < round_.n_accepted)
        if round_.would_have_matched is not None and spare is not None:
            self._learn_acceptance(spare, n_sent, round_.would_have_matched)
        if round_.n_accepted and self._outlook.offered[:1] and made[0].source == self._asked:
            passed_over = self._outlook.offered[0]  # it was compared too, as long as the model's token stood
            self._learn_acceptance(passed_over, 0, passed_over.token == made[0].token)

        spent_s = round_.target_s + round_.draft_s
        self._earned.add(round_.n_tokens, spent_s)
        self._pause -= round_.n_tokens
        self._stop -= round_.n_tokens
        if self._horizon is None:
            return
        plain_s = self._verify_s[0]
        self._saved_s += round_.n_tokens * plain_s - spent_s
        if self._is_look:
            self._after_look(round_.n_accepted + bool(round_.would_have_matched) > 0)
        elif made:
            self._drafting.add(round_.n_tokens, spent_s)
            self._judge(plain_s)

    @property
    def reason(self) -> str:
        """Why it does not draft at present."""
        return self._reason if self._pause > 0 or self._stop > 0 else ""

    # Before the round.

    def _first_plan(self) -> Plan:
        """Nothing was measured yet: a draft tells most, a plain step is all there is without a draft model."""
        if self._asked is None:
            return Plan()
        return Plan(0, min(self._outlook.ask_limit, _TRIAL_LENGTH))

    def _make_horizon(self) -> Horizon:
        """The lengths of this round, at the best rate that is known."""
        plain_rate = 1 / self._verify_s[0]
        rates = [plain_rate, self._earned.rate_against(plain_rate)]
        step_s, outlook = 0.0, [0.0]
        ask_limit = 0
        if self._asked is not None:
            step_s = self._knowledge.cost.step_s(self._asked) or 0.0
            outlook = self._acceptance_of(self._asked, 0).outlook()
            if self._pause <= 0 and step_s:
                ask_limit = min(self._outlook.ask_limit, self._max_gamma)
                typical = sum(outlook) / len(outlook)
                rates.append(best_fixed(self._verify_s[: ask_limit + 1], step_s, typical)[0])
        return Horizon(self._verify_s, step_s, outlook, max(rates), ask_limit)

    def _best_offer(self) -> int:
        """How many of the offered tokens are worth most; remembers what they are expected to yield.

        Where the draft model is at work, they must be worth more than what it would make of this round.
        """
        horizon = self._horizon
        assert horizon is not None
        self._best = horizon.worth(1.0, 0), 0
        best = max(self._best[0] + _LEAST_GAIN, horizon.asking(0, 1.0, 1.0, self._best[0]))
        survival = expected = 1.0
        for n, proposal in enumerate(self._outlook.offered[: len(self._verify_s) - 1], start=1):
            survival *= self._acceptance_of(proposal.source, n - 1).predict(proposal.confidence)
            expected += survival
            worth = horizon.worth(expected, n)
            value = max(worth, horizon.asking(n, expected, survival, worth))
            if value > best:
                best, self._best = value, (worth, n)
                self._expected, self._survival = expected, survival
        return self._best[1]

    def _ask_up_to(self, n_offered: int) -> int:
        """The longest draft for which the draft model may be asked after the offered tokens; 0 leaves it alone."""
        horizon, limit = self._horizon, min(self._outlook.ask_limit, self._max_gamma)
        if self._asked is None or horizon is None or self._pause > 0 or limit <= n_offered:
            return 0
        if not horizon.step_s:
            return min(limit, n_offered + _TRIAL_LENGTH)
        if self._must_measure_plain():
            return 0
        hopeful = self._acceptance_of(self._asked, 0).outlook(_OPTIMISM)
        against_plain = Horizon(self._verify_s, horizon.step_s, hopeful, 1 / self._verify_s[0], limit)
        gain = against_plain.gain(n_offered, self._expected, self._survival)
        if self._pays_usually is None:
            self._pays_usually = gain > 0
        if gain > _LEAST_GAIN * (n_offered == 0) and self._is_catching_up_worth_it():
            return limit
        if n_offered:
            return 0
        if self._acceptance_of(self._asked, 0).n_tested < _NEW:
            return 1
        return self._look()

    def _must_measure_plain(self) -> bool:
        """Whether the plain step is only guessed, and the guess could be wrong or drafting has earned a measurement."""
        is_guessed = not self._knowledge.cost.has_plain(self._outlook.n_past)
        speed_up = self._earned.rate * self._verify_s[0]
        return is_guessed and (speed_up < _CLEARLY or self._saved_s > _PLAIN_DEBT * self._verify_s[0])

    def _is_catching_up_worth_it(self) -> bool:
        """Whether what the draft must take in first is paid back by the tokens still wanted."""
        assert self._horizon is not None
        n_behind = self._outlook.n_behind - 1
        n_ahead = min(self._outlook.n_wanted, _USUAL_ANSWER)
        gain_s = n_ahead * (self._verify_s[0] - 1 / self._horizon.rate)
        return n_behind == 0 or gain_s > n_behind * self._catch_up_s()

    # Looking whether things have changed.

    def _look(self) -> int:
        """Asking does not pay as things are: rest, or ask for one token to see whether they have changed."""
        assert self._horizon is not None
        self._reason = self._why_not()
        if self._is_look_due:
            self._is_look_due = False
            self._is_look = True
            return 1
        if self._is_hopeless():
            self._pause = _MAX_PAUSE
        else:
            self._rest()
            self._is_look_due = True
        return 0

    def _why_not(self) -> str:
        """The best that the draft model could do, in numbers."""
        assert self._horizon is not None
        plain_s, step_s, typical = self._verify_s[0], self._horizon.step_s, self._horizon.typical
        return (
            f"no draft length pays: {typical:.0%} of drafted tokens are accepted, "
            f"a draft token costs {step_s / plain_s:.2f} plain steps, verifying one {self._verify_s[1] / plain_s:.2f}"
        )

    def _is_hopeless(self) -> bool:
        """Whether no length would pay even if the draft were nearly always right."""
        assert self._horizon is not None
        return best_fixed(self._verify_s, self._horizon.step_s, _AT_BEST)[1] == 0

    def _rest(self) -> None:
        """Leave the draft model alone for so long that looking again costs a small share of the time.

        A look costs a draft step, and taking in every token decoded meanwhile: where that alone costs more than the
        share, nothing is looked at again in this answer, but once if asking usually pays. Before it was measured, an
        early look measures it.
        """
        assert self._horizon is not None
        if self._knowledge.cost.catch_up_s is None:
            self._pause = _FIRST_PAUSE
            return
        if self._pays_usually and not self._has_had_second_look:
            self._pause = _SECOND_LOOK
            self._has_had_second_look = True
            return
        spare_s = _LOOK_SHARE * self._verify_s[0] - self._catch_up_s()
        pause = max(_FIRST_PAUSE, self._horizon.step_s / spare_s) if spare_s > 0 else _FOREVER
        self._pause = int(min(_FOREVER, max(pause, min(_MAX_PAUSE, pause * self._patience))))
        self._patience = min(2 * self._patience, _MAX_PATIENCE)

    def _catch_up_s(self) -> float:
        """Seconds per token that the draft takes in before it drafts."""
        cost = self._knowledge.cost
        if cost.catch_up_s is not None or self._horizon is None:
            return cost.catch_up_s or 0.0
        narrow, wide = self._verify_s[0], self._verify_s[-1]
        return self._horizon.step_s * max(0.0, wide / narrow - 1) / len(self._verify_s)

    def _after_look(self, has_matched: bool) -> None:
        """A surprise deserves a second look at once."""
        assert self._horizon is not None
        if has_matched and self._horizon.typical < _SURPRISE:
            self._is_look_due = True
            self._patience = 1

    def _judge(self, plain_s: float) -> None:
        """Stop drafting where it earned less than plain decoding does."""
        if self._drafting.seconds < self._judged_after * plain_s:
            return
        gain = self._drafting.rate * plain_s
        if gain < _FAILING:
            self._reason = f"drafting ran at {gain:.2f} of the speed of plain decoding"
            self._stop = self._next_stop
            self._next_stop = min(2 * self._next_stop, _MAX_PAUSE)
            self._judged_after = max(self._judged_after / 2, _JUDGED_AT_ONCE)
            self._drafting = _Earnings()
        elif gain > _PAYING:
            self._patience = 1
            self._next_stop = _FIRST_PAUSE
            self._judged_after = _JUDGED_AFTER

    # After the round.

    def _learn_costs(self, round_: Round) -> None:
        cost = self._knowledge.cost
        cost.add_verify(round_.n_past, round_.n_drafted + 1, round_.target_s)
        if self._asked is None:
            return
        n_asked = sum(proposal.source == self._asked for proposal in self._made)
        seconds = dict(round_.draft_s_by).get(self._asked, 0.0)
        if not n_asked or not seconds:
            return
        self._knowledge.n_unasked = 0
        n_behind = self._outlook.n_behind - 1 + len(self._made) - n_asked
        if round_.draft_prefill_s:
            cost.add_catch_up(round_.draft_prefill_s / max(1, n_behind))
        step_s, known_s = seconds / n_asked, cost.step_s(self._asked)
        has_caught_up = n_behind > 1 and not round_.draft_prefill_s  # in its first pass, which took longer than a step
        if not has_caught_up or known_s is None or step_s < known_s:
            cost.add_step(self._asked, step_s)

    def _acceptance_of(self, source: str, position: int) -> Acceptance:
        """What is known of a drafter's token at a position.

        Where a text went on differently, what is looked up often fails with its first token; once that stood, the rest
        mostly stands too. So these are two things to learn, and the first is doubted while it is new.
        """
        if source == self._asked or position:
            return self._knowledge.acceptance.setdefault(source, Acceptance())
        return self._knowledge.acceptance.setdefault(f"{source}, first token", Acceptance.doubtful())

    def _learn_acceptance(self, proposal: Proposal, position: int, is_accepted: bool) -> None:
        self._acceptance_of(proposal.source, position).observe([proposal.confidence], int(is_accepted))


class _Earnings:
    """Tokens and the time they took, forgetting slowly."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self.seconds = 0.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """One round."""
        self.tokens = _MEMORY * self.tokens + n_tokens
        self.seconds = _MEMORY * self.seconds + seconds

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def rate_against(self, rate: float) -> float:
        """Tokens per second, leaning on `rate` while little was earned: one lucky round tells nothing."""
        return (self.tokens + _LEANING) / (self.seconds + _LEANING / rate)
