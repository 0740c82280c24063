"""The few candidates that reach llama.cpp's chain give what the whole vocabulary gives."""

from __future__ import annotations

import numpy as np
import pytest

from specgen.drafting.model import _confidence
from specgen.llama.preselection import floor_of_kth, preselect
from specgen.llama.samplers import ChainSampler
from specgen.types import SamplingParams
from tests import tiny_gguf
from tests.gguf.helpers import vocabulary_of

N_VOCAB = 5000
N_CTX_TRAIN = 512
NOTHING = np.empty(0, dtype=np.int32)


def normal(random, n):
    return random.normal(0, 3, n)


def tied(random, n):
    """Few distinct values: every cut goes through equal logits."""
    return np.round(random.normal(0, 1, n))


def nearly_all_forbidden(random, n):
    logits = np.full(n, -np.inf)
    n_left = min(n, 12)
    logits[random.choice(n, n_left, replace=False)] = random.normal(0, 1, n_left)
    return logits


def sorted_down(random, n):
    return np.sort(random.normal(0, 3, n))[::-1]


def in_one_group(random, n):
    """The best 300 hide behind each other."""
    logits = random.normal(0, 1, n)
    logits[:: max(1, n // 300)] += 20
    return logits


ROWS = [normal, tied, nearly_all_forbidden, sorted_down, in_one_group]
EVERY_ROW = pytest.mark.parametrize("make", ROWS, ids=[make.__name__ for make in ROWS])


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tiny_gguf.write_llama(tmp_path_factory.mktemp("models") / "wide.gguf", n_vocab=N_VOCAB, n_layer=1)
    with vocabulary_of(path) as vocabulary:
        yield vocabulary


@EVERY_ROW
@pytest.mark.parametrize("n_vocab", [1, 40, 2047, 2048, 5000, 49_152])
@pytest.mark.parametrize("k", [1, 2, 40, 256, 257, 100_000])
def test_the_floor_is_reached_by_at_least_k(make, n_vocab, k):
    logits = make(np.random.default_rng(k), n_vocab).astype(np.float32)
    floor = floor_of_kth(logits, k)
    assert floor <= np.sort(logits)[-min(k, n_vocab)]
    assert (logits >= floor).sum() >= min(k, n_vocab)


def test_few_are_left_where_the_row_is_long():
    logits = normal(np.random.default_rng(1), 150_000).astype(np.float32)
    assert preselect(logits, 40, NOTHING)[0].size < 60
    assert preselect(logits, 1, NOTHING)[0].tolist() == [logits.argmax()]


@EVERY_ROW
def test_movable_ids_are_there_and_do_not_count(make):
    random = np.random.default_rng(2)
    logits = make(random, N_VOCAB).astype(np.float32)
    movable = np.concatenate([np.argsort(-logits)[:50], random.integers(0, N_VOCAB, 50)]).astype(np.int32)
    before = logits.copy()
    ids, floor = preselect(logits, 40, movable)
    np.testing.assert_array_equal(logits, before)
    assert ids.tolist() == sorted({*ids.tolist()})
    assert {*movable.tolist()} <= {*ids.tolist()}
    others = np.delete(logits, movable)
    kept_others = logits[np.setdiff1d(ids, movable)]
    assert kept_others.size >= min(40, others.size)
    assert {*ids.tolist()} >= {*np.flatnonzero(logits >= floor).tolist()}


SETTINGS = {
    "defaults": {},
    "top-k alone": {"top_p": 1.0, "min_p": 0.0},
    "top-k 1": {"top_k": 1},
    "a wide top-k": {"top_k": 200, "top_p": 0.999, "min_p": 0.0},
    "no top-k": {"top_k": 0},
    "no top-k, top-p alone": {"top_k": 0, "min_p": 0.0, "top_p": 0.9},
    "no top-k, min-p alone": {"top_k": 0, "top_p": 1.0, "min_p": 0.01},
    "no top-k, a narrow top-p": {"top_k": 0, "min_p": 0.2, "top_p": 0.1},
    "no cut": {"top_k": 0, "min_p": 0.0, "top_p": 1.0},
    "DRY": {"dry_multiplier": 5.0, "dry_allowed_length": 1},
    "typical without top-k": {"top_k": 0, "typical_p": 0.7},
    "typical": {"typical_p": 0.7},
    "XTC": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "repeat penalty": {"repeat_penalty": 1.7},
    "rewarded repeats": {"repeat_penalty": 0.5, "presence_penalty": -3.0},
    "presence and frequency, all": {"presence_penalty": 0.8, "frequency_penalty": 0.4, "repeat_last_n": -1},
    "bias": {"logit_bias": ((7, 30.0), (4000, -np.inf), (17, 5.0), (99_999, 5.0))},
    "bias and penalty": {"logit_bias": ((7, 30.0), (8, -4.0)), "repeat_penalty": 1.7},
    "greedy with penalty": {"temperature": 0.0, "repeat_penalty": 3.0},
    "greedy with bias": {"temperature": 0.0, "logit_bias": ((7, 3.0), (8, -4.0))},
}


@EVERY_ROW
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_chain_gives_the_same_from_few_candidates_as_from_all(vocabulary, make, setting):
    params = SamplingParams(**{"temperature": 0.8, "seed": 3, **setting})
    random = np.random.default_rng(4)
    prompt = random.integers(0, N_VOCAB, 700).tolist()
    few, every = (ChainSampler(vocabulary, params, N_CTX_TRAIN, banned=[5, 50, 500]) for _ in range(2))
    every._widths = (N_VOCAB,)
    for sampler in (few, every):
        sampler.reset(prompt)
    for _ in range(20):
        logits = make(random, N_VOCAB).astype(np.float32)
        found, expected = (sampler.distribution(logits.copy()) for sampler in (few, every))
        assert_same(found, expected, "xtc_probability" in setting)
        for sampler in (few, every):
            sampler.accept(int(expected.ids[0]))


def assert_same(found, expected, is_xtc):
    """Equal bit for bit, but for equal logits at a cut: which of them stay is llama.cpp's accident.

    XTC cuts at both ends, the other samplers at the lower one.
    """
    np.testing.assert_array_equal(found.probs, expected.probs)
    is_tied = np.unique(expected.probs).size < expected.probs.size
    if not is_tied:
        np.testing.assert_array_equal(found.ids, expected.ids)
    elif not is_xtc:
        is_sure = expected.probs > expected.probs.min()
        pairs = [zip(d.probs[is_sure].tolist(), d.ids[is_sure].tolist(), strict=True) for d in (found, expected)]
        assert sorted(pairs[0]) == sorted(pairs[1])


@pytest.mark.parametrize("n_vocab", [1, 100, 49_152, 262_144])
@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 30.0])
def test_a_drafts_confidence_is_the_softmax_probability(n_vocab, spread):
    random = np.random.default_rng(6)
    logits = random.normal(5, spread, n_vocab).astype(np.float32)
    logits[n_vocab // 2 + 1 :: 7] = -np.inf
    for token in (int(logits.argmax()), 0):
        weights = np.exp(logits.astype(np.float64) - logits.max())
        assert _confidence(logits.copy(), token) == pytest.approx(weights[token] / weights.sum(), abs=1e-6)
