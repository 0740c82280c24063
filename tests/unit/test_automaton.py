"""The suffix automaton against looking everywhere."""

from __future__ import annotations

import random

import pytest

from specgen.drafting.automaton import SuffixAutomaton
from tests.unit.texts import (
    CountingToken,
    followers,
    longest_match,
    most_frequent,
    random_text,
    true_confidence,
)


def read(text, **settings) -> SuffixAutomaton:
    automaton = SuffixAutomaton(**settings)
    for token in text:
        automaton.append(token)
    return automaton


@pytest.mark.parametrize("max_match", [1, 2, 3, 5, 32])
@pytest.mark.parametrize("n_vocab", [1, 2, 3, 8])
def test_every_prefix_is_answered_as_looking_everywhere_does(n_vocab, max_match):
    rng = random.Random(n_vocab * 100 + max_match)
    text = random_text(rng, 90, n_vocab)
    automaton = SuffixAutomaton(max_match)
    for n, token in enumerate(text, start=1):
        automaton.append(token)
        history = text[:n]
        context = automaton.context
        assert context.n_matched == longest_match([history], history, max_match)
        if context.n_matched == 0:
            assert context.guess() is None
            continue
        guessed, confidence = context.guess()
        assert guessed == most_frequent(followers([history], history[n - context.n_matched :]))
        expected = true_confidence([history], history, context.n_matched, guessed)
        assert confidence == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("max_match", [2, 4, 32])
@pytest.mark.parametrize("n_vocab", [2, 3, 5])
def test_a_context_is_followed_along_any_tokens(n_vocab, max_match):
    rng = random.Random(n_vocab * 100 + max_match)
    text = random_text(rng, 70, n_vocab)
    history, context = list(text), read(text, max_match=max_match).context
    for _ in range(60):
        token = rng.randrange(n_vocab + 1) if rng.random() < 0.4 else (context.guess() or (0, 0))[0]
        history.append(token)
        context = context.after(token)
        assert context.n_matched == longest_match([text], history, max_match)
        if context.n_matched:
            guessed, confidence = context.guess()
            assert guessed == most_frequent(followers([text], history[-context.n_matched :]))
            expected = true_confidence([text], history, context.n_matched, guessed)
            assert confidence == pytest.approx(expected, abs=1e-3)


def test_of_two_continuations_the_more_frequent_wins_and_of_equals_the_more_recent():
    assert read([1, 2, 9, 1, 2, 8, 1, 2]).context.guess()[0] == 8
    assert read([1, 2, 9, 1, 2, 9, 1, 2, 8, 1, 2]).context.guess()[0] == 9


@pytest.mark.parametrize("period", [1, 2, 13, 1000])
def test_reading_is_linear_even_where_the_text_repeats_itself(period):
    def n_lookups(n: int) -> int:
        CountingToken.n_lookups = 0
        read([CountingToken(i % period) for i in range(n)])
        return CountingToken.n_lookups

    assert n_lookups(4000) <= 2.1 * n_lookups(2000)


@pytest.mark.parametrize("n_vocab", [1, 2, 100])
def test_states_and_transitions_are_linear_in_the_text(n_vocab):
    automaton = read(random_text(random.Random(0), 3000, n_vocab))
    assert len(automaton._length) <= 2 * 3000
    assert sum(map(len, automaton._next)) <= 3 * 3000


def test_a_full_automaton_still_finds_later_tokens_in_what_it_learned():
    rng = random.Random(5)
    text = random_text(rng, 120, 3)
    automaton = SuffixAutomaton(max_tokens=50)
    for n, token in enumerate(text, start=1):
        automaton.append(token)
        learned = text[: min(n, 50)]
        assert automaton.context.n_matched == longest_match([learned], text[:n], 32)
    assert len(automaton._length) <= 100
