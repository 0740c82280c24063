"""A small model as the drafter.

Owns the draft's cache: what is in it, what it lacks, what of it still stands. It takes in what it lacks in the same
pass that starts the next draft, so no token is ever decoded twice and a fully accepted draft costs no extra pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from specgen.engine.backend import Backend
from specgen.engine.sampling import Sampler
from specgen.engine.verify import Uniform
from specgen.types import FloatArray, IntArray, Proposal

NAME = "model"

Shortlister = Callable[[Sequence[int]], tuple[IntArray, FloatArray]]
"""Decodes tokens, and returns the likeliest next ones in the order of their ids, with their logits."""

_MAX_CATCH_UP = 16
"""More tokens than this are taken in by passes of their own, before the draft: they count as prefill, and a plain pass
over one token keeps its fast kernel."""


class ModelDrafter:
    """Drafts with a model, greedily or from its own sampler.

    Args:
        backend: the draft model; its vocabulary is the target's, perhaps with another padded tail.
        sampler: where proposals come from. Greedy proposals are point masses; others carry their distribution.
        make_uniform: random numbers of one sequence, not shared with the target's.
        is_cancelled: asked between the passes that catch up; nothing is proposed once it says yes.
        shortlist: replaces whole rows of logits, where the device can choose among 100,000 candidates before they cross
            a bus. It must return at least what `sampler.n_candidates` says; confidences are relative to what it
            returns.
    """

    names = (NAME,)

    def __init__(
        self,
        backend: Backend,
        sampler: Sampler,
        make_uniform: Callable[[], Uniform],
        is_cancelled: Callable[[], bool] = lambda: False,
        shortlist: Shortlister | None = None,
    ) -> None:
        self._backend = backend
        self._shortlist = shortlist
        self._sampler = sampler
        self._make_uniform = make_uniform
        self._uniform = make_uniform()
        self._is_cancelled = is_cancelled
        self._n_sampled = 0
        self._prefill_s = 0.0
        self._is_lost = False  # a token came that only the target knows, and the draft cannot take it in

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget the last sequence; the model is fed when it first drafts."""
        self._backend.rollback(0)
        self._sampler.reset(prompt)
        self._n_sampled = len(prompt)
        self._is_lost = False
        self._uniform = self._make_uniform()

    def limit(self, n_history: int) -> int:
        """Room in the draft's context: the last proposal is never fed to it, hence one more."""
        return max(0, self._backend.n_ctx - n_history + 1) if n_history <= self._backend.n_ctx else 0

    def n_behind(self, n_history: int) -> int:
        """Tokens of the history that are not in the draft's cache."""
        return n_history - self._backend.n_past

    def offer(self, history: Sequence[int], n: int) -> Sequence[Proposal]:  # noqa: ARG002
        """Nothing: every guess costs a pass."""
        return ()

    def propose(self, history: Sequence[int], draft: Sequence[Proposal] = ()) -> Iterator[Proposal]:
        """Catch up, then propose; each later proposal is one pass over one token."""
        for token in history[self._n_sampled :]:
            self._sampler.accept(token)
        self._n_sampled = len(history)
        sampler = self._sampler.fork()
        drafted = [proposal.token for proposal in draft]
        for token in drafted:
            sampler.accept(token)

        self._is_lost = self._is_lost or max(history[self._backend.n_past :]) >= self._backend.n_vocab
        if self._is_lost or max(drafted, default=0) >= self._backend.n_vocab or sampler.is_finished():
            return
        behind = self._catch_up([*history, *drafted] if drafted else history)
        while behind:
            proposal = self._next(sampler, behind)
            yield proposal
            sampler.accept(proposal.token)
            if sampler.is_finished():
                return
            behind = [proposal.token]

    def commit(self, n_valid: int) -> None:
        """Drop what was drafted and rejected from the draft's cache."""
        self._backend.rollback(min(n_valid, self._backend.n_past))

    @property
    def busy_s(self) -> Mapping[str, float]:
        """Seconds inside the draft model, catching up excluded."""
        return {NAME: self._backend.busy_s - self._prefill_s}

    @property
    def prefill_s(self) -> float:
        """Seconds inside the draft model for passes that only catch up."""
        return self._prefill_s

    def _catch_up(self, history: Sequence[int]) -> Sequence[int]:
        """Take in what the cache lacks of `history` but its end; that end, for the next pass; nothing if cancelled."""
        behind = history[self._backend.n_past :]
        if len(behind) > _MAX_CATCH_UP:
            before_s = self._backend.busy_s
            n_pass = self._backend.capabilities.max_batch
            for start in range(0, len(behind) - 1, n_pass):
                if self._is_cancelled():
                    return ()
                self._backend.eval(behind[start : min(start + n_pass, len(behind) - 1)], n_rows=0)
            self._prefill_s += self._backend.busy_s - before_s
            behind = behind[-1:]
        return behind

    def _next(self, sampler: Sampler, tokens: Sequence[int]) -> Proposal:
        """What follows `tokens`, which the model takes in now."""
        ids: IntArray | None = None
        if self._shortlist is not None:
            ids, logits = self._shortlist(tokens)
            distribution = sampler.distribution_among(ids, logits)
        else:
            logits = self._backend.eval(tokens, n_rows=1)[0]
            distribution = sampler.distribution(logits)
        if not sampler.is_greedy:
            token = distribution.draw(self._uniform())
            return Proposal(token, NAME, distribution.prob(token), distribution)
        token = int(distribution.ids[0])
        return Proposal(token, NAME, _confidence(logits, token if ids is None else int(np.searchsorted(ids, token))))


def _confidence(logits: FloatArray, index: int) -> float:
    """The softmax probability of one candidate.

    Over a whole row where there is one: a hundred thousand unlikely tokens can weigh as much as the likeliest. In place
    and in 32 bits, which costs less than looking for those that can be left out, and is exact to six digits.

    Args:
        logits: (n,) float32; overwritten.
        index: of a finite one.
    """
    np.subtract(logits, logits.max(), out=logits)
    np.exp(logits, out=logits)
    return float(logits[index] / logits.sum())
