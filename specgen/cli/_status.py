"""A live line at the bottom of the terminal, below text that streams.

The terminal's scroll region keeps the last row free, so the answer flows, wraps and scrolls above it as if the line
were not there, whatever it contains. Rich renders the line; this module places it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

_INTERVAL_S = 0.1
_MIN_ROWS = 4


class StatusBar:
    """One line, redrawn at most every tenth of a second.

    Args:
        console: of the terminal that shows it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = (0, 0)
        self._last_s = 0.0

    def update(self, make_text: Callable[[], Text], n_cells: int = 0) -> None:
        """Show a new line, unless the last one is too fresh; `make_text` is called only when it is shown.

        Args:
            make_text: gives the line.
            n_cells: width of the text in the cursor's line. Where it fills the row, the cursor waits behind the last
                column, a state that some terminals (tmux) do not restore: then the line is left alone.
        """
        now_s = time.monotonic()
        if now_s - self._last_s < _INTERVAL_S:
            return
        self._last_s = now_s
        self.reserve()
        columns, rows = self._size
        if rows >= _MIN_ROWS and not (n_cells and n_cells % columns == 0):
            with self._console.capture() as rendered:
                text = make_text()
                text.truncate(columns - 1, overflow="ellipsis")
                self._console.print(text, end="", no_wrap=True, soft_wrap=True)
            self._write(f"\x1b7\x1b[{rows};1H\x1b[2K{rendered.get()}\x1b8")

    def __enter__(self) -> Self:
        self.reserve()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the row back."""
        columns, rows = self._size
        if columns:
            self._write(f"\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")

    def reserve(self) -> None:
        """Keep the last row out of the scroll region; again after the window changed. Ask before writing text."""
        size = os.get_terminal_size(sys.stderr.fileno())
        if (size.columns, size.lines) == self._size:
            return
        _, old_rows = self._size
        self._size = (size.columns, size.lines)
        if 0 < old_rows < size.lines:
            self._write(f"\x1b7\x1b[{old_rows};1H\x1b[2K\x1b8")  # the old line would become part of the answer
        if size.lines >= _MIN_ROWS:
            # Down and up again, in the same column, makes sure that there is a row below the cursor to keep.
            self._write(f"\x1bD\x1b[1A\x1b7\x1b[1;{size.lines - 1}r\x1b8")

    def _write(self, codes: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(codes)
        sys.stderr.flush()
