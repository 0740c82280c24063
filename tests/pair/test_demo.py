"""The real demo pair: the same text with and without the draft, and statistics that add up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specgen.engine.metrics import Metrics, Stats
from specgen.llama import chat
from specgen.llama.json_schema import schema_to_gbnf
from specgen.session import Decoding, Session, SessionParams
from specgen.types import AcceptRule, DraftType, Request, SamplingParams
from tests.unit.helpers import check_counts

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from prompts import PROMPTS

N_THREADS = 2
N_CTX = 1024
N_TOKENS = 64
TEXTS = {kind: texts[0] for kind, texts in PROMPTS.items()}


def generate(session: Session, text: str, decoding: Decoding, max_tokens: int = N_TOKENS, stop=()) -> Metrics:
    prompt = chat.encode_chat(session.target, [chat.Message("user", text)])
    metrics = Metrics(len(prompt))
    for step in session.engine(N_CTX, decoding).generate(Request(prompt, max_tokens, stop)):
        metrics.add(step)
    return metrics


@pytest.fixture(scope="module")
def sessions(demo):
    """The pair at several draft lengths; 0 is plain decoding."""
    opened = {
        gamma: Session(demo.target, demo.draft, SessionParams(n_threads=N_THREADS, gamma=gamma))
        for gamma in (0, 1, 4, 8)
    }
    yield opened
    for session in opened.values():
        session.close()


@pytest.fixture(scope="module")
def plain(sessions):
    return {kind: generate(sessions[0], text, Decoding()) for kind, text in TEXTS.items()}


def stats_of(metrics: Metrics) -> Stats:
    return check_counts(metrics, ended_by_eog=metrics.finish_reason == "stop")


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_greedy_text_is_the_same_with_and_without_the_draft(sessions, plain, kind, gamma):
    metrics = generate(sessions[gamma], TEXTS[kind], Decoding())
    assert metrics.token_ids == plain[kind].token_ids
    assert metrics.text == plain[kind].text
    stats = stats_of(metrics)
    assert stats.n_drafted > 0
    assert stats.overhead_s >= 0


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(repeat_penalty=1.3),
        SamplingParams(dry_multiplier=2.0, dry_allowed_length=1),
        SamplingParams(presence_penalty=0.5, frequency_penalty=0.5),
    ],
    ids=["repeat", "dry", "presence"],
)
def test_penalties_see_the_same_window_with_and_without_the_draft(sessions, sampling):
    text = TEXTS["copy"]
    plain = generate(sessions[0], text, Decoding(sampling))
    drafted = generate(sessions[4], text, Decoding(sampling))
    assert drafted.token_ids == plain.token_ids
    assert plain.token_ids != generate(sessions[0], text, Decoding()).token_ids
    assert drafted.stats().n_accepted > 0


@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_sample_and_match_gives_the_text_of_the_seed(sessions, gamma):
    decoding = Decoding(SamplingParams(temperature=0.8, seed=7), AcceptRule.MATCH)
    plain = generate(sessions[0], TEXTS["story"], decoding)
    assert generate(sessions[gamma], TEXTS["story"], decoding).token_ids == plain.token_ids


@pytest.mark.parametrize("accept", [AcceptRule.BLOCK, AcceptRule.REJECT])
def test_sampling_repeats_itself_with_a_seed_and_not_without(sessions, accept):
    def text(seed):
        decoding = Decoding(SamplingParams(temperature=0.8, seed=seed), accept)
        return generate(sessions[4], TEXTS["story"], decoding).text

    assert text(1) == text(1) != text(2)


@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_an_emoji_answer_never_shows_a_replacement_character(sessions, gamma):
    shown = []
    prompt = chat.encode_chat(sessions[gamma].target, [chat.Message("user", "Repeat: 🦊🦊 你好世界 🦊🦊 你好世界")])
    for step in sessions[gamma].engine(N_CTX, Decoding()).generate(Request(prompt, N_TOKENS)):
        shown.append(step.text)
    assert any(ord(c) > 0x2000 for c in "".join(shown))
    assert "\ufffd" not in "".join(shown)


def test_a_stop_string_cuts_the_text_at_the_same_place(sessions, plain):
    whole = plain["code"].text
    stop = whole[40:46]
    cut = generate(sessions[8], TEXTS["code"], Decoding(), stop=(stop,))
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_a_second_shorter_prompt_gives_the_text_of_a_fresh_process(sessions, demo):
    generate(sessions[4], TEXTS["story"], Decoding())
    second = generate(sessions[4], "Hi.", Decoding())
    with Session(demo.target, demo.draft, SessionParams(n_threads=N_THREADS, gamma=4)) as fresh:
        assert generate(fresh, "Hi.", Decoding()).token_ids == second.token_ids


def test_ignored_end_of_generation_tokens_are_never_generated(sessions):
    metrics = generate(sessions[4], "Say hi.", Decoding(ignore_eog=True), max_tokens=100)
    assert len(metrics.token_ids) == 100
    assert not set(metrics.token_ids) & sessions[4].target.vocabulary.eog_ids


PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 20},
        "year_of_birth": {"type": "integer"},
        "occupation": {"enum": ["mathematician", "painter", "sailor"]},
    },
    "required": ["first_name", "year_of_birth", "occupation"],
}
QUESTION = f"Describe Ada Lovelace as JSON with these keys: {', '.join(PERSON['properties'])}."


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("draft_types", [(DraftType.GRAMMAR,), tuple(DraftType)], ids="+".join)
def test_an_answer_fits_its_schema_and_is_the_same_whatever_drafts(demo, sessions, temperature, draft_types):
    sampling = SamplingParams(temperature, grammar=schema_to_gbnf(json.dumps(PERSON)), seed=1)
    decoding = Decoding(sampling, AcceptRule.MATCH)
    plain = generate(sessions[0], QUESTION, decoding, max_tokens=120)
    params = SessionParams(n_threads=N_THREADS, gamma=8, draft_types=draft_types)
    with Session(demo.target, demo.draft, params) as session:
        drafted = generate(session, QUESTION, decoding, max_tokens=120)
    assert drafted.token_ids == plain.token_ids
    person = json.loads(drafted.text)
    assert [*person] == [*PERSON["properties"]]
    assert person["occupation"] in PERSON["properties"]["occupation"]["enum"]
    assert drafted.stats().n_accepted > 3
