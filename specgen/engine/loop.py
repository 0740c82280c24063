"""The draft-verify loop: the only hot loop in specgen. Plain decoding is γ = 0 of the same loop.

    prefill -> first token -> [ draft -> verify -> emit -> roll back ] ... -> end

Owns the order of things and the rules that hold between rounds; models, drafters, policies and rules of acceptance are
behind their protocols. One `Engine` serves one prompt after another.

Source: Leviathan et al. 2023, arXiv:2211.17192. That the draft takes in what it lacks in the pass that starts its next
draft, instead of decoding the verified tokens again, is mlx-lm's idea.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np

from specgen.engine.backend import Backend
from specgen.engine.drafter import Drafter
from specgen.engine.policy import FixedPolicy, Outlook, Policy
from specgen.engine.sampling import Sampler
from specgen.engine.text import TextStream
from specgen.engine.verify import Rule, Uniform, verify_by_rejection
from specgen.errors import ContextLengthError, SpecgenError
from specgen.types import (
    TARGET,
    Decision,
    Draft,
    Ending,
    FinishReason,
    FloatArray,
    Proposal,
    Request,
    Round,
    Step,
    TokenEvent,
)

Clock = Callable[[], float]


def _never() -> bool:
    return False


@dataclass
class Engine:
    """A target, and perhaps something that drafts for it.

    Attributes:
        target: decides every token.
        sampler: the target's processed distribution.
        make_uniform: makes the random numbers of one answer; called once per answer, so that a seed means one text.
        drafter: proposes; None is plain decoding.
        policy: how long to draft.
        rule: which proposals stand.
        ignore_eog: treat end-of-generation tokens as ordinary ones (the sampler should ban them).
        is_cancelled: asked between passes; an answer that is cancelled ends with `interrupted`.
        clock: seconds; tests turn their own.
    """

    target: Backend
    sampler: Sampler
    make_uniform: Callable[[], Uniform]
    drafter: Drafter | None = None
    policy: Policy = field(default_factory=lambda: FixedPolicy(0))
    rule: Rule = verify_by_rejection
    ignore_eog: bool = False
    is_cancelled: Callable[[], bool] = _never
    clock: Clock = time.perf_counter

    def generate(self, request: Request) -> Iterator[Step]:
        """Answer one prompt, yielding after every pass of the target.

        The first step carries the token of the prompt's own pass, before any drafter is touched; every later step is a
        round. Closing the iterator early leaves target and drafter ready for the next prompt.

        Raises:
            ContextLengthError: the prompt is longer than the context.
            BackendError: a model failed or cannot take back rejected tokens.
        """
        if len(request.prompt) > self.target.n_ctx:
            raise ContextLengthError(
                f"the prompt has {len(request.prompt):,} tokens, the context holds {self.target.n_ctx:,}",
                f"use --ctx-size {len(request.prompt) + request.max_tokens} or a shorter prompt",
            )
        return self._steps(request)

    def _steps(self, request: Request) -> Iterator[Step]:
        answer = _Answer(self, request)
        try:
            if request.max_tokens == 0:
                yield Step(finish_reason=FinishReason.LENGTH)
                return
            logits = self._prefill(request.prompt)
            if logits is None:
                yield Step(finish_reason=FinishReason.INTERRUPTED)
                return
            yield answer.first_step(logits)
            while answer.finish_reason is None:
                yield self._round(answer)
        finally:
            self._forget(answer.n_cached)

    def _prefill(self, prompt: Sequence[int]) -> FloatArray | None:
        """Take in the prompt, in passes short enough for Ctrl-C; the last row of logits, or None when cancelled."""
        self._forget(0)
        self.sampler.reset(prompt)
        if self.drafter:
            self.drafter.begin(prompt)
        n_pass = self.target.capabilities.max_batch
        for start in range(0, len(prompt), n_pass):
            if self.is_cancelled():
                return None
            chunk = prompt[start : start + n_pass]
            rows = self.target.eval(chunk, n_rows=int(start + n_pass >= len(prompt)))
        last: FloatArray = rows[-1]
        return last

    def _round(self, answer: _Answer) -> Step:
        """Draft, verify in one pass, emit what stands, forget the rest."""
        if self.is_cancelled():
            return answer.end(FinishReason.INTERRUPTED)
        n_room = self.target.n_ctx - self.target.n_past
        if n_room < 1:
            return answer.end(FinishReason.LENGTH)

        before = _Times.of(self)
        draft = self._draft(answer, n_room)
        n_past = self.target.n_past
        logits = self.target.eval([answer.history[-1], *draft.tokens], n_rows=len(draft) + 1)

        if len(logits) != len(draft) + 1:  # each row decides a token, so a round always makes progress
            raise SpecgenError(f"{len(logits)} rows for a draft of {len(draft)}", "this is a bug in specgen: report it")
        events, text, n_accepted = answer.emit_verified(logits, draft)
        self._forget(answer.n_cached)

        round_ = _Times.of(self).since(before, n_past, draft, n_accepted, answer.ending)
        round_ = replace(round_, would_have_matched=_would_have_matched(draft, answer))
        self.policy.observe(round_)
        if answer.finish_reason is not None:
            text += answer.text.finish()
        return Step(events, text, round_, answer.finish_reason)

    def _draft(self, answer: _Answer, n_room: int) -> Draft:
        """As many proposals as policy, contexts and token limit allow; perhaps none."""
        if self.drafter is None:
            return Draft()
        n_history = len(answer.history)
        capabilities = self.target.capabilities
        limits = [n_room, answer.n_wanted, capabilities.max_rows]
        if capabilities.rollback_limit is not None:
            limits.append(capabilities.rollback_limit + 1)
        limit = max(0, min(limits) - 1)
        offered = tuple(self._known(self.drafter.offer(answer.history, limit))) if limit else ()
        ask_limit = min(limit, self.drafter.limit(n_history))
        n_behind = self.drafter.n_behind(n_history)
        plan = self.policy.begin(Outlook(limit, ask_limit, self.target.n_past, answer.n_wanted, n_behind, offered))

        made = list(offered[: plan.n_offered])
        if len(made) >= min(plan.gamma, ask_limit):
            return Draft(tuple(made), spare=next(iter(offered[len(made) :]), None))
        for proposal in self._known(self.drafter.propose(answer.history, made)):
            made.append(proposal)
            n_kept = self.policy.next(made)
            if n_kept is not None:
                n_kept = max(n_kept, _n_undroppable(made))
                return Draft(tuple(made[:n_kept]), len(made) - n_kept, next(iter(made[n_kept:]), None))
            if len(made) >= min(plan.gamma, ask_limit):
                break
        return Draft(tuple(made))

    def _known(self, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
        """Up to the first token outside the target's vocabulary, which ends a draft."""
        return takewhile(lambda proposal: 0 <= proposal.token < self.target.n_vocab, proposals)

    def _forget(self, n_valid: int) -> None:
        """Keep the first `n_valid` tokens in the caches of target and drafter."""
        self.target.rollback(min(n_valid, self.target.n_past))
        if self.drafter:
            self.drafter.commit(n_valid)


