"""The suffix drafter: the live text and a corpus together, and in the loop."""

from __future__ import annotations

import random
from math import prod

import pytest

from specgen.drafting.chain import Chain
from specgen.drafting.corpus import CorpusIndex
from specgen.drafting.suffix import SuffixDrafter
from tests.unit.helpers import AGREEMENTS, PROMPT, World, check_counts, next_token, true_text
from tests.unit.texts import TARGETS, followers, longest_match, most_frequent, random_text


def drafting(world, corpus=None, with_model=False) -> World:
    suffix = SuffixDrafter(corpus, clock=world.clock)
    world.engine.drafter = Chain([suffix, world.engine.drafter]) if with_model else suffix
    return world


def tokens(offered) -> list[int]:
    return [proposal.token for proposal in offered]


def test_offers_what_followed_most_often_token_after_token():
    rng = random.Random(1)
    text = random_text(rng, 150, 3)
    drafter = SuffixDrafter()
    for n in range(1, len(text)):
        history = text[:n]
        for proposal in drafter.offer(history, 5):
            n_matched = longest_match([text[:n]], history, 32)
            assert proposal.token == most_frequent(followers([text[:n]], history[-n_matched:]))
            history.append(proposal.token)


def test_a_period_goes_round_and_grows_surer():
    offered = SuffixDrafter().offer([1, 2, 3, 4] * 3, 10)
    assert tokens(offered) == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert offered[0].confidence > 0.85


def test_a_new_token_gets_no_offer():
    assert SuffixDrafter().offer([1, 2, 3], 4) == []


def test_the_offer_ends_where_it_is_hardly_ever_reached():
    text = random_text(random.Random(2), 400, 40)
    drafter = SuffixDrafter()
    for n in range(300, 400):
        offered = drafter.offer(text[:n], 50)
        assert prod(proposal.confidence for proposal in offered) >= 0.02
        assert len(offered) < 10


def test_a_longer_match_in_the_corpus_is_taken_before_a_shorter_one_in_the_live_text():
    corpus = CorpusIndex([[1, 2, 3, 4, 50, 51]])
    assert tokens(SuffixDrafter(corpus).offer([3, 4, 9, 1, 2, 3, 4], 1)) == [50]
    assert tokens(SuffixDrafter().offer([3, 4, 9, 1, 2, 3, 4], 1)) == [9]


def test_of_equal_matches_the_live_text_is_taken():
    corpus = CorpusIndex([[3, 4, 50]])
    assert tokens(SuffixDrafter(corpus).offer([3, 4, 9, 8, 3, 4], 1)) == [9]


def test_an_offer_may_go_on_in_the_other_text():
    corpus = CorpusIndex([[7, 1, 2, 3, 4, 5, 6]])
    offered = SuffixDrafter(corpus).offer([1, 2, 3, 8, 7, 1, 2], 4)
    assert tokens(offered) == [3, 4, 5, 6]


def test_the_corpus_is_followed_over_histories_that_grow_by_any_number_of_tokens():
    rng = random.Random(4)
    corpus = [list(range(10, 60)), list(range(40, 10, -1))]
    drafter = SuffixDrafter(CorpusIndex(corpus))
    history = [1]
    while len(history) < 400:
        drafter.offer(history, 4)
        start = rng.randrange(10, 50)
        history += range(start, start + rng.randint(1, 45))
        expected = longest_match(corpus, history, 32)
        drafter.offer(history, 1)
        assert drafter._in_corpus.n_matched == expected


@pytest.mark.parametrize("has_corpus", [False, True])
def test_offers_are_valid_whatever_the_history(has_corpus):
    rng = random.Random(3)
    texts = [random_text(rng, 50, 5) for _ in range(4)] if has_corpus else []
    drafter = SuffixDrafter(CorpusIndex(texts)) if has_corpus else SuffixDrafter()
    for _ in range(60):
        history = random_text(rng, rng.randint(1, 60), rng.randint(1, 6))
        drafter.begin(history)
        while len(history) < 90:
            n = rng.randint(1, 20)
            offered = drafter.offer(history, n)
            assert len(offered) <= n
            assert set(tokens(offered)) <= set(history).union(*texts)
            assert all(0.0 <= p.confidence <= 1.0 and p.source == "suffix" for p in offered)
            history += random_text(rng, rng.randint(1, 9), 6)


@pytest.mark.parametrize("gamma", [1, 4, 9])
@pytest.mark.parametrize("target_says", [*TARGETS.values(), next_token], ids=[*TARGETS, "no pattern"])
def test_the_text_is_the_targets_own_and_the_counts_add_up(target_says, gamma):
    world = drafting(World(gamma=gamma, agreement=None, target_says=target_says))
    metrics = world.run(80)
    assert metrics.token_ids == true_text(80, choose=target_says)
    stats = check_counts(metrics)
    assert target_says is next_token or stats.by_drafter["suffix"].n_accepted > 0


@pytest.mark.parametrize("agreement", AGREEMENTS.values(), ids=AGREEMENTS)
@pytest.mark.parametrize("target_says", TARGETS.values(), ids=TARGETS)
def test_the_text_is_the_targets_own_with_a_draft_model_behind(target_says, agreement):
    world = drafting(World(gamma=6, agreement=agreement, target_says=target_says), with_model=True)
    metrics = world.run(80)
    assert metrics.token_ids == true_text(80, choose=target_says)
    stats = check_counts(metrics)
    assert stats.by_drafter["suffix"].n_drafted > 0
    assert stats.by_drafter["model"].n_drafted > 0


def test_a_corpus_that_has_the_answer_drafts_it():
    answer = true_text(60)
    world = drafting(World(gamma=6, agreement=None), CorpusIndex([[*PROMPT, *answer]]))
    metrics = world.run(60)
    assert metrics.token_ids == answer
    assert check_counts(metrics).n_accepted > 45


def test_a_corpus_with_ids_that_the_target_does_not_know_changes_no_text():
    answer = true_text(60)
    corpus = [[*answer[i : i + 3], 1000 + i] for i in range(50)]
    world = drafting(World(gamma=6, agreement=None), CorpusIndex(corpus))
    metrics = world.run(60)
    assert metrics.token_ids == answer
    check_counts(metrics)


def test_an_answer_does_not_help_the_next_one():
    world = drafting(World(agreement=None, target_says=next_token))
    first, second = world.run(60), world.run(60)
    assert [r.drafted_by for r in first.rounds] == [r.drafted_by for r in second.rounds]
