"""Make docs/run.svg: the screen of a real `specgen run demo` in the middle of an answer.

    python docs/make_picture.py

Runs the command in a pseudo-terminal, lets a terminal emulator read what it writes, and draws the screen with Rich.
"""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 28
PROMPT = "Write a Python function that reverses a linked list, and explain it."
COMMAND = ["specgen", "run", "demo", PROMPT, "--max-tokens", "200"]


def screen_in_the_middle() -> pyte.Screen:
    """The screen after some of the output, with the live line on it."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(sys.executable, [sys.executable, "-m", *COMMAND])
    import fcntl
    import struct
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    taken: str | None = None
    best = pyte.Screen(COLUMNS, ROWS)
    while True:
        try:
            data = os.read(descriptor, 256)
        except OSError:
            break
        if not data:
            break
        stream.feed(data)
        if (
            "tokens per round" in screen.display[-1] and screen.cursor.y < ROWS - 3
        ):  # before the first line scrolls away
            taken = screen.display[-1]
            best.buffer = {y: dict(row) for y, row in screen.buffer.items()}  # type: ignore[assignment]
    os.waitpid(pid, 0)
    if taken is None:
        sys.exit("the live line was never on the screen")
    return best


def draw(screen: pyte.Screen, path: Path) -> None:
    """The screen as an SVG, colours kept."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ " + " ".join(COMMAND[:3]) + f' "{PROMPT}"', style="bold"), soft_wrap=True)
    for y in range(ROWS):
        line = Text()
        for x in range(COLUMNS):
            cell = screen.buffer[y][x] if y in screen.buffer and x in screen.buffer[y] else None
            if cell is not None:
                colour = "" if cell.fg == "default" else cell.fg
                line.append(cell.data, style=f"{'bold ' if cell.bold else ''}{colour}".strip())
        line.rstrip()
        console.print(line, soft_wrap=True)
    console.save_svg(str(path), title="specgen run demo")


if __name__ == "__main__":
    draw(screen_in_the_middle(), Path(__file__).parent / "run.svg")
