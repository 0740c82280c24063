"""The second Ctrl-C leaves at once, even where the first cannot take effect."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess

import pytest

from tests.cli.command import end, read_until
from tests.cli.conftest import PROMPT


@pytest.fixture
def full_pipe():
    """The writing end of a pipe that takes no more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_ctrl_c_twice_leaves_a_command_whose_reader_has_stalled(specgen, models, full_pipe):
    process = specgen.start("run", models.target, PROMPT, "-n", 5, stdin=subprocess.DEVNULL, stdout=full_pipe)
    read_until(process.stderr, b"speculation: ")
    for n_sent in itertools.count(1):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.3)
            break
        except subprocess.TimeoutExpired:
            assert n_sent < 20
    found = end(process)
    assert n_sent > 1
    assert found.code == 130 or n_sent > 2  # a third one may end Python on its way out
    assert "Traceback" not in found.stderr


def test_an_interrupted_answer_is_the_beginning_of_the_whole_one(specgen, models):
    command = ["run", models.long, PROMPT, "--draft", models.draft, "--gamma", 4, "-c", 30_000]
    process = specgen.start(*command, "-n", 20_000, stdin=subprocess.DEVNULL)
    begin = read_until(process.stdout, b"\n")
    process.send_signal(signal.SIGINT)
    found = end(process)
    whole = specgen(*command, "-n", 100).stdout
    text = (begin + found.out).decode()
    assert found.code == 130
    assert text.startswith(whole.removesuffix("\n")) or whole.startswith(text.removesuffix("\n"))
    assert "finish: interrupted" in found.stderr
    assert "tokens per round" in found.stderr
