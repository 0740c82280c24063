"""stdout and stderr in odd circumstances: closed, full, without a reader, under variables that ask for colour."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.command import end
from tests.cli.conftest import PROMPT


def test_stdout_is_the_text_of_json_and_a_newline(specgen, models, answer):
    found = specgen.run(models.target, PROMPT, "--draft", models.draft, "-n", 200, "--json", "-q")
    assert answer.stdout == found.json["text"].rstrip("\n") + "\n"
    assert found.err == b""


def test_newlines_inside_the_answer_are_kept(answer):
    assert answer.stdout.count("\n") > 1


def test_a_wish_for_colour_puts_no_escape_codes_into_a_pipe(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 20, env={"FORCE_COLOR": "1"})
    assert found.code == 0
    assert b"\x1b" not in found.out + found.err


def test_a_reader_that_leaves_gets_no_complaint(specgen, models):
    process = specgen.start("run", models.target, PROMPT, "-n", 50, "--json", stdin=subprocess.DEVNULL)
    process.stdout.close()
    process.stdout = None
    assert end(process).err == b""


def test_a_reader_that_leaves_is_no_failure(specgen, models):
    process = specgen.start("run", models.target, PROMPT, "-n", 50, stdin=subprocess.DEVNULL)
    process.stdout.close()
    process.stdout = None
    assert end(process).code == 0


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"], ids=["closed", "full"])
def test_a_stdout_that_takes_nothing_is_not_called_a_bug(specgen, models, redirection):
    found = specgen.shell(f'specgen run "$target" hi -n 5 {redirection}', target=models.target)
    assert "this is a bug" not in found.stderr
    assert "Traceback" not in found.stderr


def test_a_closed_stderr_keeps_nobody_from_the_answer(specgen, models):
    found = specgen.shell('specgen run "$target" hi -n 5 2>&-', target=models.target)
    assert found.code == 0
    assert len(found.out) > 1
