"""On a terminal: the live line, Ctrl-C, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.cli.command import end, read_until
from tests.cli.conftest import PROMPT
from tests.cli.terminal import Terminal, wrapped

LONG = ["-n", 20_000, "-c", 30_000]


def test_the_answer_is_on_the_screen_unharmed(specgen, models):
    words = ["run", models.long, PROMPT, "--draft", models.draft, "--gamma", 2, "-n", 2000]
    terminal = Terminal(specgen, *words)
    assert terminal.finish() == 0
    assert terminal.raw.count(b"tokens \xc2\xb7") > 1
    shown = "\n".join(terminal.rows)
    text = specgen(*words).stdout
    assert "\n".join(wrapped(text)) in shown
    terminal.assert_restored()


def test_the_live_line_is_in_the_last_row_while_the_answer_streams(specgen, models):
    terminal = Terminal(specgen, "run", models.long, PROMPT, *LONG)
    terminal.wait_for_status()
    assert "tok/s" in terminal.screen.display[-1]
    terminal.type(b"\x03")
    assert terminal.finish() == 130
    terminal.assert_restored()


def test_a_resize_in_the_middle_does_no_harm(specgen, models):
    terminal = Terminal(specgen, "run", models.long, PROMPT, *LONG)
    terminal.wait_for_status()
    terminal.resize(50, 9)
    terminal.wait_for_status(6)
    assert "tok/s" in terminal.screen.display[-1]
    terminal.type(b"\x03")
    assert terminal.finish() == 130
    terminal.assert_restored()


@pytest.mark.parametrize("settings", [{"rows": 3}, {"env": {"TERM": "dumb"}}], ids=["three rows", "dumb"])
def test_where_no_line_can_be_placed_none_is_shown(specgen, models, settings):
    terminal = Terminal(specgen, "run", models.target, PROMPT, "-n", 200, **settings)
    assert terminal.finish() == 0
    assert b"\x1b[1;" not in terminal.raw.replace(b"\x1b[1;36m", b"").replace(b"\x1b[1;31m", b"")


def test_quiet_has_no_live_line(specgen, models):
    terminal = Terminal(specgen, "run", models.target, PROMPT, "-n", 100, "-q")
    assert terminal.finish() == 0
    assert b"\x1b" not in terminal.raw


def test_control_characters_of_the_answer_are_not_obeyed(specgen, models):
    terminal = Terminal(specgen, "run", models.escaping, PROMPT, "-n", 10, "-q")
    assert terminal.finish() == 0
    assert b"\x1b" not in terminal.raw


def test_no_prompt_on_a_terminal_is_an_error_at_once(specgen, models):
    terminal = Terminal(specgen, "run", models.target)
    assert terminal.finish() == 2
    assert any("no prompt" in row for row in terminal.rows)


def test_no_color_means_no_colour(specgen, models):
    terminal = Terminal(specgen, "run", models.target, PROMPT, "-n", 60, env={"NO_COLOR": "1"})
    assert terminal.finish() == 0
    assert b"\x1b[36m" not in terminal.raw
    assert b"\x1b[1;36m" not in terminal.raw


def test_ctrl_c_keeps_the_answer_so_far_with_statistics(specgen, models):
    process = specgen.start("run", models.long, PROMPT, *LONG, stdin=subprocess.DEVNULL)
    read_until(process.stdout, b" ")
    process.send_signal(signal.SIGINT)
    found = end(process)
    assert found.code == 130
    assert found.out.endswith(b"\n")
    assert "finish: interrupted" in found.stderr
    assert "Traceback" not in found.stderr


def test_ctrl_c_under_json_gives_the_object(specgen, models):
    words = ["run", models.long, PROMPT, *LONG, "--json", "-v"]
    process = specgen.start(*words, stdin=subprocess.DEVNULL)
    read_until(process.stderr, b"reserve took")  # contexts are made; the answer begins
    process.send_signal(signal.SIGINT)
    found = end(process)
    assert found.code == 130
    assert found.json["finish_reason"] == "interrupted"


def test_a_second_ctrl_c_leaves(specgen, models):
    process = specgen.start("run", models.long, PROMPT, *LONG, stdin=subprocess.DEVNULL)
    read_until(process.stdout, b" ")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130


def test_sigterm_leaves_the_terminal_in_order(specgen, models):
    terminal = Terminal(specgen, "run", models.long, PROMPT, *LONG)
    terminal.wait_for_status()
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.finish() == 128 + signal.SIGTERM
    terminal.assert_restored()


def test_text_goes_to_the_pipe_and_the_live_line_to_the_terminal(specgen, models):
    words = ["run", models.long, PROMPT, "--draft", models.draft, "--gamma", 2, "-n", 2000]
    terminal = Terminal(specgen, *words, stdout=subprocess.PIPE)
    out, _ = terminal.process.communicate(timeout=60)
    terminal.finish()
    assert out == specgen(*words).out
    assert b"accepted" in terminal.raw
    terminal.assert_restored()
