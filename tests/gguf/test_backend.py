"""LlamaBackend keeps the contract of Backend, whatever the model remembers."""

from __future__ import annotations

import random
from functools import partial
from itertools import islice

import numpy as np
import pytest

from specgen.drafting.model import ModelDrafter
from specgen.engine.backend import MemoryKind
from specgen.errors import BackendError, ModelLoadError
from specgen.llama import library
from specgen.llama.context import ContextParams, LlamaBackend
from specgen.llama.model import LlamaModel
from specgen.llama.samplers import make_sampler
from specgen.types import SamplingParams
from tests.gguf.helpers import assert_close, backend_of, feed, fresh_logits, some_tokens

KINDS = {
    "llama": (MemoryKind.FULL, None),
    "gemma3": (MemoryKind.SLIDING_WINDOW, None),
    "mamba": (MemoryKind.RECURRENT, 0),
    "jamba": (MemoryKind.HYBRID, 0),
    "lfm2": (MemoryKind.HYBRID, 8),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
WITH_ROLLBACK = pytest.mark.parametrize("kind", ["llama", "gemma3", "lfm2"])
WITHOUT_ROLLBACK = pytest.mark.parametrize("kind", ["mamba", "jamba"])
EVERY_CACHE = pytest.mark.parametrize("kv_type", ["f32", "f16"])
UNLIMITED = pytest.mark.parametrize("kind", ["llama", "gemma3"])

TEXT = some_tokens(100)
LONG_TEXT = some_tokens(600)
JUNK = some_tokens(8, seed=1)
WINDOW = 32


@pytest.fixture
def path(tiny_models, kind):
    return getattr(tiny_models, kind)


@EVERY_KIND
def test_capabilities_name_the_memory_and_what_can_be_taken_back(path, kind):
    with backend_of(path, max_rows=9) as backend:
        memory, limit = KINDS[kind]
        assert (backend.capabilities.memory, backend.capabilities.rollback_limit) == (memory, limit)
        assert backend.capabilities.can_verify == (limit != 0)
        assert backend.capabilities.max_rows == 9
        assert backend.capabilities.devices == ("CPU",)


@EVERY_KIND
@pytest.mark.parametrize("n_rows", [1, 4, 9])
def test_a_pass_returns_the_rows_that_were_asked_for(path, n_rows):
    with backend_of(path) as backend:
        rows = backend.eval(TEXT[:20], n_rows)
        assert (rows.shape, rows.dtype) == ((n_rows, backend.n_vocab), np.float32)
        assert rows.flags.writeable
        assert backend.n_past == 20
        assert_close(rows, fresh_logits(path, TEXT[:20], n_rows))


@EVERY_KIND
def test_a_pass_without_rows_only_feeds_the_cache(path):
    with backend_of(path) as backend:
        assert backend.eval(TEXT[:20], 0).shape == (0, backend.n_vocab)
        assert backend.n_past == 20
        assert_close(backend.eval(TEXT[20:21], 1), fresh_logits(path, TEXT[:21]))


@EVERY_KIND
def test_a_text_may_come_in_any_pieces(path):
    expected = fresh_logits(path, TEXT)
    for sizes in ([1, 50, 49], [50, 50], [7] * 14 + [2]):
        with backend_of(path) as backend:
            start = 0
            for size in sizes:
                rows = backend.eval(TEXT[start : start + size], 1)
                start += size
            assert_close(rows, expected)


@EVERY_KIND
def test_the_same_passes_give_the_same_bits(path):
    def passes():
        with backend_of(path) as backend:
            return [backend.eval(tokens, len(tokens)).copy() for tokens in (TEXT[:9], TEXT[9:10], TEXT[10:15])]

    for one, other in zip(passes(), passes(), strict=True):
        assert np.array_equal(one, other)


@EVERY_KIND
def test_time_inside_the_model_is_counted(path):
    with backend_of(path) as backend:
        assert backend.busy_s == 0
        backend.eval(TEXT, 1)
        assert backend.busy_s > 0


@WITH_ROLLBACK
@EVERY_CACHE
@pytest.mark.parametrize("n_kept", [0, 1, 4, 8])
def test_after_a_rollback_the_cache_never_saw_what_was_taken_back(path, kv_type, n_kept):
    """A pending token and eight drafted ones, of which `n_kept` stand."""
    with backend_of(path, kv_type=kv_type) as backend:
        feed(backend, TEXT[:60])
        n_past = 61 + n_kept
        backend.eval(TEXT[60:n_past] + JUNK[n_kept:], 9)
        backend.rollback(n_past)
        assert backend.n_past == n_past
        rows = backend.eval(TEXT[n_past : n_past + 9], 9)
        assert_close(rows, fresh_logits(path, TEXT[: n_past + 9], 9, kv_type=kv_type), kv_type)


@UNLIMITED
def test_the_same_pass_after_a_rollback_gives_the_same_bits(path):
    with backend_of(path) as fresh:
        feed(fresh, TEXT[:60])
        expected = fresh.eval(TEXT[60:65], 5).copy()
    with backend_of(path) as backend:
        feed(backend, TEXT[:60])
        backend.eval(JUNK, 8)
        backend.rollback(60)
        assert np.array_equal(backend.eval(TEXT[60:65], 5), expected)


@WITH_ROLLBACK
@EVERY_CACHE
def test_round_after_round_of_rejected_drafts_leaves_no_trace(path, kv_type):
    """Teacher-forced, past the sliding window: each round verifies one true token and seven wrong ones."""
    n_prompt, n_total = 20, len(TEXT)
    assert n_total > 2 * WINDOW
    expected = fresh_logits(path, TEXT, n_total - n_prompt, kv_type=kv_type)
    with backend_of(path, kv_type=kv_type) as backend:
        feed(backend, TEXT[:n_prompt])
        for n_past in range(n_prompt, n_total):
            row = backend.eval([TEXT[n_past], *some_tokens(7, seed=n_past)], 8)[0]
            assert_close(row, expected[n_past - n_prompt], kv_type)
            backend.rollback(n_past + 1)


@UNLIMITED
def test_a_rollback_across_many_sliding_windows_is_right(path):
    """Longer than the cache that llama.cpp would keep of a window."""
    with backend_of(path, n_ctx=1024) as backend:
        feed(backend, LONG_TEXT)
        backend.rollback(100)
        assert_close(backend.eval(LONG_TEXT[100:109], 9), fresh_logits(path, LONG_TEXT[:109], 9))


@pytest.fixture
def keeps_only_the_window(monkeypatch):
    """Contexts without swa_full: what has left the window may be overwritten."""
    lib = library.load()
    init = lib.llama_init_from_model

    def init_without_swa_full(model, params):
        params.swa_full = False
        return init(model, params)

    monkeypatch.setattr(lib, "llama_init_from_model", init_without_swa_full)


@pytest.mark.parametrize("kind", ["gemma3"])
def test_a_window_that_has_lost_what_a_rollback_needs_raises(path, keeps_only_the_window):
    with backend_of(path, n_ctx=1024) as backend:
        feed(backend, LONG_TEXT[:590])
        backend.eval([LONG_TEXT[590], *JUNK], 9)
        backend.rollback(591)
        assert_close(backend.eval(LONG_TEXT[591:600], 9), fresh_logits(path, LONG_TEXT, 9, n_ctx=1024))
        with pytest.raises(BackendError, match="its sliding window of 32 has lost what a rollback to 360 needs"):
            backend.rollback(360)


@pytest.mark.parametrize("kind", ["gemma3"])
def test_a_window_that_has_lost_everything_raises(path, keeps_only_the_window):
    with backend_of(path, n_ctx=1024) as backend:
        feed(backend, LONG_TEXT)
        with pytest.raises(BackendError, match="has lost what a rollback to 100 needs"):
            backend.rollback(100)


@UNLIMITED
def test_rounds_up_to_the_last_cell_of_the_context_are_right(path):
    n_ctx = 256
    text = some_tokens(n_ctx, seed=2)
    expected = fresh_logits(path, text, 40, n_ctx)
    with backend_of(path, n_ctx) as backend:
        feed(backend, text[: n_ctx - 40])
        for n_past in range(n_ctx - 40, n_ctx):
            junk = some_tokens(min(7, n_ctx - n_past - 1), seed=n_past)
            row = backend.eval([text[n_past], *junk], 1 + len(junk))[0]
            assert_close(row, expected[n_past - (n_ctx - 40)])
            backend.rollback(n_past + 1)
        assert backend.n_past == n_ctx


@EVERY_KIND
def test_everything_can_be_forgotten(path):
    with backend_of(path) as backend:
        first = backend.eval(TEXT[:9], 9).copy()
        feed(backend, TEXT[9:])
        backend.rollback(0)
        assert backend.n_past == 0
        assert np.array_equal(backend.eval(TEXT[:9], 9), first)


@EVERY_KIND
def test_a_rollback_to_the_end_or_beyond_does_nothing(path):
    with backend_of(path) as backend:
        feed(backend, TEXT[:20])
        backend.rollback(20)
        backend.rollback(30)
        assert backend.n_past == 20
        assert_close(backend.eval(TEXT[20:21], 1), fresh_logits(path, TEXT[:21]))


@WITHOUT_ROLLBACK
def test_rollback_refused_by_a_recurrent_memory_raises(path, kind):
    with backend_of(path) as backend:
        feed(backend, TEXT[:20])
        with pytest.raises(BackendError, match=f"{KINDS[kind][0]} memory cannot take back 3 tokens") as caught:
            backend.rollback(17)
        assert caught.value.hint
        assert backend.n_past == 20
        assert_close(backend.eval(TEXT[20:21], 1), fresh_logits(path, TEXT[:21]))


@pytest.mark.parametrize("kind", ["lfm2"])
def test_a_rollback_beyond_the_snapshots_raises(path):
    with backend_of(path, max_rows=5) as backend:
        feed(backend, TEXT[:20])
        with pytest.raises(BackendError, match="cannot take back 5 tokens"):
            backend.rollback(15)
        assert backend.n_past == 20
        backend.rollback(16)
        assert_close(backend.eval(TEXT[16:20], 4), fresh_logits(path, TEXT[:20], 4))


@pytest.mark.parametrize("kind", ["lfm2"])
def test_a_rollback_beyond_the_last_pass_of_a_memory_with_snapshots_raises(path):
    """A pass of n tokens leaves n - 1 snapshots, however many there is room for."""
    with backend_of(path, max_rows=9) as backend:
        feed(backend, TEXT[:20])
        backend.eval(TEXT[20:23], 3)
        with pytest.raises(BackendError):
            backend.rollback(20)
        assert backend.n_past == 23


@pytest.mark.parametrize("kind", ["lfm2"])
def test_a_snapshot_serves_one_rollback_until_the_next_pass(path):
    with backend_of(path) as backend:
        feed(backend, TEXT[:20])
        backend.rollback(19)
        with pytest.raises(BackendError):
            backend.rollback(18)
        assert_close(backend.eval(TEXT[19:21], 2), fresh_logits(path, TEXT[:21], 2))


@UNLIMITED
def test_padding_is_taken_back_and_changes_no_later_logits(path):
    with backend_of(path) as backend:
        feed(backend, TEXT[:20])
        for n_past, size in ((20, 1), (21, 3), (24, 8)):
            rows = backend.eval(TEXT[n_past : n_past + size], size, pad_to=8)
            assert rows.shape == (size, backend.n_vocab)
            assert backend.n_past == n_past + size
            assert_close(rows, fresh_logits(path, TEXT[: n_past + size], size))
        assert_close(backend.eval(TEXT[32:33], 1), fresh_logits(path, TEXT[:33]))


@pytest.mark.parametrize("kind", ["lfm2"])
def test_a_memory_with_snapshots_cannot_be_padded(path):
    """Taking the padding back would use up the one rollback that a pass allows."""
    with backend_of(path) as backend, pytest.raises(BackendError, match="cannot be padded"):
        backend.eval(TEXT[:3], 1, pad_to=8)


@UNLIMITED
def test_padding_fits_at_the_end_of_the_context(path):
    with backend_of(path, n_ctx=256) as backend:
        feed(backend, some_tokens(255))
        backend.eval(TEXT[:1], 1, pad_to=8)
        assert backend.n_past == 256


@UNLIMITED
def test_a_full_context_raises_and_keeps_what_it_held(path):
    text = some_tokens(256)
    with backend_of(path, n_ctx=256) as backend:
        feed(backend, text[:250])
        with pytest.raises(BackendError, match="9 tokens at 250 do not fit the context of 256") as caught:
            backend.eval(JUNK + JUNK[:1], 1)
        assert "--ctx-size" in caught.value.hint
        assert backend.n_past == 250
        assert_close(backend.eval(text[250:], 6), fresh_logits(path, text, 6, n_ctx=256))


@EVERY_KIND
@pytest.mark.parametrize("token", [-1, 1_000_000])
def test_an_id_outside_the_vocabulary_raises_and_keeps_the_cache(path, token):
    with backend_of(path) as backend:
        feed(backend, TEXT[:20])
        with pytest.raises(BackendError, match="llama_decode failed"):
            backend.eval([TEXT[20], token], 1)
        assert backend.n_past == 20
        assert_close(backend.eval(TEXT[20:21], 1), fresh_logits(path, TEXT[:21]))


def test_two_contexts_of_one_model_do_not_disturb_each_other(tiny_models):
    params = ContextParams(n_ctx=512, max_rows=9, n_threads=1, kv_type="f32")
    with LlamaModel(tiny_models.llama) as model, LlamaBackend(model, params) as one, LlamaBackend(model, params) as two:
        feed(one, TEXT[:20])
        feed(two, JUNK)
        assert_close(one.eval(TEXT[20:21], 1), fresh_logits(tiny_models.llama, TEXT[:21]))
        assert two.n_past == 8


@pytest.mark.parametrize(
    "kind",
    [
        "t5_encoder",
        pytest.param(
            "bert",
        ),
    ],
)
def test_an_encoder_is_refused(path):
    with LlamaModel(path) as model, pytest.raises(ModelLoadError, match="encoder: it does not generate") as caught:
        LlamaBackend(model, ContextParams(n_ctx=512, max_rows=1, n_threads=1)).close()
    assert caught.value.hint


@UNLIMITED
def test_a_device_that_chooses_returns_the_likeliest_tokens_with_their_very_logits(path):
    with backend_of(path) as backend:
        row = backend.eval(TEXT[:20], 1)[0].copy()
        for n in (8, 3):
            backend.rollback(0)
            assert backend.shorten(n)
            ids, logits = backend.shortlist(TEXT[:20], n)
            assert ids.tolist() == sorted(np.argsort(-row)[:n].tolist())
            assert logits.tolist() == row[ids].tolist()
        backend.rollback(0)
        assert_close(backend.eval(TEXT[:20], 1), row[None])


@UNLIMITED
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.8, top_k=8, seed=3),
        SamplingParams(temperature=1.2, top_k=3, top_p=0.8),
    ],
    ids=["greedy", "sampled", "cut"],
)
def test_a_draft_is_the_same_whoever_chooses_its_candidates(path, sampling):
    with backend_of(path) as backend:
        sampler = make_sampler(backend.vocabulary, sampling, 512, banned=[int(TEXT[0]), int(TEXT[1])])
        drafts = []
        for shortlist in (None, partial(backend.shortlist, n=64)):
            backend.rollback(0)
            drafter = ModelDrafter(backend, sampler, lambda: random.Random(0).random, shortlist=shortlist)
            drafter.begin(TEXT[:30])
            drafts.append(list(islice(drafter.propose(TEXT[:30]), 6)))
        (whole, short) = drafts
        assert [proposal.token for proposal in whole] == [proposal.token for proposal in short]
        for from_row, from_list in zip(whole, short, strict=True):
            if sampling.is_greedy:  # relative to the list: never less, and near where the list holds nearly all
                assert from_row.confidence - 1e-6 <= from_list.confidence <= 1
            else:
                assert from_list.confidence == pytest.approx(from_row.confidence, rel=1e-6)
