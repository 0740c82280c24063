"""A pseudo-terminal with a screen: what a command looks like while it runs, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte

from tests.cli.command import TIMEOUT_S, Specgen

# Makes the terminal the controlling one, so that Ctrl-C and resizes become signals, and becomes the command.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)

STATUS = b"\x1b8"
"""Ends every drawing of the status line: it restores the cursor."""
_DRAWING = re.compile(rb"\x1b7.*?\x1b8", re.DOTALL)


class Screen(pyte.HistoryScreen):
    """pyte's screen, with the rows that scrolled off, and resized as terminals do it: the cursor's row stays.

    Attributes:
        keeps_wrap: a restored cursor still stands behind a full row, as in xterm; False is tmux, which puts it on the
            row's last character.
    """

    keeps_wrap = True

    def restore_cursor(self) -> None:
        is_behind = self.keeps_wrap and bool(self.savepoints) and self.savepoints[-1].cursor.x == self.columns
        super().restore_cursor()
        if is_behind:
            self.cursor.x = self.columns

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        n_lost = max(0, self.cursor.y + 1 - (lines or self.lines))
        cursor = self.cursor.x, self.cursor.y - n_lost
        for y in range(n_lost):
            self.history.top.append(self.buffer[y])
        blank = max(0, self.lines - (lines or self.lines) - n_lost)
        for y in range(self.lines - blank, self.lines):  # rows below the cursor go first
            self.buffer.pop(y, None)
        if n_lost:
            super().resize(self.lines - n_lost, self.columns)
        self.lines = lines or self.lines
        super().resize(lines, columns)
        self.set_margins()
        self.cursor.x, self.cursor.y = cursor


class Terminal:
    """`specgen` on a terminal of its own.

    Args:
        specgen: gives folder and environment.
        words: of the command line.
        columns, rows: size of the window.
        env: changes of the environment.
        streams: stdin, stdout, stderr that are not the terminal.
    """

    def __init__(
        self,
        specgen: Specgen,
        *words: object,
        columns: int = 60,
        rows: int = 12,
        env: dict[str, str] | None = None,
        argv: list[str] | None = None,
        **streams: Any,
    ) -> None:
        self.screen = Screen(columns, rows, history=100_000, ratio=0.5)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, terminal = pty.openpty()
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *(argv or specgen.argv(*words))],
            cwd=specgen.folder,
            env=specgen.environment(env),
            start_new_session=True,
            **{"stdin": terminal, "stdout": terminal, "stderr": terminal, **streams},
        )
        os.close(terminal)

    def wait_for(self, is_reached: Callable[[], bool]) -> None:
        """Show what comes until something holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_reached():
            assert time.monotonic() < deadline, self.raw
            assert self._show_more(), self.raw

    def wait_for_status(self, n_drawings: int = 3) -> None:
        """Show what comes until the status line was drawn so many times more."""
        n_before = self.raw.count(STATUS)
        self.wait_for(lambda: self.raw.count(STATUS) >= n_before + n_drawings)

    def finish(self) -> int:
        """Show everything to the end. Returns the exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._show_more():
            assert time.monotonic() < deadline, self.raw
        os.close(self._master)
        return self.process.wait(TIMEOUT_S)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, columns: int, rows: int) -> None:
        self._set_size(columns, rows)
        self.screen.resize(rows, columns)

    @property
    def rows(self) -> list[str]:
        """All rows, from the first that scrolled off to the last that is not blank."""
        history = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(row.rstrip() for row in [*history, *self.screen.display]).rstrip("\n").split("\n")

    @property
    def written(self) -> str:
        """What was written but for the drawings of the status line."""
        return _DRAWING.sub(b"", self.raw).decode().replace("\r\n", "\n")

    def assert_restored(self) -> None:
        """No scroll region, a cursor, and no status line left."""
        assert self.screen.margins is None
        assert not self.screen.cursor.hidden
        assert not any("tok/s ·" in row for row in self.screen.display), self.screen.display

    def _show_more(self) -> bool:
        """Read and show once; False at the end."""
        ready, _, _ = select.select([self._master], [], [], 0.1)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says EIO when the last process closed the terminal
            data = b""
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def wrapped(text: str, columns: int = 60) -> list[str]:
    """The rows that a text takes on an empty screen; every character is one column wide."""
    return [
        line[at : at + columns].rstrip()
        for line in text.removesuffix("\n").split("\n")
        for at in range(0, max(len(line), 1), columns)
    ]
