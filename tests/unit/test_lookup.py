"""Prompt lookup: against looking everywhere, and in the loop."""

from __future__ import annotations

import itertools
import random

import pytest

from specgen.drafting.chain import Chain
from specgen.drafting.lookup import MAX_N, MIN_N, LookupDrafter
from tests.unit.helpers import AGREEMENTS, World, check_counts, next_token, true_text
from tests.unit.texts import TARGETS, CountingToken, random_text


def looked_up(history, n, max_n):
    """What followed the most recent occurrence of the longest n-gram that ends the history."""
    for length in range(min(max_n, len(history) - 1), MIN_N - 1, -1):
        for start in range(len(history) - length - 1, -1, -1):
            if history[start : start + length] == history[-length:]:
                followed = history[start + length :]
                return [followed[i % len(followed)] for i in range(n)]
    return []


def looking_up(world, with_model=False) -> World:
    lookup = LookupDrafter(clock=world.clock)
    world.engine.drafter = Chain([lookup, world.engine.drafter]) if with_model else lookup
    return world


@pytest.mark.parametrize("max_n", [2, 3, 5, 8])
@pytest.mark.parametrize("n_vocab", [1, 2, 3, 10])
def test_offers_what_followed_the_most_recent_occurrence_of_the_longest_end(n_vocab, max_n):
    rng = random.Random(n_vocab * 10 + max_n)
    text = random_text(rng, 120, n_vocab)
    drafter = LookupDrafter(max_n)
    n_history = 3
    while n_history <= len(text):
        offered = drafter.offer(text[:n_history], 6)
        assert [p.token for p in offered] == looked_up(text[:n_history], 6, max_n)
        n_history += rng.randint(1, 4)


def test_a_longer_match_is_offered_with_more_confidence_and_the_offer_grows_surer():
    short = LookupDrafter().offer([1, 2, 9, 8, 5, 1, 2], 2)
    long = LookupDrafter().offer([1, 2, 3, 4, 5, 6, 7, 9, 8, 1, 2, 3, 4, 5, 6, 7], 2)
    assert [p.token for p in short] == [p.token for p in long] == [9, 8]
    assert 0 < short[0].confidence < short[1].confidence < long[0].confidence < long[1].confidence < 1


def test_a_period_goes_round():
    offered = LookupDrafter().offer([1, 2, 3, 1, 2, 3], 8)
    assert [p.token for p in offered] == [1, 2, 3, 1, 2, 3, 1, 2]


def test_a_single_token_that_came_before_is_no_match():
    assert LookupDrafter().offer([1, 2, 3, 1], 4) == []


def test_offers_are_valid_whatever_the_history():
    rng = random.Random(3)
    drafter = LookupDrafter()
    for _ in range(60):
        history = random_text(rng, rng.randint(1, 60), rng.randint(1, 6))
        drafter.begin(history)
        while len(history) < 90:
            n = rng.randint(1, 20)
            offered = drafter.offer(history, n)
            assert len(offered) <= n
            assert {p.token for p in offered} <= set(history)
            assert all(0.0 <= p.confidence <= 1.0 and p.source == "lookup" for p in offered)
            history += random_text(rng, rng.randint(1, 9), 6)


@pytest.mark.parametrize("period", [1, 13, 1000])
def test_reading_a_token_costs_the_same_however_long_the_text(period):
    history = [CountingToken(i % period) for i in range(4000)]
    drafter = LookupDrafter()
    CountingToken.n_lookups = 0
    for n in range(1, 4001):
        drafter.offer(history[:n], 1)
    assert CountingToken.n_lookups <= 2 * 4000 * sum(range(MIN_N, MAX_N + 1))


@pytest.mark.parametrize("gamma", [1, 4, 9])
@pytest.mark.parametrize("target_says", [*TARGETS.values(), next_token], ids=[*TARGETS, "no pattern"])
def test_the_text_is_the_targets_own_and_the_counts_add_up(target_says, gamma):
    world = looking_up(World(gamma=gamma, agreement=None, target_says=target_says))
    metrics = world.run(80)
    assert metrics.token_ids == true_text(80, choose=target_says)
    stats = check_counts(metrics)
    assert target_says is next_token or stats.by_drafter["lookup"].n_accepted > 0


@pytest.mark.parametrize("agreement", AGREEMENTS.values(), ids=AGREEMENTS)
@pytest.mark.parametrize("target_says", TARGETS.values(), ids=TARGETS)
def test_the_text_is_the_targets_own_with_a_draft_model_behind(target_says, agreement):
    world = looking_up(World(gamma=6, agreement=agreement, target_says=target_says), with_model=True)
    metrics = world.run(80)
    assert metrics.token_ids == true_text(80, choose=target_says)
    stats = check_counts(metrics)
    assert stats.by_drafter["lookup"].n_drafted > 0
    assert stats.by_drafter["model"].n_drafted > 0


def test_an_answer_does_not_help_the_next_one():
    world = looking_up(World(agreement=None, target_says=next_token))
    first, second = world.run(60), world.run(60)
    assert [r.drafted_by for r in first.rounds] == [r.drafted_by for r in second.rounds]


def test_the_prompt_is_prefill_and_the_rest_is_drafting():
    drafter = LookupDrafter(clock=itertools.count().__next__)
    drafter.begin([1, 2, 3])
    drafter.offer([1, 2, 3, 4], 2)
    assert (drafter.prefill_s, drafter.busy_s) == (1, {"lookup": 1})
    drafter.offer([1, 2, 3, 4, 5], 2)
    assert (drafter.prefill_s, drafter.busy_s) == (1, {"lookup": 3})
