"""Gemma 3 270M: a base model with a sliding window of 512, as target of a draft made from it."""

from __future__ import annotations

import numpy as np
import pytest

from specgen.engine.backend import MemoryKind
from specgen.engine.metrics import Metrics
from specgen.llama import chat
from specgen.llama.context import ContextParams, LlamaBackend
from specgen.llama.model import LlamaModel
from specgen.session import Decoding, Session, SessionParams
from specgen.types import Request
from tests.unit.helpers import check_counts

PARAMS = ContextParams(n_ctx=1024, max_rows=16, n_threads=2)
PAD = 8  # passes of K-quants are bit-identical in multiples of 8 rows
TEXT = " ".join(f"Station {i}: the train leaves at {i % 24}:{(7 * i) % 60:02d}." for i in range(60))


@pytest.fixture(scope="module")
def target(gemma):
    with LlamaModel(gemma.target) as model:
        yield model


def test_it_is_a_base_model_with_a_window(target):
    assert not chat.has_template(target)
    assert target.n_swa == 512
    assert chat.encode_raw(target.vocabulary, "Hi")[0] == target.vocabulary.bos_id


def test_past_the_window_logits_after_rollbacks_equal_those_of_a_fresh_context(target):
    tokens = chat.encode_raw(target.vocabulary, TEXT)[:720]
    n_before = 640
    assert len(tokens) > n_before + 8 * 4 > target.n_swa
    with LlamaBackend(target, PARAMS) as used, LlamaBackend(target, PARAMS) as fresh:
        assert used.capabilities.memory is MemoryKind.SLIDING_WINDOW
        for backend in (used, fresh):
            for start in range(0, n_before, 64):
                backend.eval(tokens[start : start + 64], n_rows=0)
        for start in range(n_before, n_before + 32, 4):
            good = tokens[start : start + 4]
            used.eval([*good, *[5 + i for i in range(7)]], n_rows=11, pad_to=PAD)  # a draft that is all wrong
            used.rollback(start + 2)
            after = used.eval(good[2:], n_rows=2, pad_to=PAD).copy()
            expected = fresh.eval(good, n_rows=4, pad_to=PAD)[2:]
            np.testing.assert_array_equal(after, expected)


def test_a_pair_runs_past_the_window_and_its_counts_add_up(gemma):
    with Session(gemma.target, gemma.draft, SessionParams(n_threads=2, gamma=4)) as session:
        prompt = chat.encode_raw(session.target.vocabulary, TEXT)[:500]
        metrics = Metrics(len(prompt))
        for step in session.engine(1024, Decoding()).generate(Request(prompt, 60)):
            metrics.add(step)
    stats = check_counts(metrics, ended_by_eog=metrics.finish_reason == "stop")
    assert session.speculation.is_on
    assert stats.n_accepted > 0
