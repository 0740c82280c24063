"""The sampled rules, computed exactly: every draft, every random number, every answer. No statistics."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from specgen.engine.block import verify_as_block
from specgen.engine.fake import SoftmaxSampler
from specgen.engine.verify import verify_by_match, verify_by_rejection
from specgen.types import Distribution, Proposal
from tests.unit.exact import distribution_of

EXACT = 1e-12
GAMMAS = [1, 2, 3]
LOSSLESS = [verify_as_block, verify_by_rejection]
N_VOCAB = 3


class Prefixed:
    """A sampler whose distributions depend on everything that was accepted: a penalty, a grammar, in the extreme.

    Rows only say which of them was asked for, so that whoever looks at the wrong row, or accepts too little, is caught.
    """

    is_greedy = False

    def __init__(self, model, prefix=()) -> None:
        self.model = model
        self.prefix = prefix
        self.asked: list[int] = []
        self.forks: list[Prefixed] = []

    def distribution(self, logits):
        assert logits[0] == len(self.prefix)
        self.asked.append(len(self.prefix))
        return self.model(self.prefix)

    def accept(self, token):
        self.prefix += (token,)

    def is_finished(self):
        return False

    def fork(self):
        self.forks.append(Prefixed(self.model, self.prefix))
        return self.forks[-1]


def rows(gamma):
    return np.arange(gamma + 1, dtype=np.float32)[:, np.newaxis]


def model(seed, zeros=0.0, sharpness=1.5):
    """Distributions that depend on the whole prefix; a share of the tokens has no probability and is not listed."""

    def after(prefix):
        rng = np.random.default_rng([seed, len(prefix), *prefix])
        weights = np.exp(rng.normal(0, sharpness, N_VOCAB)) * (rng.random(N_VOCAB) >= zeros)
        ids = rng.permutation(np.flatnonzero(weights)).astype(np.int32)
        return Distribution(ids, weights[ids] / weights.sum()) if ids.size else point(int(rng.integers(N_VOCAB)))

    return after


def point(token):
    return Distribution(np.array([token], dtype=np.int32), np.ones(1))


def sampling(draft_model):
    """A drafter that samples."""

    def propose(prefix, uniform):
        distribution = draft_model(prefix)
        return Proposal(distribution.draw(uniform()), "model", 0.5, distribution)

    return propose


def guessing(draft_model):
    """A drafter that is sure of its best guess: lookup, or a greedy draft."""
    return lambda prefix, uniform: Proposal(int(draft_model(prefix).ids[0]), "lookup")


def at_first(n, first, then):
    """Another drafter for the first n tokens."""
    return lambda prefix, uniform: (first if len(prefix) < n else then)(prefix, uniform)


def ending_after_token(token, propose):
    """A drafter that says no more after a certain token."""
    return lambda prefix, uniform: None if token in prefix else propose(prefix, uniform)


def pairs(seed):
    """A target, and drafters for it."""
    dense, sparse, other = model(seed), model(seed, zeros=0.4), model(seed + 1000)
    sparse_other = model(seed + 1000, zeros=0.4)
    return {
        "sampled": (dense, sampling(other)),
        "equal to the target": (dense, sampling(dense)),
        "target without some tokens": (sparse, sampling(other)),
        "both without some tokens": (sparse, sampling(sparse_other)),
        "point masses": (sparse, guessing(other)),
        "a point mass, then sampled": (dense, at_first(1, guessing(other), sampling(other))),
        "sampled, then point masses": (sparse, at_first(1, sampling(sparse_other), guessing(dense))),
        "ending early": (dense, ending_after_token(1, sampling(other))),
    }


PAIRS = list(pairs(0))
every_pair = pytest.mark.parametrize("pair", PAIRS)
every_gamma = pytest.mark.parametrize("gamma", GAMMAS)
every_seed = pytest.mark.parametrize("seed", range(3))


def draft_of(propose, gamma, uniform):
    draft: list[Proposal] = []
    while len(draft) < gamma:
        proposal = propose(tuple(p.token for p in draft), uniform)
        if proposal is None:
            break
        draft.append(proposal)
    return draft


def round_of(rule, target, propose, gamma):
    """One round as a random program: the drafted tokens and the decided ones."""

    def program(uniform):
        draft = draft_of(propose, gamma, uniform)
        return tuple(p.token for p in draft), verified(rule, target, draft, uniform)

    return program


def verified(rule, target, draft, uniform):
    """What the loop would emit of a draft."""
    sampler = Prefixed(target)
    for decision in rule(rows(len(draft)), draft, sampler, uniform):
        sampler.accept(decision.token)
    return sampler.prefix


def probability(target, text, start=0):
    return float(np.prod([target(text[:i]).prob(text[i]) for i in range(start, len(text))]))


@every_pair
@every_gamma
@every_seed
@pytest.mark.parametrize("rule", LOSSLESS)
def test_a_round_and_what_the_target_adds_have_the_targets_distribution(rule, pair, gamma, seed):
    target, propose = pairs(seed)[pair]
    found = Counter()
    for (_, emitted), prob in distribution_of(round_of(rule, target, propose, gamma)).items():
        found[emitted] += prob
    assert sum(found.values()) == pytest.approx(1, abs=EXACT)
    for text in itertools.product(range(N_VOCAB), repeat=gamma + 1):
        prob = sum(found[text[:n]] * probability(target, text, n) for n in range(1, gamma + 2))
        assert prob == pytest.approx(probability(target, text), abs=EXACT)


def mean_accepted(rule, target, propose, gamma):
    outcomes = distribution_of(round_of(rule, target, propose, gamma))
    return sum(prob * (len(emitted) - 1) for (_, emitted), prob in outcomes.items())


@every_pair
@every_gamma
@every_seed
def test_a_block_is_accepted_at_least_as_far_as_token_by_token(pair, gamma, seed):
    arguments = (*pairs(seed)[pair], gamma)
    gain = mean_accepted(verify_as_block, *arguments) - mean_accepted(verify_by_rejection, *arguments)
    assert gain >= -EXACT
    if gamma == 1 or pair in ("equal to the target", "point masses"):
        assert gain == pytest.approx(0, abs=EXACT)
    elif pair == "sampled":
        assert gain > 0.001


def test_the_papers_example():
    """Two independent tokens: 10/9 accepted token by token, 11/9 as a block (section 2 of the paper)."""
    ids = np.arange(2, dtype=np.int32)
    target, draft = Distribution(ids, np.array([1, 2]) / 3), Distribution(ids, np.array([2, 1]) / 3)
    arguments = (lambda prefix: target, sampling(lambda prefix: draft), 2)
    assert mean_accepted(verify_by_rejection, *arguments) == pytest.approx(10 / 9, abs=EXACT)
    assert mean_accepted(verify_as_block, *arguments) == pytest.approx(11 / 9, abs=EXACT)


@every_pair
@every_seed
def test_a_draft_of_one_token_is_decided_as_token_by_token(pair, seed):
    """Draft for draft, not only on average."""
    block, single = (distribution_of(round_of(rule, *pairs(seed)[pair], 1)) for rule in LOSSLESS)
    assert block == pytest.approx(single, abs=EXACT)


@every_gamma
def test_a_point_mass_target_makes_it_the_greedy_match(gamma):
    def target(prefix):
        return point(int(model(1)(prefix).ids[0]))

    for seed in range(20):
        arguments = (target, guessing(model(seed)), gamma)
        block, single, match = (distribution_of(round_of(rule, *arguments)) for rule in (*LOSSLESS, verify_by_match))
        assert block == single == match
        assert list(block.values()) == [1.0]


@pytest.mark.parametrize("rule", [*LOSSLESS, verify_by_match])
def test_a_plain_step_takes_one_random_number_by_every_rule(rule):
    """So one seed means one plain text."""
    numbers = iter([0.7])
    assert verified(rule, model(5), [], lambda: next(numbers)) == (model(5)(()).draw(0.7),)


def test_nothing_is_looked_at_behind_a_token_that_the_target_rules_out():
    allows = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]
    sampler = Prefixed(lambda prefix: Distribution(np.arange(3, dtype=np.int32), np.array(allows[len(prefix)])))
    decisions = list(verify_as_block(rows(4), [Proposal(token, "") for token in (0, 1, 0, 0)], sampler, lambda: 0.0))
    assert len(decisions) == 2
    assert sampler.asked == [0]
    assert [fork.asked for fork in sampler.forks] == [[1]]


class Ending(Prefixed):
    """A grammar that ends after two tokens."""

    def is_finished(self):
        return len(self.prefix) == 2

    def distribution(self, logits):
        assert not self.is_finished()
        return super().distribution(logits)

    def fork(self):
        return Ending(self.model, self.prefix)


def test_nothing_is_looked_at_behind_the_end_of_a_grammar():
    """And what is accepted up to there is what a draft that ended there would get."""

    def program(draft):
        def run(uniform):
            sampler = Ending(model(2))
            for decision in verify_as_block(rows(len(draft)), draft, sampler, uniform):
                sampler.accept(decision.token)
                if sampler.is_finished():
                    break
            return sampler.prefix

        return run

    draft = [Proposal(token, "model", 0.5, model(1002)(())) for token in (0, 1, 2, 0)]
    assert distribution_of(program(draft)) == distribution_of(program(draft[:2]))


def test_a_draft_of_one_token_costs_no_fork():
    sampler = Prefixed(model(3))
    for decision in verify_as_block(rows(1), [Proposal(0, "")], sampler, lambda: 0.0):
        sampler.accept(decision.token)
    assert sampler.forks == []


def test_the_sampler_moves_only_with_what_is_emitted():
    """Closing early, as the loop does at the end of an answer, leaves it where the answer ended."""
    draft = [Proposal(int(token), "model", 1.0, point(int(token))) for token in (0, 0, 0)]
    sampler = Prefixed(lambda prefix: point(0))
    decisions = verify_as_block(rows(3), draft, sampler, lambda: 0.5)
    sampler.accept(next(decisions).token)
    decisions.close()
    assert sampler.prefix == (0,)
    assert sampler.asked == [0]


def test_rounding_never_leaves_a_round_without_an_end():
    """A draft that equals the target to the last bit or not quite: any random number decides something."""
    sampler = SoftmaxSampler()
    logits = np.random.default_rng(0).normal(0, 3, (4, 1000)).astype(np.float32)
    for wobble in (0.0, 1e-16, 1e-12):
        draft = []
        for row in logits[:3]:
            exact = sampler.distribution(row)
            near = exact.probs * (1 + wobble * np.cos(np.arange(exact.probs.size)))
            draft.append(Proposal(int(exact.ids[1]), "", 1.0, Distribution(exact.ids, near / near.sum())))
        for u in (0.0, 0.5, float(np.nextafter(1, 0))):
            *accepted, last = verify_as_block(logits, draft, sampler, lambda u=u: u)
            assert not last.is_accepted
            assert len(accepted) == 3 or u > 0.9
