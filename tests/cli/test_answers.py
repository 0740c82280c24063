"""Streams, prompts and options of `specgen run`."""

from __future__ import annotations

import json

import pytest

from tests.cli.command import end
from tests.cli.conftest import PROMPT

TOP_KEYS = {
    "schema_version",
    "text",
    "token_ids",
    "finish_reason",
    "speculation",
    "models",
    "settings",
    "environment",
    "stats",
}
STATS_KEYS = {
    "n_prompt",
    "n_generated",
    "n_rounds",
    "n_drafted",
    "n_accepted",
    "n_recovered",
    "n_bonus",
    "n_dropped",
    "load_s",
    "calibration_s",
    "prefill_s",
    "ttft_s",
    "draft_prefill_s",
    "decode_s",
    "decode_tok_s",
    "target_s",
    "draft_s",
    "overhead_s",
    "draft_acceptance_rate",
    "alpha_hat",
    "mean_accepted_length",
    "accept_histogram",
    "accept_by_position",
    "speedup_estimated",
    "speedup_predicted",
    "by_drafter",
}


def test_stdout_is_the_text_and_one_newline(answer):
    assert answer.code == 0
    assert answer.stdout.endswith("\n")
    assert not answer.stdout.endswith("\n\n")


def test_stderr_says_what_runs_and_what_came_of_it(answer, models):
    first, *_, last = answer.stderr.splitlines()
    assert models.target.stem in first
    assert models.draft.stem in first
    assert "1 threads" in first
    assert "speculation: on (suffix + model, length chosen as it pays)" in first
    assert last.startswith(("time: ", "stopped drafting: ", "did not draft: "))


def test_no_escape_codes_reach_a_pipe(answer):
    assert b"\x1b" not in answer.out + answer.err


def test_quiet_leaves_stderr_empty(specgen, models, answer):
    quiet = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 200, "-q")
    assert quiet.err == b""
    assert quiet.stdout == answer.stdout


def test_the_text_is_that_of_plain_decoding(specgen, models, answer):
    plain = specgen.run(models.target, PROMPT, "-n", 200, "--gamma", 0)
    assert plain.stdout == answer.stdout
    assert "speculation: off because γ is 0" in plain.stderr


@pytest.fixture(scope="module")
def as_json(specgen, models):
    return specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 120, "--gamma", 4, "--json").json


def test_json_has_the_documented_keys(as_json, models):
    assert as_json.keys() >= TOP_KEYS
    assert as_json["stats"].keys() >= STATS_KEYS
    assert as_json["speculation"].keys() >= {"enabled", "reason", "drafters", "exact"}
    assert as_json["models"]["target"]["path"] == str(models.target)
    assert as_json["models"]["draft"]["path"] == str(models.draft)


def test_the_counts_of_json_add_up(as_json):
    stats = as_json["stats"]
    assert len(as_json["token_ids"]) == stats["n_generated"] == 120
    assert stats["n_accepted"] + stats["n_recovered"] + stats["n_bonus"] + 1 == stats["n_generated"]
    assert sum(stats["accept_histogram"]) == stats["n_rounds"]
    assert stats["n_accepted"] <= stats["n_drafted"]
    assert sum(d["n_drafted"] for d in stats["by_drafter"].values()) == stats["n_drafted"]
    assert stats["draft_acceptance_rate"] == pytest.approx(stats["n_accepted"] / stats["n_drafted"])
    parts = stats["target_s"] + stats["draft_s"] + stats["draft_prefill_s"] + stats["overhead_s"]
    assert parts == pytest.approx(stats["decode_s"])


def test_an_end_of_generation_token_is_progress_but_no_token_of_the_answer(specgen, models):
    found = specgen.run(models.ending, PROMPT, "--draft", models.ending, "-n", 500, "--gamma", 4, "--json").json
    stats = found["stats"]
    assert found["finish_reason"] == "stop"
    assert stats["n_accepted"] + stats["n_recovered"] + stats["n_bonus"] == stats["n_generated"]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_the_token_limit_is_exact(specgen, models, n):
    words = [models.target, PROMPT, "--draft", models.draft, "-n", n, "--gamma", 8, "--json"]
    found = specgen.run(*words).json
    assert found["stats"]["n_generated"] == n
    assert found["finish_reason"] == "length"


def test_generated_text_is_no_markup(specgen, models):
    assert "[bold]b[/]" in specgen.run(models.bold, PROMPT, "-n", 5).stdout


def test_newlines_at_the_end_become_one(specgen, models):
    assert specgen.run(models.newline, PROMPT, "-n", 8).out == b"\n"


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_stdout_is_utf8_under_any_locale(specgen, models, answer, locale):
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 200, env=env)
    assert found.out == answer.out


def raw(specgen, models, *words, **settings):
    """The prompt's length tells which prompt was read."""
    found = specgen.run(models.target, *words, "--raw", "-n", 1, "--json", **settings)
    return found.json["stats"]["n_prompt"]


