"""The index of earlier texts against looking everywhere."""

from __future__ import annotations

import random

import pytest

from specgen.drafting.corpus import CorpusIndex
from tests.unit.texts import followers, longest_match, random_text, true_confidence


def context_of(index, history):
    context = index.root
    for token in history:
        context = context.after(token)
    return context


@pytest.mark.parametrize("max_match", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("n_vocab", [1, 2, 3, 8])
def test_every_history_is_answered_as_looking_everywhere_does(n_vocab, max_match):
    rng = random.Random(n_vocab * 100 + max_match)
    texts = [random_text(rng, rng.randrange(40), n_vocab) for _ in range(5)]
    context, history = CorpusIndex(texts, max_match).root, []
    for _ in range(150):
        token = rng.randrange(n_vocab + 1) if rng.random() < 0.3 else (context.guess() or (0, 0))[0]
        history.append(token)
        context = context.after(token)
        assert context.n_matched == longest_match(texts, history, max_match)
        if context.n_matched == 0:
            assert context.guess() is None
            continue
        guessed, confidence = context.guess()
        followed = followers(texts, history[-context.n_matched :])
        assert followed.count(guessed) == max(map(followed.count, followed))
        expected = true_confidence(texts, history, context.n_matched, guessed)
        assert confidence == pytest.approx(expected, abs=1e-3)


def test_no_match_runs_from_one_text_into_the_next():
    index = CorpusIndex([[1, 2, 3], [4, 5]])
    assert context_of(index, [1, 2, 3]).guess() is None
    assert context_of(index, [1, 2, 3, 4]).n_matched == 1
    assert context_of(index, [5]).after(1).n_matched == 1  # the last text does not go on with the first either


@pytest.mark.parametrize("texts", [[], [[]], [[], []], [[3]]])
def test_texts_in_which_nothing_follows_anything_answer_nothing(texts):
    index = CorpusIndex(texts)
    for history in ([], [3], [0, 1, 2]):
        assert context_of(index, history).guess() is None


def test_tokens_that_no_text_has_match_nothing():
    index = CorpusIndex([[1, 2, 1, 2, 3]])
    for stranger in (0, 4, 5, 1_000_000, -1):
        assert context_of(index, [1, 2, stranger]).n_matched == 0
        assert context_of(index, [1, stranger, 1, 2]).n_matched == 2


def test_a_context_of_very_many_occurrences_is_sampled():
    texts = [[1, 2 if i % 3 else 3] for i in range(5000)]
    token, confidence = context_of(CorpusIndex(texts), [1]).guess()
    assert token == 2
    assert confidence == pytest.approx(2 / 3, abs=0.01)  # the counts are exact


def test_a_context_that_nearly_always_ends_its_text_guesses_nothing():
    texts = [[1]] * 5000 + [[1, 2]]
    assert context_of(CorpusIndex(texts), [1]).guess() is None


def test_ten_thousand_equal_texts_are_as_good_as_many_different_ones():
    index = CorpusIndex([list(range(20))] * 10_000)
    token, confidence = context_of(index, range(10)).guess()
    assert token == 10
    assert confidence > 0.99
