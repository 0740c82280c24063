"""The only module that writes to a stream.

stdout carries the answer, or one JSON object, and nothing else; stderr carries everything about it. What goes to stderr
in which mode is decided here: `--quiet` and `--json` silence all but errors (and, under `--json`, warnings).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from specgen.cli._status import StatusBar
from specgen.errors import SpecgenError

_CONTROLS = {code: "\ufffd" for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"}


class Output:
    """Streams of one command.

    Args:
        is_quiet: nothing on stderr but errors.
        is_json: stdout is one JSON object.
    """

    def __init__(self, *, is_quiet: bool = False, is_json: bool = False) -> None:
        _use_utf8(sys.stdout)
        _use_utf8(sys.stderr)
        self._is_silent = is_quiet or is_json
        self._is_quiet = is_quiet
        self._is_json = is_json
        self._console = Console(stderr=True, highlight=False)
        self._console.soft_wrap = not self._console.is_terminal  # a log file has no width
        self._is_terminal = sys.stdout.isatty()
        self._held_newlines = 0

    def line(self, text: str, style: str = "dim") -> None:
        """A line about the run."""
        if not self._is_silent:
            self._console.print(Text(text, style=style))

    def note(self, text: str) -> None:
        """Something the user should know: an option without effect, a limit that was met."""
        if not self._is_quiet:
            self._console.print(Text.assemble(("note: ", "yellow"), text))

    def answer(self, text: str) -> None:
        """Part of the answer, as it is: no markup. Newlines at its end are held back, so that one ends it all.

        On a terminal, control characters that a model may generate are shown as U+FFFD and not obeyed.
        """
        if self._is_json or not text:
            return
        body = text.rstrip("\n")
        if body:
            shown = "\n" * self._held_newlines + body
            sys.stdout.write(shown.translate(_CONTROLS) if self._is_terminal else shown)
            sys.stdout.flush()
            self._held_newlines = 0
        self._held_newlines += len(text) - len(body)

    def end_answer(self) -> None:
        """Exactly one newline after the answer."""
        if not self._is_json:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._held_newlines = 0

    def json(self, make_value: Callable[[], dict[str, Any]]) -> None:
        """The one JSON object, where it is wanted."""
        if self._is_json:
            sys.stdout.write(json.dumps(make_value(), ensure_ascii=False, indent=2) + "\n")
            sys.stdout.flush()

    @contextmanager
    def status(self) -> Iterator[Callable[[Callable[[], Text]], None]]:
        """A live line at the bottom of the terminal while the answer streams; gives the function that renews it.

        Does nothing where stderr is no terminal that can place a cursor, or where it is silenced.
        """
        if self._is_silent or not self._console.is_terminal or self._console.is_dumb_terminal:
            yield lambda _make_text: None
            return
        bar = StatusBar(self._console)
        with bar:
            yield bar.update

    @contextmanager
    def progress(self) -> Iterator[Callable[[str, float], None]]:
        """Progress bars, one per description, gone when done; gives the function that moves them."""
        if self._is_silent or not self._console.is_terminal:
            yield lambda _description, _fraction: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        tasks: dict[str, TaskID] = {}
        with Progress(*columns, console=self._console, transient=True) as bars:

            def move(description: str, fraction: float) -> None:
                if description not in tasks:
                    tasks[description] = bars.add_task(description, total=1.0)
                bars.update(tasks[description], completed=fraction)

            yield move


def print_error(error: SpecgenError) -> None:
    """One line for what is wrong, one for the remedy."""
    _use_utf8(sys.stderr)
    _write_error(f"error: {_one_line(error.message)}\n" + (f"hint: {_one_line(error.hint)}\n" if error.hint else ""))


def print_text(text: str) -> None:
    """Text that was asked for, such as the version."""
    sys.stdout.write(text + "\n")


def abandon_stdout() -> None:
    """stdout's reader is gone: keep Python from saying so when it flushes at exit."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


def restore_terminal() -> None:
    """What a live line or a progress bar may have left behind, for exits that run no `finally`."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b7\x1b[r\x1b8\x1b[?25h\x1b[0m")


def _write_error(text: str) -> None:
    with_colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if with_colour:
        text = text.replace("error:", "\x1b[1;31merror:\x1b[0m", 1).replace("\nhint:", "\n\x1b[36mhint:\x1b[0m", 1)
    sys.stderr.write(text)
    sys.stderr.flush()


def _use_utf8(stream: TextIO | None) -> None:
    """UTF-8 whatever the locale says; what cannot be encoded is replaced, never an exception."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="replace")


def _one_line(text: str) -> str:
    return " ".join(text.split())