class _Answer:
    """The tokens and the text of one answer, and whether it has ended."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self.history = list(request.prompt)
        self.text = TextStream(engine.target.vocabulary, request.stop)
        self.finish_reason: FinishReason | None = None
        self.ending = Ending.BONUS
        self._engine = engine
        self._eog_ids = frozenset[int]() if engine.ignore_eog else engine.target.vocabulary.eog_ids
        self._uniform = engine.make_uniform()
        self._n_end = len(request.prompt) + request.max_tokens
        self._has_pending = False

    @property
    def n_wanted(self) -> int:
        """Tokens until the token limit."""
        return self._n_end - len(self.history)

    @property
    def n_cached(self) -> int:
        """Tokens that belong in a cache: all but the pending one, as if tokens had come one at a time."""
        return len(self.history) - self._has_pending

    def first_step(self, logits: FloatArray) -> Step:
        """The token that the prompt's own pass gives."""
        if self._engine.sampler.is_finished():
            return self.end(FinishReason.STOP)
        (decision,) = self._decide(logits[np.newaxis], Draft())
        event, text = self._emit(decision, TARGET)
        if self.finish_reason is not None:
            text += self.text.finish()
        return Step((event,) if event else (), text, None, self.finish_reason)

    def emit_verified(self, logits: FloatArray, draft: Draft) -> tuple[tuple[TokenEvent, ...], str, int]:
        """Decide position after position until a rejection, the draft's end, or the answer's.

        Args:
            logits: (n_drafted + 1, n_vocab); row i predicts the token after draft.tokens[:i].

        Returns:
            The emitted tokens, their text, and how many drafted tokens were accepted.
        """
        events: list[TokenEvent] = []
        text = ""
        n_accepted = 0
        # The next decision is asked for when this one is emitted: until then the sampler has not seen it.
        for decision, proposal in zip(self._decide(logits, draft), [*draft.proposals, None], strict=False):
            source = proposal.source if decision.is_accepted and proposal else TARGET
            n_accepted += decision.is_accepted
            event, piece = self._emit(decision, source)
            text += piece
            if event:
                events.append(event)
            self.ending = _ending(decision, proposal)
            if self.finish_reason is not None:
                break
        return tuple(events), text, n_accepted

    def end(self, reason: FinishReason) -> Step:
        """The last step of an answer that ends between rounds."""
        self.finish_reason = reason
        return Step(text=self.text.finish(), finish_reason=reason)

    def _decide(self, rows: FloatArray, draft: Draft) -> Iterator[Decision]:
        return self._engine.rule(rows, draft.proposals, self._engine.sampler, self._uniform)

    def _emit(self, decision: Decision, source: str) -> tuple[TokenEvent | None, str]:
        """Take one decided token into the answer; no event for the token that only ends it."""
        token = decision.token
        if token in self._eog_ids:
            self.finish_reason = FinishReason.STOP
            self._has_pending = False
            return None, ""
        self.history.append(token)
        self._has_pending = True
        self._engine.sampler.accept(token)
        text = self.text.push(token)
        if self.text.is_stopped or self._engine.sampler.is_finished():
            self.finish_reason = FinishReason.STOP
        elif self.n_wanted == 0:
            self.finish_reason = FinishReason.LENGTH
        return TokenEvent(token, source), text


