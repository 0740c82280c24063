"""Whole answers of the loop as exact distributions: whatever drafts, they are those of plain decoding.

Ends of every kind fall inside accepted runs here: the end-of-generation token, a stop string, the token limit.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from specgen.drafting.chain import Chain
from specgen.drafting.model import ModelDrafter
from specgen.engine.block import verify_as_block
from specgen.engine.fake import FakeBackend, ScriptedDrafter, SoftmaxSampler
from specgen.engine.loop import Engine
from specgen.engine.metrics import Metrics
from specgen.engine.policy import FixedPolicy, Plan
from specgen.engine.verify import verify_by_rejection
from specgen.types import FinishReason, Request
from tests.unit.exact import distribution_of
from tests.unit.helpers import check_counts, vocabulary

N_VOCAB = 3
PROMPT = [1]
LENGTH = 4
STOP = [1, 2]  # the letters BC


def script(salt, sharpness=1.2):
    """Logits that depend on the whole prefix."""

    def logits(prefix):
        return np.random.default_rng([salt, *prefix]).normal(0, sharpness, N_VOCAB).astype(np.float32)

    return logits


TARGET, DRAFT = script(7), script(8)


class Penalising(SoftmaxSampler):
    """Every token makes itself less likely: a sampler with state."""

    def __init__(self, temperature=1.0, top_k=0):
        super().__init__(temperature, top_k)
        self.counts = np.zeros(N_VOCAB, dtype=np.float32)

    def reset(self, prompt):
        self.counts[:] = 0
        for token in prompt:
            self.accept(token)

    def distribution(self, logits):
        return super().distribution(logits - 0.7 * self.counts)

    def accept(self, token):
        self.counts[token] += 1

    def fork(self):
        copy = Penalising(self._temperature, self._top_k)
        copy.counts = self.counts.copy()
        return copy


def model(uniform, sampler):
    return ModelDrafter(FakeBackend(DRAFT, vocabulary(N_VOCAB)), sampler, lambda: uniform)


def lookup(n_ctx):
    """Offers its best guesses up to a length of the text."""
    return ScriptedDrafter(
        lambda prefix: int(DRAFT(prefix).argmax()) if len(prefix) < n_ctx else None, "lookup", is_free=True
    )


DRAFTERS = {
    "a model": lambda uniform: model(uniform, SoftmaxSampler(0.8)),
    "a model that keeps two tokens": lambda uniform: model(uniform, SoftmaxSampler(0.8, top_k=2)),
    "a model with penalties": lambda uniform: model(uniform, Penalising(0.8)),
    "lookup": lambda uniform: lookup(5),
    "lookup, then a model": lambda uniform: Chain([lookup(3), model(uniform, SoftmaxSampler(0.8))]),
}
SAMPLERS = {
    "plain": SoftmaxSampler,
    "two tokens": lambda: SoftmaxSampler(1.0, top_k=2),
    "penalties": Penalising,
}


def answers(sampler, drafter=None, policy=FixedPolicy(0), rule=verify_as_block):  # noqa: B008
    """The probability of every answer, and the tokens accepted on average."""
    n_accepted = 0.0

    def program(uniform):
        target = FakeBackend(TARGET, vocabulary(N_VOCAB))
        engine = Engine(target, sampler(), lambda: uniform, drafter and drafter(uniform), policy, rule)
        metrics = Metrics(len(PROMPT))
        for step in engine.generate(Request(PROMPT, LENGTH, ("BC",))):
            metrics.add(step)
        is_stopped = metrics.token_ids[-2:] == STOP
        stats = check_counts(metrics, ended_by_eog=metrics.finish_reason is FinishReason.STOP and not is_stopped)
        history = [*PROMPT, *metrics.token_ids]
        assert target.cache == history[: len(target.cache)]
        return tuple(metrics.token_ids), metrics.text, metrics.finish_reason, stats.n_accepted

    found = Counter()
    for (*answer, n), prob in distribution_of(program).items():
        found[tuple(answer)] += prob
        n_accepted += n * prob
    return found, n_accepted


def assert_same(found, expected):
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    for answer in {*found, *expected}:
        assert found[answer] == pytest.approx(expected[answer], abs=1e-12)


@pytest.mark.parametrize("rule", [verify_as_block, verify_by_rejection])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("gamma", [2, 3])
def test_answers_have_the_distribution_of_plain_decoding(drafter, sampler, gamma, rule):
    expected, _ = answers(SAMPLERS[sampler])
    found, n_accepted = answers(SAMPLERS[sampler], DRAFTERS[drafter], FixedPolicy(gamma), rule)
    assert_same(found, expected)
    assert n_accepted > 0.05
    ends = [(finish_reason, token_ids[-2:] == tuple(STOP)) for token_ids, _, finish_reason in found]
    assert {*ends} >= {(FinishReason.STOP, True), (FinishReason.STOP, False)}
    assert (FinishReason.LENGTH, False) in ends or sampler == "two tokens"


class Picky:
    """Sends a draft only as far as the draft model was sure of itself."""

    def begin(self, outlook):
        return Plan(len(outlook.offered), outlook.ask_limit)

    def next(self, draft):
        return len(draft) - 1 if draft[-1].confidence < 0.5 else None

    def observe(self, round_):
        pass


@pytest.mark.parametrize("rule", [verify_as_block, verify_by_rejection])
@pytest.mark.parametrize("drafter", ["a model", "lookup, then a model"])
def test_a_policy_that_looks_at_sampled_tokens_does_not_choose_among_them(drafter, rule):
    """To send a sampled token only where it is likely would make likely tokens likelier."""
    expected, _ = answers(SoftmaxSampler)
    found, _ = answers(SoftmaxSampler, DRAFTERS[drafter], Picky(), rule)
    assert_same(found, expected)
