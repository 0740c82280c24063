"""The live line never harms the answer, whatever the terminal, the answer or the reader does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import PROMPT
from tests.cli.terminal import STATUS, Terminal, wrapped

ENDLESS = ["-n", 20_000, "-c", 30_000]

AT_THE_LAST_COLUMN = """
from rich.text import Text
from specgen.cli._output import Output

output = Output()
with output.status() as show:
    output.answer(59 * "x" + "A")
    show(lambda: Text("status"))
    output.answer("BC")
    output.end_answer()
"""


@pytest.fixture(scope="module")
def pair(models):
    """Enough text to scroll a small terminal many times, and to draw the line now and then."""
    return ["run", models.target, PROMPT, "--draft", models.draft, "--gamma", 4, "-n", 1800]


def test_an_answer_that_wraps_and_scrolls_is_whole_while_and_after_the_line_shows(specgen, pair):
    terminal = Terminal(specgen, *pair)
    terminal.wait_for_status()
    *above, last = terminal.rows
    so_far = "\n".join(above).rstrip().partition("γ = 4)\n")[2]  # the header ends with it
    text = "\n".join(wrapped(specgen(*pair).stdout))
    assert so_far
    assert text.startswith(so_far)
    assert "tok/s" in last
    assert terminal.finish() == 0
    assert text in "\n".join(terminal.rows)
    assert b"\x1b[r" in terminal.raw
    terminal.assert_restored()
    assert terminal.screen.display[-1].strip() == ""


def test_the_last_character_of_a_full_row_survives_where_a_restored_cursor_stands_on_it(specgen):
    terminal = Terminal(specgen, argv=[sys.executable, "-c", AT_THE_LAST_COLUMN])
    terminal.screen.keeps_wrap = False
    assert terminal.finish() == 0
    assert terminal.rows == [59 * "x" + "A", "BC"]


def test_three_rows_are_all_for_the_answer(specgen, models, answer):
    terminal = Terminal(specgen, "run", models.target, PROMPT, "-n", 200, rows=3)
    assert terminal.finish() == 0
    assert b"tokens \xc2\xb7" not in terminal.raw
    assert "\n".join(wrapped(answer.stdout)) in "\n".join(terminal.rows)


@pytest.mark.parametrize(
    "settings",
    [{"words": ["--json"]}, {"env": {"TERM": "dumb"}}],
    ids=["json", "dumb"],
)
def test_no_escape_codes_where_nobody_wants_them(specgen, models, settings):
    words = ["run", models.target, PROMPT, "-n", 100, *settings.get("words", [])]
    terminal = Terminal(specgen, *words, env=settings.get("env"))
    assert terminal.finish() == 0
    assert b"\x1b" not in terminal.raw


def test_c1_controls_of_the_answer_are_not_obeyed(specgen, models):
    terminal = Terminal(specgen, "run", models.c1, PROMPT, "-n", 4, "-q")
    assert terminal.finish() == 0
    assert "\x9b" not in terminal.raw.decode()


def test_the_terminal_is_restored_when_the_reader_of_stdout_leaves(specgen, models):
    reader, writer = os.pipe()
    terminal = Terminal(specgen, "run", models.long, PROMPT, *ENDLESS, stdout=writer)
    os.close(writer)
    terminal.wait_for_status(1)
    os.close(reader)
    terminal.finish()
    assert STATUS in terminal.raw
    assert b"error" not in terminal.raw
    assert b"Traceback" not in terminal.raw
    terminal.assert_restored()


def test_an_error_on_a_terminal_is_two_lines_and_no_more(specgen):
    terminal = Terminal(specgen, "run", "nowhere.gguf", "hi", stdout=subprocess.DEVNULL, columns=200)
    assert terminal.finish() == 4
    assert [row.split(":")[0] for row in terminal.rows] == ["error", "hint"]
