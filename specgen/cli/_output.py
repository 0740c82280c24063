"""The only module that writes to a stream.

stdout carries the answer, or one JSON object, and nothing else; stderr carries everything about it. What goes to stderr
in which mode is decided here: `--quiet` and `--json` silence all but errors (and, under `--json`, warnings).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from specgen.cli._status import StatusBar
from specgen.errors import DownloadError, SpecgenError, StdoutClosed, UsageError

_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


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
        has_screen = sys.stderr is not None and sys.stderr.isatty()  # whatever FORCE_COLOR wishes
        self._console = Console(stderr=True, highlight=False, force_terminal=has_screen)
        self._console.soft_wrap = not has_screen  # a log file has no width
        self._is_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._bar: StatusBar | None = None
        self._held_newlines = 0
        self._n_cells = 0  # of the answer's last line, to know where the cursor stands

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
            if self._bar is not None:
                self._bar.reserve()
            _write_out(shown.translate(_CONTROLS) if self._is_terminal else shown)
            before, newline, last_line = shown.rpartition("\n")
            self._n_cells = cell_len(last_line) if newline else self._n_cells + cell_len(before + last_line)
            self._held_newlines = 0
        self._held_newlines += len(text) - len(body)

    def leave_terminal(self) -> None:
        """For exits that run no `finally`: what live lines and bars may have left, and the answer's line."""
        if self._bar is not None:
            self._bar.close()
        restore_terminal()
        if self._is_terminal and self._n_cells:
            os.write(sys.stdout.fileno(), b"\n")

    def end_answer(self) -> None:
        """Exactly one newline after the answer."""
        if not self._is_json:
            _write_out("\n")
            self._held_newlines = 0

    def text(self, text: str) -> None:
        """Whole lines that were asked for: a table's, a verdict's, a report's."""
        if not self._is_json:
            _write_out(text.removesuffix("\n") + "\n")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[str]) -> None:
        """A table: drawn on a terminal that is wide enough for it, else `lines`, in which nothing is cut off."""
        if self._is_json:
            return
        width = sum(max(cell_len(row[i]) for row in (columns, *rows)) + 3 for i in range(len(columns))) + 1
        console = Console(highlight=False)
        if not self._is_terminal or console.is_dumb_terminal or width > console.width:
            _write_out("\n".join(lines) + "\n\n")
            return
        table = Table(title=Text(title, style="bold"), title_justify="left")
        for i, column in enumerate(columns):
            table.add_column(Text(column), justify="right" if i else "left", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        with console.capture() as drawn:
            console.print(table)
        _write_out(drawn.get() + "\n")

    def json(self, make_value: Callable[[], dict[str, Any]]) -> None:
        """The one JSON object, where it is wanted."""
        if self._is_json:
            _write_out(json.dumps(make_value(), ensure_ascii=False, indent=2) + "\n")

    @contextmanager
    def status(self) -> Iterator[Callable[[Callable[[], Text]], None]]:
        """A live line at the bottom of the terminal while the answer streams; gives the function that renews it.

        Does nothing where stderr is no terminal that can place a cursor, or where it is silenced.
        """
        if self._is_silent or not self._console.is_terminal or self._console.is_dumb_terminal:
            yield lambda _make_text: None
            return
        with StatusBar(self._console) as bar:
            self._bar = bar
            yield lambda make_text: bar.update(make_text, self._n_cells if self._is_terminal else 0)
            self._bar = None

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

    @contextmanager
    def countdown(self) -> Iterator[Callable[[str, float, float | None], None]]:
        """One bar with the time left, gone when done; gives the function that moves it.

        Where stderr is no terminal, a line whenever what is being done changes before its colon.
        """
        if self._is_silent:
            yield lambda _doing, _fraction, _left_s: None
            return
        if not self._console.is_terminal:
            yield self._plain_countdown()
            return
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[left]}"))
        with Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task("", total=1.0, left="")

            def move(doing: str, fraction: float, left_s: float | None) -> None:
                left = "" if left_s is None else f"{_clock_time(left_s)} left"
                bars.update(task, description=doing, completed=fraction, left=left)

            yield move

    def _plain_countdown(self) -> Callable[[str, float, float | None], None]:
        last = ""

        def move(doing: str, _fraction: float, left_s: float | None) -> None:
            nonlocal last
            stage = doing.split(":")[0]
            if stage != last:
                last = stage
                self.line(stage if left_s is None else f"{stage}, {_clock_time(left_s)} left")

        return move


def _clock_time(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def print_error(error: SpecgenError) -> None:
    """One line for what is wrong, one for the remedy."""
    _use_utf8(sys.stderr)
    _write_error(f"error: {_one_line(error.message)}\n" + (f"hint: {_one_line(error.hint)}\n" if error.hint else ""))


def print_text(text: str) -> None:
    """Text that was asked for, such as the version."""
    _write_out(text + "\n")


def _write_out(text: str) -> None:
    """Write to stdout at once.

    Raises:
        StdoutClosed: its reader has left.
        DownloadError: it cannot be written.
    """
    if sys.stdout is None:
        raise UsageError("stdout is closed", "send it somewhere, for example to /dev/null")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        raise StdoutClosed from None
    except OSError as error:
        abandon_stdout()
        raise DownloadError(f"stdout cannot be written: {error.strerror}", "free some space") from None


def abandon_stdout() -> None:
    """stdout's reader is gone: keep Python from saying so when it flushes at exit."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


def silence_stdout() -> None:
    """Keep native code that prints from reaching stdout, for commands that write nothing there."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.close(descriptor)


def restore_terminal() -> None:
    """What a live line or a progress bar may have left behind, for exits that run no `finally`."""
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b7\x1b[r\x1b8\x1b[?25h\x1b[0m")


def _write_error(text: str) -> None:
    if sys.stderr is None:
        return
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
