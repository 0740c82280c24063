"""The sampled rules keep the target's distribution: measured over many seeds, with stated false-alarm rates."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from specgen.drafting.model import ModelDrafter
from specgen.engine.block import verify_as_block
from specgen.engine.fake import FakeBackend, SoftmaxSampler
from specgen.engine.loop import Engine
from specgen.engine.policy import FixedPolicy
from specgen.engine.verify import (
    decide_by_rejection,
    one_by_one,
    residual,
    verify_by_match,
    verify_by_rejection,
)
from specgen.types import Distribution, Proposal, Request
from tests.unit.helpers import vocabulary

N_VOCAB = 5
PROMPT = [1]
LENGTH = 3
N_ANSWERS = 6_000


def distribution(*probs: float) -> Distribution:
    ids = np.flatnonzero(probs).astype(np.int32)
    return Distribution(ids, np.array(probs, dtype=np.float64)[ids])


def script(salt: str, sharpness: float = 1.5):
    """Logits that depend on the whole prefix."""
    cache: dict[tuple[int, ...], np.ndarray] = {}

    def logits(prefix):
        key = tuple(prefix)
        if key not in cache:
            rng = np.random.default_rng([len(salt), *key])
            cache[key] = rng.normal(0, sharpness, N_VOCAB).astype(np.float32)
        return cache[key]

    return logits


def mixed(first, second, share):
    return lambda prefix: (share * first(prefix) + (1 - share) * second(prefix)).astype(np.float32)


def never_the_best(logits):
    """A draft that puts almost all its mass where the target has least."""
    return lambda prefix: (-4 * logits(prefix)).astype(np.float32)


TARGET = script("t")
OTHER = script("draft")
DRAFTS = {
    "equal to the target": (TARGET, SoftmaxSampler(0.8)),
    "often right": (mixed(TARGET, OTHER, 0.8), SoftmaxSampler(0.8)),
    "almost never right": (never_the_best(TARGET), SoftmaxSampler(0.8)),
    "without mass where the target has some (top-k 2)": (OTHER, SoftmaxSampler(0.8, top_k=2)),
    "a point mass (top-k 1)": (OTHER, SoftmaxSampler(0.8, top_k=1)),
}


def answers(rule, gamma: int, draft=None, target_sampler=None, n_answers: int = N_ANSWERS) -> list[tuple[int, ...]]:
    target_sampler = target_sampler or SoftmaxSampler(0.8)
    target = FakeBackend(TARGET, vocabulary(N_VOCAB))
    of_draft, own = random.Random(1), random.Random(2)  # one stream over all answers, not one per answer
    drafter = None
    if draft is not None:
        logits, sampler = draft
        drafter = ModelDrafter(FakeBackend(logits, vocabulary(N_VOCAB)), sampler, lambda: of_draft.random)
    engine = Engine(target, target_sampler, lambda: own.random, drafter, FixedPolicy(gamma), rule, ignore_eog=True)
    request = Request(PROMPT, LENGTH)
    return [tuple(event.token for step in engine.generate(request) for event in step.tokens) for _ in range(n_answers)]


def exact_probabilities(sampler) -> dict[tuple[int, ...], float]:
    """The probability of every answer, from the definition."""
    found = {}
    for text in itertools.product(range(N_VOCAB), repeat=LENGTH):
        prob = 1.0
        for i, token in enumerate(text):
            prob *= sampler.distribution(TARGET([*PROMPT, *text[:i]])).prob(token)
        if prob > 0:
            found[text] = prob
    return found


def chi_square_bound(n_cells: int) -> float:
    """A value that chi-square with n_cells - 1 degrees of freedom exceeds with probability below 1e-7.

    Source: Laurent and Massart 2000, lemma 1: P(X >= k + 2 sqrt(k x) + 2 x) <= exp(-x), here with x = 16.2.
    """
    k, x = n_cells - 1, 16.2
    return k + 2 * (k * x) ** 0.5 + 2 * x


def chi_square(found: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> tuple[float, int]:
    """The statistic over all answers; those expected fewer than five times share a cell."""
    counts: dict[tuple[int, ...], int] = {}
    for answer in found:
        counts[answer] = counts.get(answer, 0) + 1
    assert counts.keys() <= expected.keys(), "an answer that the target cannot give"
    n = len(found)
    cells = [(counts.get(a, 0), n * p) for a, p in expected.items() if n * p >= 5]
    rest = [(counts.get(a, 0), n * p) for a, p in expected.items() if n * p < 5]
    if rest:
        cells.append((sum(c for c, _ in rest), sum(e for _, e in rest)))
    return sum((c - e) ** 2 / e for c, e in cells), len(cells)


LOSSLESS = pytest.mark.parametrize("rule", [verify_by_rejection, verify_as_block], ids=["rejection", "block"])


@LOSSLESS
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("gamma", [1, 3])
def test_sampled_answers_have_the_targets_distribution(draft, gamma, rule):
    found = answers(rule, gamma, DRAFTS[draft])
    statistic, n_cells = chi_square(found, exact_probabilities(SoftmaxSampler(0.8)))
    assert statistic < chi_square_bound(n_cells)


@LOSSLESS
@pytest.mark.parametrize("draft", DRAFTS)
def test_a_target_that_is_cut_itself_stays_so(draft, rule):
    sampler = SoftmaxSampler(0.8, top_k=3)
    found = answers(rule, 2, DRAFTS[draft], sampler)
    statistic, n_cells = chi_square(found, exact_probabilities(sampler))
    assert statistic < chi_square_bound(n_cells)


def test_the_test_sees_a_wrong_rule():
    """Accepting whatever is drafted, or drawing a rejected token from the target itself, must be noticed."""

    def without_residual(target, proposal, uniform):
        decision = decide_by_rejection(target, proposal, uniform)
        if decision.is_accepted or proposal is None:
            return decision
        return decide_by_rejection(target, None, uniform)

    found = answers(one_by_one(without_residual), 2, DRAFTS["often right"], n_answers=20_000)
    statistic, n_cells = chi_square(found, exact_probabilities(SoftmaxSampler(0.8)))
    assert statistic > chi_square_bound(n_cells)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_sample_and_match_gives_the_very_text_of_plain_decoding(draft, gamma):
    plain = answers(verify_by_match, 0, n_answers=300)
    assert answers(verify_by_match, gamma, DRAFTS[draft], n_answers=300) == plain


def test_a_draft_equal_to_the_target_is_always_accepted():
    same = distribution(0.2, 0.3, 0.5)
    for token in range(3):
        for u in (0.0, 0.5, 0.999999):
            assert decide_by_rejection(same, Proposal(token, "", 1.0, same), lambda u=u: u).is_accepted


def test_the_residual_is_renormalised_and_has_no_mass_where_the_draft_has_more():
    target, draft = distribution(0.5, 0.3, 0.2), distribution(0.2, 0.0, 0.8)
    left = residual(target, Proposal(2, "", 0.8, draft))
    assert [left.prob(token) for token in range(3)] == pytest.approx([0.5, 0.5, 0.0])


def test_a_rejected_point_mass_leaves_the_rest_of_the_target():
    left = residual(distribution(0.5, 0.3, 0.2), Proposal(0, ""))
    assert [left.prob(token) for token in range(3)] == pytest.approx([0.0, 0.6, 0.4])


def test_a_token_without_target_probability_is_never_accepted():
    target = distribution(0.0, 1.0)
    assert not decide_by_rejection(target, Proposal(0, "", 1.0, distribution(1.0, 0.0)), lambda: 0.0).is_accepted


def test_drawing_hits_every_token_at_its_quantile():
    d = distribution(0.25, 0.5, 0.25)
    assert [d.draw(u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, 0.999999)] == [0, 0, 1, 1, 2, 2]
