"""Two files and a prompt, end to end: the text is the target's, with and without a draft."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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
from specgen.pairs.compatibility import MAX_PADDING
from specgen.session import Decoding, Session, SessionParams
from specgen.types import AcceptRule, DraftType, FinishReason, Request
from tests import tiny_gguf
from tests.conftest import DRAFT_NOISE, QUIETER
from tests.gguf.helpers import answer, answer_of, ask, open_session, run, some_tokens, steady_question
from tests.unit.helpers import check_counts

OTHER_PROMPT = "the other one, and longer: " * 3
PAIRS = {
    "full": ("llama", "llama_draft"),
    "sliding window": ("gemma3", "gemma3_draft"),
    "snapshots": ("lfm2", "lfm2_draft"),
}
EVERY_PAIR = pytest.mark.parametrize("kind", PAIRS)
CHAINS = [
    (DraftType.LOOKUP,),
    (DraftType.SUFFIX,),
    (DraftType.LOOKUP, DraftType.MODEL),
    (DraftType.SUFFIX, DraftType.MODEL),
    tuple(DraftType),
]
EVERY_CHAIN = pytest.mark.parametrize("chain", CHAINS, ids="+".join)
SETTINGS = {
    "repeat penalty": {"repeat_penalty": 1.3},
    "presence and frequency": {"presence_penalty": 0.8, "frequency_penalty": 0.4, "repeat_last_n": -1},
    "DRY": {"dry_multiplier": 5.0, "dry_allowed_length": 1},
    "bias": {"logit_bias": ((270, 5.0), (275, -np.inf))},
}
EVERY_SETTING = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
EVERY_LOSSLESS_RULE = pytest.mark.parametrize("accept", [AcceptRule.BLOCK, AcceptRule.REJECT])
XTC = {"xtc_probability": 0.5, "xtc_threshold": 0.05}
EOG_IS_NEAR = {"logit_bias": ((tiny_gguf.IM_END, 6.0),)}
"""Lifts the end of generation just enough to win now and then."""
N_PROMPT = 60
LONG_PROMPT = some_tokens(N_PROMPT)


@pytest.fixture(scope="module")
def paths(tiny_models):
    """Target and draft of a kind of pair."""
    return lambda kind: tuple(getattr(tiny_models, name) for name in PAIRS[kind])


@pytest.fixture(scope="module")
def steady(paths):
    """A question for a kind of pair, and the answer of its target alone; every one is looked for once."""

    @cache
    def find(kind, **question):
        return steady_question(paths(kind)[0], **question)

    return find


@pytest.fixture
def pair(paths, kind):
    return paths(kind)


def spell(session, token_ids) -> str:
    return b"".join(map(session.target.vocabulary.token_bytes, token_ids)).decode(errors="replace")


def assert_same(metrics, expected):
    assert metrics.token_ids == expected.token_ids
    assert metrics.text == expected.text
    assert metrics.finish_reason == expected.finish_reason


@EVERY_PAIR
@pytest.mark.parametrize("gamma", range(9))
def test_greedy_text_is_the_same_for_every_draft_length(pair, steady, kind, gamma):
    question, expected = steady(kind)
    metrics = answer_of(*pair, gamma, **question)
    assert_same(metrics, expected)
    stats = check_counts(metrics)
    if gamma:
        assert 0 < stats.n_accepted < stats.n_drafted


@EVERY_PAIR
@EVERY_SETTING
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_greedy_text_with_settings_is_the_same_for_every_draft_length(pair, steady, kind, setting, gamma):
    question, expected = steady(kind, **setting)
    assert expected.token_ids != answer_of(pair[0], None, prompt=question["prompt"]).token_ids
    metrics = answer_of(*pair, gamma, **question)
    assert_same(metrics, expected)
    assert check_counts(metrics).n_accepted


@EVERY_PAIR
@EVERY_CHAIN
@pytest.mark.parametrize("gamma", [None, 1, 8])
@pytest.mark.parametrize("setting", [{}, SETTINGS["repeat penalty"], SETTINGS["DRY"]], ids=["plain", "penalty", "DRY"])
def test_greedy_text_is_the_same_whatever_drafts(pair, steady, kind, chain, gamma, setting):
    question, expected = steady(kind, **setting)
    metrics = answer_of(*pair, gamma, chain, **question)
    assert_same(metrics, expected)
    check_counts(metrics)


@EVERY_PAIR
@EVERY_CHAIN
@pytest.mark.parametrize("gamma", [None, 1, 8])
def test_a_seed_means_one_text_whatever_drafts(pair, steady, kind, chain, gamma):
    question, expected = steady(kind, temperature=0.8, seed=7)
    assert_same(answer_of(*pair, gamma, chain, accept=AcceptRule.MATCH, **question), expected)


@EVERY_PAIR
@pytest.mark.parametrize("setting", [{}, SETTINGS["repeat penalty"], XTC], ids=["plain", "repeat penalty", "XTC"])
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_a_seed_means_one_text_when_matching(pair, steady, kind, setting, gamma):
    question, expected = steady(kind, temperature=0.8, seed=7, **setting)
    assert expected.token_ids != answer_of(pair[0], None, prompt=question["prompt"]).token_ids
    metrics = answer_of(*pair, gamma, accept=AcceptRule.MATCH, **question)
    assert_same(metrics, expected)
    assert check_counts(metrics).n_accepted


@EVERY_PAIR
@EVERY_LOSSLESS_RULE
def test_a_seed_means_one_text_with_the_same_draft(pair, accept):
    question = {"temperature": 1.5, "seed": 7, "accept": accept}
    first = answer_of(*pair, **question)
    assert 0 < check_counts(first).n_accepted < first.stats().n_drafted
    assert_same(answer_of(*pair, **question), first)
    assert answer_of(*pair, **{**question, "seed": 8}).token_ids != first.token_ids


@pytest.mark.parametrize("kind", ["full"])
@EVERY_LOSSLESS_RULE
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_sampled_answers_have_the_targets_distribution(pair, accept, penalty):
    """The first three tokens of 1,000 answers, against the probabilities of all 27 beginnings."""
    sampling = {"temperature": 2.0, "top_k": 3, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": penalty}
    n_answers = 1000
    with open_session(*pair, gamma=2) as session:
        answers = [answer(session, LONG_PROMPT, 3, seed=seed, accept=accept, **sampling) for seed in range(n_answers)]
        expected = probs_of_beginnings(*ask(session, LONG_PROMPT, 3, **sampling), n_tokens=3)
    n_accepted = sum(metrics.stats().n_accepted for metrics in answers)
    assert 0.2 * n_answers < n_accepted < 0.8 * n_answers
    counts = Counter(tuple(metrics.token_ids) for metrics in answers)
    assert {*counts} <= {*expected}
    frequent = {beginning: n_answers * prob for beginning, prob in expected.items() if n_answers * prob >= 5}
    chi_square = sum((counts[beginning] - n) ** 2 / n for beginning, n in frequent.items())
    assert chi_square < 60  # 26 degrees of freedom: one seed in 5,000 would exceed it


def probs_of_beginnings(engine, request, n_tokens):
    """The probability of every sequence of `n_tokens` that can follow the prompt, by feeding the target."""
    beginnings = {(): 1.0}
    for _ in range(n_tokens):
        longer = {}
        for beginning, prob in beginnings.items():
            engine.target.rollback(0)
            engine.sampler.reset([*request.prompt, *beginning])
            row = engine.target.eval([*request.prompt, *beginning], 1)[0]
            distribution = engine.sampler.distribution(row)
            for token, share in zip(distribution.ids.tolist(), distribution.probs.tolist(), strict=True):
                longer[*beginning, token] = prob * share
        beginnings = longer
    return beginnings


@pytest.mark.parametrize("kind", ["full", "sliding window"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_drafts_for_itself_is_always_right(paths, steady, kind, temperature):
    question, expected = steady(kind, max_tokens=51, temperature=temperature)
    target = paths(kind)[0]
    metrics = answer_of(target, target, 4, **question)
    stats = check_counts(metrics)
    assert (stats.n_drafted, stats.n_accepted, stats.n_rounds) == (40, 40, 10)
    if not temperature:
        assert_same(metrics, expected)


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
def test_an_answer_that_is_closed_early_leaves_the_caches_consistent(pair, steady, kind, n_steps):
    question, expected = steady(kind)
    with open_session(*pair, gamma=8) as session:
        engine, request = ask(session, LONG_PROMPT, 48)
        steps = engine.generate(request)
        n_emitted = sum(len(next(steps).tokens) for _ in range(n_steps))
        steps.close()
        if n_steps:
            assert engine.target.n_past == N_PROMPT + n_emitted - 1
        assert_same(answer(session, **question), expected)


@EVERY_PAIR
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 5, 9, 10])
def test_the_token_limit_is_exact(pair, steady, kind, max_tokens):
    question, expected = steady(kind)
    metrics = answer_of(*pair, 8, **{**question, "max_tokens": max_tokens})
    assert metrics.token_ids == expected.token_ids[:max_tokens]
    assert metrics.finish_reason is FinishReason.LENGTH
    check_counts(metrics)


@EVERY_PAIR
@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
@pytest.mark.parametrize("n_ctx", [100, 256])
def test_a_full_context_ends_the_answer(pair, steady, kind, gamma, n_ctx):
    """256 is a size that llama.cpp does not round up."""
    question, expected = steady(kind, max_tokens=1000, n_ctx=n_ctx)
    metrics = answer_of(*pair, gamma, **question)
    assert metrics.finish_reason is FinishReason.LENGTH
    assert metrics.stats().n_prompt + len(metrics.token_ids) == n_ctx + 1
    assert_same(metrics, expected)


@EVERY_PAIR
def test_a_prompt_as_long_as_the_context_gets_one_token(pair):
    metrics = answer_of(*pair, prompt=LONG_PROMPT, n_ctx=N_PROMPT)
    assert (len(metrics.token_ids), metrics.finish_reason) == (1, FinishReason.LENGTH)


def test_a_prompt_longer_than_the_context_is_refused_and_the_next_answered(paths, steady):
    question, expected = steady("full")
    with open_session(*paths("full")) as session:
        with pytest.raises(ContextLengthError, match="the prompt has 513 tokens, the context holds 512") as caught:
            answer(session, some_tokens(513), 10)
        assert "--ctx-size 523" in caught.value.hint
        assert_same(answer(session, **question), expected)


@pytest.mark.parametrize("n_draft_ctx", [19, 20, 21, 40])
def test_a_draft_with_a_shorter_context_drafts_as_long_as_it_can(paths, steady, tmp_path, n_draft_ctx):
    question, expected = steady("full")
    draft = tiny_gguf.write_llama(tmp_path / "short.gguf", noise=DRAFT_NOISE, n_ctx_train=n_draft_ctx)
    metrics = answer_of(paths("full")[0], draft, **question)
    assert_same(metrics, expected)
    assert bool(metrics.stats().n_drafted) == (n_draft_ctx > len(question["prompt"]))


@EVERY_PAIR
@pytest.mark.parametrize("gamma", [1, 4, 8])
@pytest.mark.parametrize("first_seed", [0, 100, 200, 300])
def test_an_end_of_generation_ends_the_answer_wherever_it_comes(pair, steady, kind, gamma, first_seed):
    question, expected = steady(kind, first_seed=first_seed, max_tokens=400, **EOG_IS_NEAR)
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
def test_a_stop_string_ends_the_answer_before_it(pair, steady, kind, gamma):
    question, expected = steady(kind)
    stop = expected.text[20:23]
    metrics = answer_of(*pair, gamma, **question, stop=(stop, "not in it"))
    assert metrics.text == expected.text[: expected.text.index(stop)]
    assert metrics.finish_reason is FinishReason.STOP
    n_tokens = len(metrics.token_ids)
    assert metrics.token_ids == expected.token_ids[:n_tokens]
    with open_session(pair[0], None) as session:
        spelled = [spell(session, expected.token_ids[:n]) for n in (n_tokens - 1, n_tokens)]
    assert [stop in text for text in spelled] == [False, True]


@EVERY_PAIR
def test_the_text_is_what_the_tokens_spell(pair, kind):
    with open_session(*pair) as session:
        metrics = answer(session, max_tokens=200)
        spelled = spell(session, metrics.token_ids)
    assert spelled.startswith(metrics.text)
    assert len(spelled) - len(metrics.text) <= 1


@pytest.mark.parametrize("n_vocab", [300, len(tiny_gguf.bpe().tokens) + MAX_PADDING])
def test_a_draft_may_know_more_tokens_than_its_target(paths, steady, tmp_path, n_vocab):
    question, expected = steady("full")
    draft = tiny_gguf.write_llama(tmp_path / "padded.gguf", loudness=QUIETER, n_vocab=n_vocab)
    assert_same(answer_of(paths("full")[0], draft, **question), expected)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_never_says_what_its_target_does_not_know(paths, steady, tmp_path, temperature):
    """A sampled draft that ended there would make the tokens that both know likelier than the target has them."""
    question, expected = steady("full")
    padded = tiny_gguf.bpe().padded(300)
    padded = replace(padded, spoken=padded.spoken | {*range(283, 300)})
    draft = tiny_gguf.write_llama(tmp_path / "padded.gguf", tokenizer=padded)
    metrics = answer_of(paths("full")[0], draft, **{**question, "temperature": temperature})
    assert temperature or metrics.token_ids == expected.token_ids
    assert {round_.n_drafted for round_ in metrics.rounds[:8]} == {4}


def test_a_target_may_know_more_tokens_than_its_draft(paths, tmp_path):
    target = tiny_gguf.write_llama(tmp_path / "padded.gguf", n_vocab=400)
    question, expected = steady_question(target)
    assert_same(answer_of(target, paths("full")[1], **question), expected)


@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_a_token_that_the_draft_does_not_know_ends_drafting_and_not_the_answer(paths, tmp_path, where):
    target = tiny_gguf.write_llama(tmp_path / "padded.gguf", n_vocab=400)
    question, expected = steady_question(target, logit_bias=((350, 8.0),) if where == "answer" else ())
    if where == "prompt":
        question["prompt"][5] = 350
        expected = answer_of(target, None, **question)
    assert 350 in [*question["prompt"], *expected.token_ids]
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
        assert session.speculation.reason == "model, γ = 3"
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
        "t5_encoder",
        "bert",
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
    with Session(target, draft, SessionParams(0, 0), lambda path, fraction: not told.append((path, fraction))):
        assert [path for path, _ in told] == sorted((path for path, _ in told), key=[target, draft].index)
        assert {(target, 1.0), (draft, 1.0)} <= {*told}
    with pytest.raises(LoadCancelledError):
        Session(target, draft, SessionParams(0, 0), lambda path, _: path == target)


@EVERY_PAIR
def test_an_interrupted_answer_keeps_what_it_said_and_leaves_the_session_usable(pair, steady, kind):
    question, expected = steady(kind)
    is_over = False
    with Session(*pair, SessionParams(0, 0), is_cancelled=lambda: is_over) as session:
        engine, request = ask(session, **question)
        tokens = []
        for step in engine.generate(request):
            tokens += [event.token for event in step.tokens]
            is_over = len(tokens) >= 10
        assert step.finish_reason is FinishReason.INTERRUPTED
        assert tokens == expected.token_ids[: len(tokens)]
        is_over = False
        assert_same(answer(session, **question), expected)


def test_a_prompt_can_be_interrupted(paths, steady):
    question, expected = steady("full")
    answers = iter([False, True])
    with Session(*paths("full"), SessionParams(0, 0), is_cancelled=lambda: next(answers, False)) as session:
        engine, request = ask(session, some_tokens(400), 48)
        metrics = run(engine, request)
        assert (metrics.token_ids, metrics.finish_reason) == ([], FinishReason.INTERRUPTED)
        assert 0 < engine.target.n_past < 400
        assert_same(answer(session, **question), expected)


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


def test_two_drafts_share_one_target_and_each_says_what_it_would_say_alone(tiny_models, steady):
    question, expected = steady("full")
    params = SessionParams(0, 0, gamma=4, draft_types=(DraftType.MODEL,))
    target = tiny_models.llama
    with (
        Session(target, tiny_models.llama_draft, params) as first,
        Session(target, target, params, beside=first) as second,
    ):
        found = [answer(session, **question) for session in (first, second, first)]
        assert first.backends[0] is second.backends[0]
    for metrics in found:
        assert_same(metrics, expected)
    rates = [metrics.stats().draft_acceptance_rate for metrics in found]
    assert rates[0] == rates[2] < rates[1]


def test_the_draft_answers_alone_between_two_answers_that_it_drafts_for(tiny_models, steady):
    question, expected = steady("full")
    with open_session(tiny_models.llama, tiny_models.llama_draft) as session:
        before = answer(session, **question)
        engine = session.draft_engine(512, Decoding())
        alone = run(engine, Request(question["prompt"], question["max_tokens"]))
        after = answer(session, **question)
    assert_same(before, expected)
    assert_same(after, expected)
    assert_same(alone, answer_of(tiny_models.llama_draft, None, **question))


def test_without_a_draft_model_nothing_answers_alone(tiny_models):
    with open_session(tiny_models.llama, None, draft_types=(DraftType.SUFFIX,)) as session:
        assert session.draft_engine(512, Decoding()) is None