def test_the_prompt_comes_from_stdin_a_file_and_the_argument_in_this_order(specgen, models, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes("\ufefftwo\r\n".encode())
    whole = raw(specgen, models, "one\n\ntwo\n\nthree")
    assert raw(specgen, models, "three", "--file", file, stdin=b"one\n") == whole
    assert raw(specgen, models, stdin=b"one\n\ntwo\n\nthree\n") == whole
    assert raw(specgen, models, "three", "--no-stdin", stdin=b"one") == raw(specgen, models, "three")


def test_silent_stdin_is_not_waited_for_in_silence(specgen, models):
    process = specgen.start("run", models.target, "-n", "3")
    note = process.stderr.readline()
    assert b"waiting for the prompt on stdin" in note
    process.stdin.write(b"hello")
    assert end(process).code == 0


def test_closed_stdin_is_no_prompt(specgen, models):
    specgen.shell('specgen run "$target" <&-', target=models.target).assert_error(2, "no prompt")
    assert specgen.shell('specgen run "$target" hello -n 3 <&-', target=models.target).code == 0


def test_a_closed_pipe_ends_quietly(specgen, models):
    found = specgen.shell('specgen run "$target" hello -n 3000 -c 4000 -q | head -c 10', target=models.long)
    assert (found.code, len(found.out), found.err) == (0, 10, b"")


CHANGES = [
    ["--system", "Be brief."],
    ["--raw"],
    ["--max-tokens", 7],
    ["--stop", "e"],
    ["--temperature", 1.5, "--seed", 1],
    ["--repeat-penalty", 3],
    ["--presence-penalty", 5],
    ["--frequency-penalty", 5],
    ["--dry-multiplier", 5],
]


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
def test_every_option_of_the_text_changes_it(specgen, models, words):
    plain = specgen.run(models.target, PROMPT, "-n", 60)
    assert specgen.run(models.target, PROMPT, "-n", 60, *words).stdout != plain.stdout


SAMPLED = [["--top-k", 1], ["--top-p", 0.01], ["--min-p", 0.99], ["--typical-p", 0.05], ["--seed", 2]]


@pytest.mark.parametrize("words", SAMPLED, ids=lambda words: words[0])
def test_every_sampling_option_changes_a_sampled_text(specgen, models, words):
    sampled = [
        models.target,
        PROMPT,
        "-n",
        60,
        "--temperature",
        1.5,
        "--seed",
        1,
        "--top-k",
        0,
        "--top-p",
        1,
        "--min-p",
        0,
    ]
    assert specgen.run(*sampled, *words).stdout != specgen.run(*sampled).stdout


def test_xtc_changes_a_sampled_text(specgen, models):
    sampled = [models.target, PROMPT, "-n", 60, "--temperature", 1, "--seed", 1]
    xtc = [*sampled, "--xtc-probability", 1, "--xtc-threshold", 0.01]
    assert specgen.run(*xtc).stdout != specgen.run(*sampled).stdout


def test_ignored_end_of_generation_goes_on_to_the_limit(specgen, models):
    found = specgen.run(models.ending, PROMPT, "-n", 300, "--ignore-eos", "--json").json
    assert (found["finish_reason"], found["stats"]["n_generated"]) == ("length", 300)


@pytest.mark.parametrize("gamma", [0, 1, 16])
def test_gamma_sets_the_draft_length(specgen, models, gamma):
    words = [models.target, PROMPT, "--draft", models.target, "-n", 60, "--gamma", gamma, "--json"]
    stats = specgen.run(*words).json["stats"]
    assert len(stats["accept_by_position"]) == gamma


def test_match_gives_the_text_of_the_seed_whatever_the_draft(specgen, models):
    sampled = [models.target, PROMPT, "-n", 60, "--temperature", 0.8, "--seed", 5]
    plain = specgen.run(*sampled, "--gamma", 0)
    assert specgen.run(*sampled, "--draft", models.draft, "--accept", "match").stdout == plain.stdout


def test_the_context_and_threads_are_those_asked_for(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 2, "-c", 300, "-t", 2, "--json").json
    assert (found["settings"]["ctx_size"], found["settings"]["threads"]) == (300, 2)


def test_a_full_context_ends_the_answer(specgen, models):
    found = specgen.run(models.long, "hi", "--draft", models.draft, "-n", 1000, "-c", 256, "--json").json
    assert found["finish_reason"] == "length"
    assert found["stats"]["n_prompt"] + found["stats"]["n_generated"] == 257


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["--seed", 3], "--seed has no effect at temperature 0"),
        (["--top-k", 3], "--top-k has no effect at temperature 0"),
        (["--accept", "match"], "--accept has no effect at temperature 0"),
        (["--repeat-last-n", 3], "--repeat-last-n has no effect without a penalty"),
        (["--gpu-layers", 3], "no GPU here"),
    ],
)
def test_an_option_without_effect_is_noted(specgen, models, words, note):
    found = specgen.run(models.target, PROMPT, "-n", 2, *words)
    assert found.code == 0
    assert any(note in line for line in found.notes())


def test_a_base_model_gets_raw_completion_and_a_note(specgen, models):
    found = specgen.run(models.plain, PROMPT, "-n", 5)
    assert found.code == 0
    assert any("no chat template" in note for note in found.notes())


def test_a_model_that_cannot_roll_back_decodes_plainly_and_says_why(specgen, models):
    found = specgen.run(models.recurrent, PROMPT, "--draft", models.draft, "-n", 5)
    assert found.code == 0
    assert "speculation: off because the target's recurrent memory cannot take back rejected tokens" in found.stderr


def test_verbose_shows_the_log_of_llama_cpp(specgen, models):
    assert "llama_model_loader" in specgen.run(models.target, PROMPT, "-n", 1, "-v").stderr


def test_what_was_learned_is_kept_for_the_next_run(specgen, models):
    found = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 60, "--gamma", "auto")
    assert "length chosen as it pays" in found.stderr
    kept = list((specgen.folder / "cache" / "learned").glob("*.json"))
    assert kept
    assert all(json.loads(path.read_text())["knowledge"]["cost"]["verify_s"] for path in kept)


def test_json_is_utf8_without_escapes(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 100, "--json")
    assert json.loads(found.out.decode()) == found.json


def test_version_names_llama_cpp_too(specgen):
    found = specgen("--version")
    assert found.code == 0
    assert "llama.cpp" in found.stdout
    assert found.stdout.startswith("specgen ")
