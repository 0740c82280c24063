"""Where the prompt comes from, when that is not simple."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.cli.command import end
from tests.cli.conftest import PROMPT


def n_prompt(specgen, models, *words, **settings):
    found = specgen.run(models.target, *words, "--raw", "-n", 0, "--json", **settings)
    return found.json["stats"]["n_prompt"]


def test_dev_null_is_no_prompt(specgen, models):
    specgen.shell('specgen run "$target" </dev/null', target=models.target).assert_error(2, "no prompt")


def test_no_stdin_does_not_wait_for_a_pipe_that_stays_open(specgen, models):
    process = specgen.start("run", models.target, PROMPT, "--no-stdin", "-n", 3, stdout=subprocess.DEVNULL)
    assert process.wait(60) == 0
    assert b"waiting" not in end(process).err


def test_a_nul_byte_is_part_of_the_prompt(specgen, models):
    assert n_prompt(specgen, models, stdin=b"a\0b") == 3


def test_only_the_newline_that_ends_stdin_is_cut(specgen, models):
    assert n_prompt(specgen, models, stdin=b"\xef\xbb\xbfa\r\nb\r\n") == len("a\r\nb")


@pytest.mark.parametrize("option", ["prompt", "--system"])
def test_an_argument_that_is_not_utf8_is_a_usage_error(specgen, models, option):
    words = [b"\xff"] if option == "prompt" else [PROMPT, option, b"\xff"]
    specgen.run(models.target, *words, "-n", 2, "-q").assert_error(2, "UTF-8")


def test_ctrl_c_while_waiting_for_stdin_leaves(specgen, models):
    process = specgen.start("run", models.target)
    assert b"waiting for the prompt" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    found = end(process)
    assert (found.code, found.out, found.err) == (130, b"", b"")


def test_a_prompt_that_comes_in_pieces_is_read_to_its_end(specgen, models):
    process = specgen.start("run", models.target, "--raw", "-n", 0, "--json")
    for piece in (b"xyz", b"XYZ"):
        process.stdin.write(piece)
        process.stdin.flush()
        time.sleep(0.05)
    assert end(process).json["stats"]["n_prompt"] == len(b"xyzXYZ")
