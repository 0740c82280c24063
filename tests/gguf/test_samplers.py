"""ChainSampler is llama.cpp's chain: its distributions agree with the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from specgen.engine.sampling import GreedySampler
from specgen.llama.samplers import ChainSampler, make_sampler
from specgen.types import Distribution, SamplingParams
from tests.gguf.helpers import vocabulary_of

N_CTX_TRAIN = 2048
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def vocabulary(tiny_models):
    with vocabulary_of(tiny_models.llama) as vocabulary:
        yield vocabulary


@pytest.fixture
def logits(vocabulary):
    return np.random.default_rng(5).normal(0, 2, vocabulary.n_tokens).astype(np.float32)


@pytest.fixture
def chain(vocabulary):
    def make(banned=(), **params):
        return ChainSampler(vocabulary, SamplingParams(**{**NEUTRAL, **params}), N_CTX_TRAIN, banned)

    return make


def softmax(logits, temperature: float = 1.0):
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def dense(distribution: Distribution, n_vocab: int):
    """(n_vocab,) probabilities; checks that the distribution is one."""
    assert len({*distribution.ids.tolist()}) == distribution.ids.size
    assert (distribution.probs >= 0).all()
    assert distribution.probs.sum() == pytest.approx(1)
    probs = np.zeros(n_vocab)
    probs[distribution.ids] = distribution.probs
    return probs


def kept_only(probs, is_kept):
    return np.where(is_kept, probs, 0) / probs[is_kept].sum()


def top_p_mask(probs, p: float):
    """The smallest set of the likeliest tokens that holds `p`."""
    order = np.argsort(-probs)
    n_kept = int(np.searchsorted(np.cumsum(probs[order]), p)) + 1
    mask = np.zeros(probs.size, dtype=bool)
    mask[order[:n_kept]] = True
    return mask


def probs_of(sampler, logits):
    return dense(sampler.distribution(logits.copy()), logits.size)


@pytest.mark.parametrize("temperature", [0.2, 0.8, 1.0, 2.0])
def test_temperature_is_a_softmax(chain, logits, temperature):
    np.testing.assert_allclose(
        probs_of(chain(temperature=temperature), logits), softmax(logits, temperature), atol=1e-6
    )


@pytest.mark.parametrize("k", [1, 5, 40, 100_000])
def test_top_k_keeps_the_k_likeliest(chain, logits, k):
    is_kept = logits >= np.sort(logits)[-min(k, logits.size)]
    np.testing.assert_allclose(probs_of(chain(top_k=k), logits), kept_only(softmax(logits), is_kept), atol=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_smallest_nucleus(chain, logits, p):
    probs = softmax(logits)
    np.testing.assert_allclose(probs_of(chain(top_p=p), logits), kept_only(probs, top_p_mask(probs, p)), atol=1e-6)


@pytest.mark.parametrize("p", [0.01, 0.2, 1.0])
def test_min_p_cuts_below_a_share_of_the_best(chain, logits, p):
    probs = softmax(logits)
    is_kept = probs >= p * probs.max() * (1 - 1e-6)
    np.testing.assert_allclose(probs_of(chain(min_p=p), logits), kept_only(probs, is_kept), atol=1e-6)


def test_the_cuts_come_before_the_temperature(chain, logits):
    """llama.cpp's order: top-k, top-p, min-p, temperature."""
    is_kept = logits >= np.sort(logits)[-20]
    is_kept &= top_p_mask(kept_only(softmax(logits), is_kept), 0.9)
    sampler = chain(top_k=20, top_p=0.9, min_p=0.02, temperature=0.7)
    is_kept &= softmax(logits) >= 0.02 * softmax(logits).max()
    np.testing.assert_allclose(probs_of(sampler, logits), kept_only(softmax(logits, 0.7), is_kept), atol=1e-6)


def test_repeat_penalty_divides_positive_and_multiplies_negative_logits(chain, logits):
    seen = [int(logits.argmax()), int(logits.argmin())]
    sampler = chain(repeat_penalty=1.5)
    sampler.reset([])
    for token in seen:
        sampler.accept(token)
    expected = logits.copy()
    expected[seen] = [logits[seen[0]] / 1.5, logits[seen[1]] * 1.5]
    np.testing.assert_allclose(probs_of(sampler, logits), softmax(expected), atol=1e-6)


def test_presence_and_frequency_penalties_count(chain, logits):
    sampler = chain(presence_penalty=0.5, frequency_penalty=0.25)
    sampler.reset([7, 7, 7, 9])
    expected = logits.copy()
    expected[[7, 9]] -= [0.5 + 3 * 0.25, 0.5 + 0.25]
    np.testing.assert_allclose(probs_of(sampler, logits), softmax(expected), atol=1e-6)


def test_penalties_see_the_prompt_up_to_their_window(chain, logits):
    sampler = chain(presence_penalty=1.0, repeat_last_n=3)
    sampler.reset([11, 12, 13, 14])
    expected = logits.copy()
    expected[[12, 13, 14]] -= 1
    np.testing.assert_allclose(probs_of(sampler, logits), softmax(expected), atol=1e-6)