def _n_undroppable(made: Sequence[Proposal]) -> int:
    """Length of the draft up to its last sampled token.

    The policy has seen which token was drawn. Were it dropped for what it is, those that are sent would no longer have
    the distribution that verification takes them to have, and likely tokens would become likelier.
    """
    return max((n for n, proposal in enumerate(made, start=1) if proposal.distribution is not None), default=0)


def _ending(decision: Decision, proposal: Proposal | None) -> Ending:
    if decision.is_accepted:
        return Ending.CUT
    return Ending.BONUS if proposal is None else Ending.RECOVERED


def _would_have_matched(draft: Draft, answer: _Answer) -> bool | None:
    """Whether the spare token is the bonus token; a sampled token's chance is another than that of a match."""
    spare = draft.spare
    if spare is None or spare.distribution is not None or answer.finish_reason is not None:
        return None
    return spare.token == answer.history[-1] if answer.ending is Ending.BONUS else None


@dataclass(frozen=True, slots=True)
class _Times:
    """The models' own stop watches at one moment."""

    target_s: float
    draft_prefill_s: float
    draft_s_by: dict[str, float]

    @classmethod
    def of(cls, engine: Engine) -> _Times:
        drafter = engine.drafter
        return cls(
            engine.target.busy_s,
            drafter.prefill_s if drafter else 0.0,
            dict(drafter.busy_s) if drafter else {},
        )

    def since(self, before: _Times, n_past: int, draft: Draft, n_accepted: int, ending: Ending) -> Round:
        """The round that lies between two moments."""
        spent = {name: busy_s - before.draft_s_by.get(name, 0.0) for name, busy_s in self.draft_s_by.items()}
        return Round(
            n_past=n_past,
            drafted_by=tuple(proposal.source for proposal in draft.proposals),
            n_dropped=draft.n_dropped,
            n_accepted=n_accepted,
            ending=ending,
            target_s=self.target_s - before.target_s,
            draft_s=sum(spent.values()),
            draft_prefill_s=self.draft_prefill_s - before.draft_prefill_s,
            draft_s_by=tuple(spent.items()),
        )
