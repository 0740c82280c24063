"""No option is dropped without a word: each changes something, is refused, or is noted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import PROMPT


def test_every_option_of_run_is_tried_here(specgen):
    shown = specgen("run", "--help", env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"^│ +(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
    assert len(options) > 25
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [option for option in sorted(options) if f'"{option}"' not in tests] == []


CHANGES = [
    ("--repeat-last-n", ["--repeat-last-n", 1], ["--repeat-penalty", 3]),
    ("--xtc-threshold", ["--xtc-threshold", 0.5], ["--xtc-probability", 1, "--temperature", 1, "--seed", 1]),
]


@pytest.mark.parametrize(("words", "others"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_an_option_that_refines_another_changes_the_text(specgen, models, words, others):
    command = [models.target, PROMPT, "-n", 60, "-q", *others]
    assert specgen.run(*command, *words).out != specgen.run(*command).out


def test_options_of_sampling_are_all_noted_at_temperature_0(specgen, models):
    flags = ["--top-k", "--top-p", "--min-p", "--typical-p", "--xtc-probability", "--xtc-threshold", "--seed"]
    given = [word for flag in flags for word in (flag, 1)]
    noted = "".join(specgen.run(models.target, PROMPT, "-n", 2, *given, "--accept", "reject").notes())
    assert [flag for flag in [*flags, "--accept"] if flag not in noted] == []


def test_the_draft_has_a_gpu_switch_of_its_own(specgen, models):
    command = [models.target, PROMPT, "--draft", models.draft, "-n", 2, "--json"]
    settings = specgen.run(*command, "--gpu-layers", 7, "--draft-gpu-layers", 3).json["settings"]
    assert (settings["gpu_layers"], settings["draft_gpu_layers"]) == (7, 3)


SILENT = {
    "--accept without drafts": (["--temperature", 1, "--accept", "match", "--draft-type", "none"], "--accept"),
    "--gamma without drafts": (["--gamma", 3, "--draft-type", "none"], "--gamma"),
    "--draft-corpus without suffix": (["--draft-corpus", ".", "--draft-type", "lookup"], "--draft-corpus"),
    "--draft-gpu-layers 0 without a draft": (["--draft-gpu-layers", 0], "--draft-gpu-layers"),
    "a penalty over no tokens": (["--repeat-penalty", 3, "--repeat-last-n", 0], "--repeat-penalty"),
    "quiet and verbose": (["--quiet", "--verbose"], "--verbose"),
}


@pytest.mark.parametrize("case", SILENT)
def test_an_option_that_cannot_act_is_noted_or_refused(specgen, models, case):
    words, flag = SILENT[case]
    found = specgen.run(models.target, PROMPT, "-n", 2, *words)
    said = [line for line in found.stderr.splitlines() if line.startswith(("note: ", "error: "))]
    assert any(flag in line for line in said)


@pytest.mark.parametrize(
    "words",
    [["--stop", ""], ["--temperature", "inf"], ["--presence-penalty", "nan"], ["--repeat-penalty", "inf"]],
    ids=lambda words: " ".join(words),
)
def test_a_value_that_means_nothing_is_a_usage_error(specgen, models, words):
    specgen.run(models.target, PROMPT, "-n", 2, "-q", *words).assert_error(2, words[0])


def test_a_stop_string_ends_the_text_before_it(specgen, models):
    whole = specgen.run(models.target, PROMPT, "-n", 100, "-q").stdout
    stop = whole[30:33]
    found = specgen.run(models.target, PROMPT, "-n", 100, "-q", "--stop", "never said", "--stop", stop).stdout
    assert found == whole[: whole.index(stop)] + "\n"


def test_the_last_of_a_repeated_option_counts(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 2, "-n", 3, "--threads", 2, "--json").json
    assert (found["stats"]["n_generated"], found["settings"]["threads"]) == (3, 2)
