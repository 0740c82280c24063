"""How far an earlier text is believed."""

from __future__ import annotations

import random

import pytest

from specgen.drafting.evidence import MAX_MATCH, confidence


def test_a_single_short_match_is_believed_little_and_a_long_one_much():
    assert 0.1 <= confidence([(1, 1, 1)]) <= 0.3
    assert confidence([(1, 1, 16)]) > 0.9
    assert confidence([(1, 1, MAX_MATCH)]) < 1.0


def test_nothing_known_is_no_confidence():
    assert confidence([]) == 0.0


def test_a_longer_match_is_believed_more():
    by_length = [confidence([(1, 1, n)]) for n in range(1, MAX_MATCH)]
    assert by_length == sorted(set(by_length))


def test_agreement_raises_and_disagreement_lowers_it():
    by_agreement = [confidence([(n, n, 1)]) for n in range(1, 50)]
    assert by_agreement == sorted(set(by_agreement))
    by_disagreement = [confidence([(3, 3 + n, 1)]) for n in range(50)]
    assert by_disagreement == sorted(set(by_disagreement), reverse=True)


def test_a_rare_context_leans_on_the_shorter_one():
    assert confidence([(1, 1, 1), (90, 100, 1)]) > 0.8
    assert confidence([(1, 1, 1), (1, 100, 1)]) < 0.3


def test_lengths_with_the_same_counts_may_come_one_by_one():
    assert confidence([(2, 3, 4), (5, 9, 2)]) == pytest.approx(confidence([(2, 3, 1)] * 4 + [(5, 9, 1)] * 2))


def test_it_is_a_probability_whatever_the_counts():
    rng = random.Random(0)
    for _ in range(500):
        counts = [(rng.randint(0, n), n, rng.randint(1, 9)) for n in (rng.randint(1, 1000) for _ in range(5))]
        assert 0.0 <= confidence(counts) <= 1.0