def test_a_window_of_minus_one_is_the_trained_context(chain, logits):
    sampler = chain(presence_penalty=1.0, repeat_last_n=-1)
    sampler.reset([11, *[12] * (N_CTX_TRAIN - 1)])
    expected = logits.copy()
    expected[[11, 12]] -= 1
    np.testing.assert_allclose(probs_of(sampler, logits), softmax(expected), atol=1e-6)


def test_a_new_prompt_forgets_the_last_one(chain, logits):
    sampler = chain(repeat_penalty=1.5)
    sampler.reset([])
    expected = probs_of(sampler, logits)
    sampler.reset([int(logits.argmax())])
    assert probs_of(sampler, logits).max() < expected.max()
    sampler.reset([])
    assert np.array_equal(probs_of(sampler, logits), expected)


def test_dry_stops_a_repetition(chain, vocabulary, logits):
    phrase = [50, 60, 70, 80, 90]
    logits[90] = logits.max() + 1
    sampler = chain(temperature=0.0, dry_multiplier=5.0)
    sampler.reset([*phrase, 100, 101, *phrase[:-1]])
    assert sampler.distribution(logits.copy()).ids != [90]
    sampler.reset([100, 101])
    assert sampler.distribution(logits.copy()).ids == [90]


def test_xtc_drops_the_likeliest_now_and_then_and_repeats_itself(chain, logits):
    sampler = chain(xtc_probability=0.5, xtc_threshold=0.05, seed=3)

    def bests():
        sampler.reset([])
        return [int(probs_of(sampler, logits).argmax()) for _ in range(40)]

    first = bests()
    assert 0 < sum(best != int(logits.argmax()) for best in first) < 40
    assert bests() == first


def test_logit_bias_adds_to_the_logits(chain, logits):
    expected = logits.copy()
    expected[[7, 9]] += [2.5, -100]
    np.testing.assert_allclose(
        probs_of(chain(logit_bias=((7, 2.5), (9, -100.0))), logits), softmax(expected), atol=1e-6
    )


def test_an_infinite_bias_forbids(chain, logits):
    best = int(logits.argmax())
    assert probs_of(chain(logit_bias=((best, -np.inf),)), logits)[best] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("repeat_penalty", [1.0, 1.5])
def test_banned_ids_never_appear(vocabulary, logits, temperature, repeat_penalty):
    banned = np.argsort(-logits)[:3].tolist()
    params = SamplingParams(**{**NEUTRAL, "temperature": temperature, "repeat_penalty": repeat_penalty})
    sampler = make_sampler(vocabulary, params, N_CTX_TRAIN, banned)
    sampler.reset(banned)
    assert not probs_of(sampler, logits)[banned].any()


def test_greedy_without_settings_needs_no_chain(vocabulary, logits):
    sampler = make_sampler(vocabulary, SamplingParams(), N_CTX_TRAIN)
    assert isinstance(sampler, GreedySampler)
    assert sampler.distribution(logits.copy()).ids == [logits.argmax()]


@pytest.mark.parametrize("setting", [{"repeat_penalty": 1.5}, {"dry_multiplier": 1.0}, {"logit_bias": ((7, 0.0),)}])
def test_greedy_with_settings_is_a_chain_and_a_point_mass(vocabulary, logits, setting):
    sampler = make_sampler(vocabulary, SamplingParams(**setting), N_CTX_TRAIN)
    assert isinstance(sampler, ChainSampler)
    assert sampler.is_greedy
    sampler.reset([])
    distribution = sampler.distribution(logits.copy())
    assert (distribution.ids, distribution.probs) == ([logits.argmax()], [1.0])


def test_a_greedy_chain_takes_the_likeliest_after_penalties(vocabulary, logits):
    first, second = np.argsort(-logits)[:2].tolist()
    sampler = make_sampler(vocabulary, SamplingParams(presence_penalty=50.0), N_CTX_TRAIN)
    sampler.reset([])
    assert sampler.distribution(logits.copy()).ids == [first]
    sampler.accept(first)
    assert sampler.distribution(logits.copy()).ids == [second]


def test_a_fork_does_not_touch_the_original(chain, logits):
    sampler = chain(repeat_penalty=1.5)
    sampler.reset([7])
    expected = probs_of(sampler, logits)
    fork = sampler.fork()
    assert np.array_equal(probs_of(fork, logits), expected)
    fork.accept(int(logits.argmax()))
    assert not np.array_equal(probs_of(fork, logits), expected)
    assert np.array_equal(probs_of(sampler, logits), expected)


def test_the_original_does_not_touch_a_fork_that_outlives_it(chain, logits):
    sampler = chain(repeat_penalty=1.5)
    sampler.reset([7])
    fork = sampler.fork()
    expected = probs_of(fork, logits)
    sampler.accept(int(logits.argmax()))
    del sampler
    assert np.array_equal(probs_of(fork, logits), expected)


def test_a_distribution_outlives_the_next_one(chain, logits):
    sampler = chain(top_k=20)
    first = sampler.distribution(logits.copy())
    ids, probs = first.ids.copy(), first.probs.copy()
    sampler.distribution(-logits)
    assert np.array_equal(first.ids, ids)
    assert np.array_equal(first.probs, probs)
