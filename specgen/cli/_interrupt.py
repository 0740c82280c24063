"""Ctrl-C: the first asks the answer to stop, the second leaves. SIGTERM leaves too, with the terminal in order."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While active, the first SIGINT only sets `is_set`; a second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether the user asked to stop."""
        return self.is_set

    def __enter__(self) -> Self:
        self._before = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._on_interrupt),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _on_terminate),
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


def _on_terminate(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
