"""`specgen compare` and `specgen report` on tiny models."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import jsonschema
import pytest

import specgen.bench
from tests.cli.command import end, read_until

SCHEMA = json.loads(Path(specgen.bench.__file__).with_name("schemas").joinpath("compare.schema.json").read_text())


@pytest.fixture(scope="session")
def asked(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "prompts.jsonl"
    lines = [{"prompt": "Once upon a time", "category": "story"}, {"prompt": "one two one two", "category": "copy"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture(scope="session")
def words(models, asked):
    return ["compare", models.target, "--draft", models.draft, "--prompts", asked, "-t", 1]


@pytest.fixture(scope="session")
def compared(specgen, words, asked):
    """A comparison, and the file it was saved as."""
    file = asked.with_name("report.json")
    return specgen(*words, "--gamma", "2,4", "--budget", "4s", "-o", file), file


def test_a_comparison_shows_every_arm_and_a_verdict(compared):
    found, file = compared
    assert found.code == 0, found.stderr
    for name in ("plain again", "llama-draft", "llama-draft γ=2", "llama-draft γ=4", "llama-draft: draft alone"):
        assert f"\n{name}\n" in f"\n{found.stdout}"
    verdict = found.stdout.rpartition("\n\n")[2]
    assert verdict.startswith(("use llama-draft: ", "decode plainly: "))
    assert "is a tie" in verdict
    assert "draft alone runs at" in verdict
    tables = found.stdout.rpartition("\n\n")[0].splitlines()
    assert all(len(line) <= 80 for line in tables if "," not in line)
    assert "…" not in found.stdout
    assert str(file) in found.stderr
    assert "left" in found.stderr


def test_the_saved_report_fits_its_schema_and_adds_up(compared):
    data = json.loads(compared[1].read_text())
    jsonschema.validate(data, SCHEMA)
    assert data["state"] in ("complete", "out of time")
    for answer in data["answers"]:
        rounds = answer["rounds"]
        assert len({len(column) for column in rounds.values()}) == 1
        assert sum(rounds["n_tokens"]) + 1 >= answer["n_generated"]
    roles = {arm["name"]: arm["role"] for arm in data["arms"]}
    n_drafted = dict.fromkeys(roles.values(), 0)
    for answer in data["answers"]:
        n_drafted[roles[answer["arm"]]] += sum(answer["rounds"]["n_drafted"])
    assert (n_drafted["plain"], n_drafted["control"], n_drafted["draft"]) == (0, 0, 0)
    assert n_drafted["fixed"] > 0
    (pair,) = data["pairs"]
    assert 0 < pair["n_agreed"] < pair["n_compared"]
    assert set(map(int, data["verify_s"])) >= {1, 2, 4, 8, 16}
    assert pair["step_s"] > 0


def test_arms_take_turns(compared):
    answers = json.loads(compared[1].read_text())["answers"]
    n_arms = len({a["arm"] for a in answers})
    blocks = [answers[i : i + n_arms] for i in range(0, len(answers), n_arms)]
    assert all(len({(a["prompt"], a["repeat"]) for a in block}) == 1 for block in blocks)
    assert all({a["arm"] for a in block} == {a["arm"] for a in answers} for block in blocks)
    assert len({block[0]["arm"] for block in blocks}) > 1


def test_a_saved_report_is_drawn_again_as_it_was(specgen, compared):
    found, file = compared
    assert specgen("report", file).stdout == found.stdout
    assert specgen("report", file, "--json").json["answers"] == json.loads(file.read_text())["answers"]
    assert specgen("report", file, "--csv").stdout.startswith("arm,category,")
    assert specgen("report", file, "--markdown").stdout.startswith("# specgen compare\n")


def test_a_report_beside_itself_has_not_changed(specgen, compared):
    found = specgen("report", compared[1], compared[1])
    assert found.stdout.startswith("nothing changed beyond the noise")
    assert specgen("report", compared[1], compared[1], "--json").json["notes"] == []


def test_two_drafts_share_a_target_and_the_same_draft_twice_is_told_apart(specgen, models, asked):
    words = ["--draft", models.draft, "--draft", models.draft, "--draft", models.target]
    found = specgen("compare", models.target, *words, "--prompts", asked, "-t", 1, "--budget", "2s", "--json").json
    assert [pair["name"] for pair in found["pairs"]] == ["llama-draft", "llama-draft (2)", "llama"]
    jsonschema.validate(found, SCHEMA)
    itself = found["pairs"][2]
    assert itself["n_agreed"] == itself["n_compared"] > 0
    assert found["pairs"][0]["n_agreed"] == found["pairs"][1]["n_agreed"]


def test_a_target_without_a_draft_model_is_compared_too(specgen, models, asked):
    found = specgen("compare", models.target, "--prompts", asked, "-t", 1, "--budget", "1s", "--json").json
    assert found["pairs"][0]["draft"] is None
    assert {arm["role"] for arm in found["arms"]} == {"plain", "control", "pair"}


def test_a_target_that_cannot_take_tokens_back_is_told_why_nothing_pays(specgen, models, asked):
    found = specgen("compare", models.recurrent, "--prompts", asked, "-t", 1, "--budget", "1s")
    assert found.code == 0, found.stderr
    assert "cannot take back rejected tokens" in found.stdout


def test_ctrl_c_prints_what_is_done_and_resume_completes_it(specgen, words, asked):
    file = asked.with_name("partial.json")
    process = specgen.start(*words, "--budget", "1000s", "-o", file, stdin=subprocess.DEVNULL)
    read_until(process.stderr, b"repeat 2")
    process.send_signal(signal.SIGINT)
    found = end(process)
    assert found.code == 130, found.stderr
    assert "is a tie" in found.stdout
    partial = json.loads(file.read_text())
    assert partial["state"] == "interrupted"
    assert specgen(*words, "--budget", "1000s", "--resume", file).code == 0
    whole = json.loads(file.read_text())
    assert whole["state"] == "complete"
    assert whole["settings"]["n_tokens"] == partial["settings"]["n_tokens"]
    n_blocks = len(partial["answers"]) // len(partial["arms"]) * len(partial["arms"])
    assert whole["answers"][:n_blocks] == partial["answers"][:n_blocks]
    assert len(whole["answers"]) == len(whole["arms"]) * len(whole["prompts"]) * whole["settings"]["n_repeats"]


def test_another_comparison_is_not_continued(specgen, compared, models, asked):
    found = specgen("compare", models.draft, "--prompts", asked, "-t", 1, "--resume", compared[1])
    found.assert_error(3, "other", "--resume")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--gamma", "0"], 2, "--gamma"),
        (["--gamma", "two"], 2, "--gamma"),
        (["--budget", "soon"], 2, "--budget"),
        (["--json", "--csv"], 2, "contradict"),
        (["--prompts", "missing.txt"], 4, "missing.txt"),
        (["--resume", "missing.json"], 4, "missing.json"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_loading(specgen, models, more, code, said):
    specgen("compare", models.target, *more).assert_error(code, said)


def test_two_targets_are_refused(specgen, models):
    specgen("compare", models.target, models.draft).assert_error(3, "several targets")
    specgen("report", "missing.json").assert_error(4, "missing.json")
