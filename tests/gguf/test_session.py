"""Two files and a prompt, end to end: the text is the target's, with and without a draft."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from specgen.errors import (
    ConfigError,
    ContextLengthError,
    IncompatiblePairError,
    ModelLoadError,
    ModelNotFoundError,
)
from specgen.llama.model import LoadCancelledError
from specgen.session import Decoding, Session, SessionParams
from specgen.types import AcceptRule, FinishReason, Request
from tests import tiny_gguf
from tests.gguf.helpers import PROMPT, answer, answer_of, open_session, some_tokens
from tests.unit.helpers import check_counts

OTHER_PROMPT = "the other one, and longer: " * 3
PAIRS = {
    "full": ("llama", "llama_draft"),
    "sliding window": ("gemma3", "gemma3_draft"),
    "snapshots": ("lfm2", "llama_draft"),
}
EVERY_PAIR = pytest.mark.parametrize("kind", PAIRS)
SETTINGS = {
    "repeat penalty": {"repeat_penalty": 1.3},
    "presence and frequency": {"presence_penalty": 0.8, "frequency_penalty": 0.4, "repeat_last_n": -1},
    "DRY": {"dry_multiplier": 2.0},
    "bias": {"logit_bias": ((tiny_gguf.FIRST_BYTE + ord("e"), 3.0), (tiny_gguf.FIRST_BYTE + ord("t"), -np.inf))},
}
EVERY_SETTING = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
EOG_IS_NEAR = {"logit_bias": ((tiny_gguf.IM_END, 6.0),)}
"""Lifts the end of generation just enough to win now and then."""
N_PROMPT = 60
LONG_PROMPT = some_tokens(N_PROMPT)


@pytest.fixture(scope="module")
def paths(tiny_models):
    """Target and draft of a kind of pair."""
    return lambda kind: tuple(getattr(tiny_models, name) for name in PAIRS[kind])


@pytest.fixture(scope="module")
def plain(paths):
    """The answer of the target alone; same questions are asked once."""

    @cache
    def ask(kind, **question):
        return answer_of(paths(kind)[0], None, **question)

    return ask


@pytest.fixture
def pair(paths, kind):
    return paths(kind)


def assert_same(metrics, expected):
    assert metrics.token_ids == expected.token_ids
    assert metrics.text == expected.text
    assert metrics.finish_reason == expected.finish_reason


@EVERY_PAIR
@pytest.mark.parametrize("gamma", range(9))
def test_greedy_text_is_the_same_for_every_draft_length(pair, plain, kind, gamma):
    metrics = answer_of(*pair, gamma)
    assert_same(metrics, plain(kind))
    stats = check_counts(metrics)
    if gamma:
        assert 0 < stats.n_accepted < stats.n_drafted


@EVERY_PAIR
@EVERY_SETTING
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_greedy_text_with_settings_is_the_same_for_every_draft_length(pair, plain, kind, setting, gamma):
    metrics = answer_of(*pair, gamma, **setting)
    assert_same(metrics, plain(kind, **setting))
    assert metrics.token_ids != plain(kind).token_ids
    assert check_counts(metrics).n_drafted


@EVERY_PAIR
@pytest.mark.parametrize(
    "setting", [{}, {"repeat_penalty": 1.3}, {"xtc_probability": 0.5, "xtc_threshold": 0.05}], ids=str
)
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_a_seed_means_one_text_when_matching(pair, plain, kind, setting, gamma):
    question = {"temperature": 0.8, "seed": 7, **setting}
    metrics = answer_of(*pair, gamma, accept=AcceptRule.MATCH, **question)
    assert_same(metrics, plain(kind, **question))
    assert metrics.token_ids != plain(kind).token_ids
    assert check_counts(metrics).n_accepted


@EVERY_PAIR
def test_a_seed_means_one_text_when_rejecting(pair):
    question = {"temperature": 1.5, "seed": 7}
    first = answer_of(*pair, **question)
    assert 0 < check_counts(first).n_accepted < first.stats().n_drafted
    assert_same(answer_of(*pair, **question), first)
    assert answer_of(*pair, temperature=1.5, seed=8).token_ids != first.token_ids


@pytest.mark.parametrize("kind", ["full", "sliding window"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_drafts_for_itself_is_always_right(paths, plain, kind, temperature):
    target = paths(kind)[0]
    metrics = answer_of(target, target, 4, max_tokens=51, temperature=temperature, accept=AcceptRule.REJECT)
    stats = check_counts(metrics)
    assert (stats.n_drafted, stats.n_accepted, stats.n_rounds) == (40, 40, 10)
    if not temperature:
        assert_same(metrics, plain(kind, max_tokens=51))


@EVERY_PAIR
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_second_prompt_is_answered_as_by_a_fresh_session(pair, temperature):
    expected = answer_of(*pair, prompt=OTHER_PROMPT, temperature=temperature)
    with open_session(*pair) as session:
        answer(session, temperature=temperature)
        assert_same(answer(session, OTHER_PROMPT, temperature=temperature), expected)


@pytest.mark.parametrize("kind", ["mamba", "jamba"])
def test_a_second_prompt_finds_no_state_of_the_first(tiny_models, kind):
    path = getattr(tiny_models, kind)
    expected = answer_of(path, None, prompt=OTHER_PROMPT)
    with open_session(path, None) as session:
        answer(session)
        assert_same(answer(session, OTHER_PROMPT), expected)


@EVERY_PAIR
@pytest.mark.parametrize("n_steps", [0, 1, 2, 5])
def test_an_answer_that_is_closed_early_leaves_the_caches_consistent(pair, plain, kind, n_steps):
    with open_session(*pair, gamma=8) as session:
        engine = session.engine(512, Decoding())
        steps = engine.generate(Request(LONG_PROMPT, 48))
        n_emitted = sum(len(next(steps).tokens) for _ in range(n_steps))
        steps.close()
        if n_steps:
            assert engine.target.n_past == N_PROMPT + n_emitted - 1
        assert_same(answer(session), plain(kind))


@EVERY_PAIR
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 5, 9, 10])
def test_the_token_limit_is_exact(pair, plain, kind, max_tokens):
    metrics = answer_of(*pair, 8, max_tokens=max_tokens)
    assert metrics.token_ids == plain(kind).token_ids[:max_tokens]
    assert metrics.finish_reason is FinishReason.LENGTH
    check_counts(metrics)


@EVERY_PAIR
@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
@pytest.mark.parametrize("n_ctx", [100, 256])
def test_a_full_context_ends_the_answer(pair, plain, kind, gamma, n_ctx):
    """256 is a size that llama.cpp does not round up."""
    question = {"max_tokens": 1000, "n_ctx": n_ctx}
    metrics = answer_of(*pair, gamma, **question)
    assert metrics.finish_reason is FinishReason.LENGTH
    assert metrics.stats().n_prompt + len(metrics.token_ids) == n_ctx + 1
    assert_same(metrics, plain(kind, **question))


@EVERY_PAIR
def test_a_prompt_as_long_as_the_context_gets_one_token(pair):
    metrics = answer_of(*pair, prompt=LONG_PROMPT, n_ctx=N_PROMPT)
    assert (len(metrics.token_ids), metrics.finish_reason) == (1, FinishReason.LENGTH)


def test_a_prompt_longer_than_the_context_is_refused_and_the_next_answered(paths, plain):
    with open_session(*paths("full")) as session:
        answer(session, n_ctx=512)
        with pytest.raises(ContextLengthError, match="the prompt has 513 tokens, the context holds 512") as caught:
            answer(session, some_tokens(513), 10)
        assert "--ctx-size 523" in caught.value.hint
        assert_same(answer(session), plain("full"))


@pytest.mark.parametrize("n_draft_ctx", [N_PROMPT - 1, N_PROMPT, N_PROMPT + 1, N_PROMPT + 20])
def test_a_draft_with_a_shorter_context_drafts_as_long_as_it_can(paths, tmp_path, n_draft_ctx):
    draft = tiny_gguf.write_llama(tmp_path / "short.gguf", noise=0.05, n_ctx_train=n_draft_ctx)
    target = paths("full")[0]
    metrics = answer_of(target, draft, prompt=LONG_PROMPT)
    assert_same(metrics, answer_of(target, None, prompt=LONG_PROMPT))
    assert bool(metrics.stats().n_drafted) == (n_draft_ctx > N_PROMPT)


@EVERY_PAIR
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_an_end_of_generation_ends_the_answer_wherever_it_comes(pair, plain, kind, gamma):
    for seed in range(5):
        prompt = some_tokens(20, seed)
        question = {"prompt": prompt, "max_tokens": 200, **EOG_IS_NEAR}
        expected = answer_of(pair[0], None, **question)
        metrics = answer_of(*pair, gamma, **question)
        assert_same(metrics, expected)
        assert metrics.finish_reason is FinishReason.STOP
        assert tiny_gguf.IM_END not in metrics.token_ids
        check_counts(metrics, ended_by_eog=True)


@EVERY_PAIR
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_ignored_end_of_generation_is_never_said(pair, temperature):
    metrics = answer_of(*pair, 4, max_tokens=200, ignore_eog=True, temperature=temperature, **EOG_IS_NEAR)
    assert (len(metrics.token_ids), metrics.finish_reason) == (200, FinishReason.LENGTH)
    assert not {*metrics.token_ids} & {tiny_gguf.IM_END, tiny_gguf.END_OF_TEXT}


@EVERY_PAIR
@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
def test_a_stop_string_ends_the_answer_before_it(pair, plain, kind, gamma):
    whole = plain(kind).text
    stop = whole[20:23]
    metrics = answer_of(*pair, gamma, stop=(stop, "not in it"))
    assert metrics.text == whole[: whole.index(stop)]
    assert metrics.finish_reason is FinishReason.STOP
    assert metrics.token_ids == plain(kind).token_ids[: len(metrics.token_ids)]
    with open_session(pair[0], None) as session:
        last = session.target.vocabulary.token_bytes(metrics.token_ids[-1])
    assert stop.encode()[-1:] in last


@EVERY_PAIR
def test_the_text_is_what_the_tokens_spell(pair, kind):
    with open_session(*pair) as session:
        metrics = answer(session, max_tokens=200)
        spelled = b"".join(map(session.target.vocabulary.token_bytes, metrics.token_ids)).decode(errors="replace")
    assert spelled.startswith(metrics.text)
    assert len(spelled) - len(metrics.text) <= 1


def test_a_draft_may_know_more_tokens_than_its_target(paths, plain, tmp_path):
    draft = tiny_gguf.write_llama(tmp_path / "padded.gguf", noise=0.05, n_vocab=400)
    metrics = answer_of(paths("full")[0], draft)
    assert_same(metrics, plain("full"))
    assert metrics.stats().n_accepted


def test_a_target_may_know_more_tokens_than_its_draft(paths, plain, tmp_path):
    target = tiny_gguf.write_llama(tmp_path / "padded.gguf", n_vocab=400)
    metrics = answer_of(target, paths("full")[1])
    assert_same(metrics, answer_of(target, None))
    assert metrics.stats().n_accepted


@pytest.mark.xfail(strict=True, reason="the draft is fed the unknown token, and the answer dies of it")
@pytest.mark.parametrize("prompt", [[350, *LONG_PROMPT], LONG_PROMPT], ids=["in the prompt", "in the answer"])
def test_a_token_that_the_draft_does_not_know_ends_drafting_and_not_the_answer(paths, tmp_path, prompt):
    target = tiny_gguf.write_llama(tmp_path / "padded.gguf", n_vocab=400)
    question = {"prompt": prompt, "logit_bias": ((350, 5.5),)}
    expected = answer_of(target, None, **question)
    assert 350 in expected.token_ids
    assert_same(answer_of(target, paths("full")[1], **question), expected)


@pytest.mark.parametrize(
    ("target", "draft", "reason"),
    [
        ("mamba", "llama_draft", "the target's recurrent memory cannot take back rejected tokens"),
        ("jamba", "llama_draft", "the target's hybrid memory cannot take back rejected tokens"),
        ("llama", "mamba", "the draft's recurrent memory cannot take back rejected tokens"),
    ],
)
def test_a_memory_that_cannot_take_back_means_plain_decoding_and_says_so(tiny_models, target, draft, reason):
    target, draft = getattr(tiny_models, target), getattr(tiny_models, draft)
    with open_session(target, draft) as session:
        metrics = answer(session)
        assert (session.speculation.is_on, session.speculation.reason) == (False, reason)
    assert metrics.stats().n_drafted == 0
    assert_same(metrics, answer_of(target, None))
    with open_session(target, draft, requires_draft=True) as session:
        with pytest.raises(ConfigError, match=f"a draft is required, but {reason}") as caught:
            answer(session)
        assert "--require-draft" in caught.value.hint


def test_a_session_says_what_it_drafts_with(paths):
    with open_session(*paths("full"), gamma=3) as session:
        assert session.speculation.is_on
        assert session.speculation.reason == "draft model, γ = 3"
        assert session.speculation.drafters == ("model",)
        assert session.load_s > 0
        assert session.n_ctx == 0
        answer(session, n_ctx=300)
        assert session.n_ctx == 300


@pytest.mark.parametrize(("draft", "gamma", "reason"), [("llama_draft", 0, "γ is 0"), (None, 4, "there is no draft")])
def test_no_draft_means_plain_decoding_or_an_error_where_one_is_required(tiny_models, draft, gamma, reason):
    draft = getattr(tiny_models, draft) if draft else None
    with open_session(tiny_models.llama, draft, gamma) as session:
        assert session.draft is None
        assert (session.speculation.is_on, session.speculation.reason) == (False, reason)
    with pytest.raises(ConfigError, match=f"a draft is required, but {reason}"):
        open_session(tiny_models.llama, draft, gamma, requires_draft=True)


def test_a_pair_of_different_vocabularies_is_refused_with_the_reason(tiny_models, tmp_path):
    draft = tiny_gguf.write_llama(tmp_path / "renamed.gguf", tokens={100: "elsewhere"})
    with pytest.raises(
        IncompatiblePairError,
        match=r"renamed\.gguf cannot draft for llama\.gguf: token 100 is '_' and 'elsewhere'",
    ) as caught:
        open_session(tiny_models.llama, draft)
    assert caught.value.hint
    with pytest.raises(IncompatiblePairError, match="tokenizer types differ: bpe and spm"):
        open_session(tiny_models.llama, tiny_models.gemma3)


def test_a_missing_draft_is_an_error(tiny_models, tmp_path):
    with pytest.raises(ModelNotFoundError):
        open_session(tiny_models.llama, tmp_path / "nothing.gguf")


@pytest.mark.parametrize(
    "draft",
    [
        pytest.param("t5_encoder", marks=pytest.mark.xfail(strict=True, reason="taken for a limit of the machine")),
        pytest.param("bert", marks=pytest.mark.xfail(strict=True, reason="bert is not known as an encoder")),
    ],
)
def test_a_draft_that_cannot_generate_is_an_error(tiny_models, draft):
    with (
        pytest.raises(ModelLoadError, match="encoder"),
        open_session(tiny_models.llama, getattr(tiny_models, draft)) as session,
    ):
        session.engine(512, Decoding())


def test_loading_tells_which_file_and_can_be_cancelled(paths):
    target, draft = paths("full")
    told = []
    with Session(target, draft, SessionParams(), lambda path, fraction: not told.append((path, fraction))):
        assert [path for path, _ in told] == sorted((path for path, _ in told), key=[target, draft].index)
        assert {(target, 1.0), (draft, 1.0)} <= {*told}
    with pytest.raises(LoadCancelledError):
        Session(target, draft, SessionParams(), lambda path, _: path == target)


@EVERY_PAIR
def test_an_interrupted_answer_keeps_what_it_said_and_leaves_the_session_usable(pair, plain, kind):
    is_over = False
    with Session(*pair, SessionParams(), is_cancelled=lambda: is_over) as session:
        engine = session.engine(512, Decoding())
        tokens = []
        prompt = session.target.vocabulary.tokenize(PROMPT, parse_special=True)
        for step in engine.generate(Request(prompt, 48)):
            tokens += [event.token for event in step.tokens]
            is_over = len(tokens) >= 10
        assert step.finish_reason is FinishReason.INTERRUPTED
        assert tokens == plain(kind).token_ids[: len(tokens)]
        is_over = False
        assert_same(answer(session), plain(kind))


def test_a_prompt_can_be_interrupted(paths, plain):
    n_asked = 0

    def is_cancelled():
        nonlocal n_asked
        n_asked += 1
        return n_asked == 2

    with Session(*paths("full"), SessionParams(), is_cancelled=is_cancelled) as session:
        metrics = answer(session, some_tokens(400))
        assert (metrics.token_ids, metrics.finish_reason) == ([], FinishReason.INTERRUPTED)
        assert 0 < session.engine(512, Decoding()).target.n_past < 400
        assert_same(answer(session), plain("full"))


@pytest.mark.parametrize(("n_prompt", "max_tokens", "n_ctx"), [(10, 10, 1000), (10, 5000, 1000), (5, 5, 1000)])
def test_a_context_is_never_longer_than_the_target_was_trained_for(tmp_path, n_prompt, max_tokens, n_ctx):
    path = tiny_gguf.write_llama(tmp_path / "model.gguf", n_ctx_train=1000)
    with open_session(path, None) as session:
        assert session.context_for(n_prompt, max_tokens) == n_ctx


def test_a_context_grows_with_the_prompt(tmp_path):
    path = tiny_gguf.write_llama(tmp_path / "model.gguf", n_ctx_train=100_000)
    with open_session(path, None) as session:
        assert session.context_for(10, 10) == 4096
        assert session.context_for(9000, 1000) == 10_000
