"""Where the prompt comes from: piped stdin, a file, the argument, in this order, a blank line between."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

from specgen.errors import ModelNotFoundError, UsageError

_PATIENCE_S = 1.0


def read_prompt(argument: str | None, file: Path | None, *, reads_stdin: bool, on_wait: Callable[[], None]) -> str:
    """The whole prompt.

    Args:
        argument: the prompt word of the command line.
        file: `--file`.
        reads_stdin: False under `--no-stdin`.
        on_wait: called once when stdin is open but silent for a second.

    Raises:
        UsageError: there is no prompt, or it is not UTF-8.
        ModelNotFoundError: no such file.
    """
    parts = []
    if reads_stdin and _is_piped():
        parts.append(_decode(_read_stdin(on_wait), "stdin"))
    if file is not None:
        parts.append(_decode(_read_file(file), str(file)))
    if argument is not None:
        parts.append(argument)
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt:
        raise UsageError(
            "no prompt", 'give one: specgen run demo "Why is the sky blue?", --file FILE, or text on stdin'
        )
    return prompt


def require_text(what: str, text: str | None) -> None:
    """Refuse an argument that is an empty stop string, or that the shell passed on as bytes of no encoding.

    Raises:
        UsageError: names the option.
    """
    if what == "--stop" and text == "":
        raise UsageError("--stop must not be empty", "give the text that ends the answer")
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8", "check the encoding of your terminal or script") from None


def _is_piped() -> bool:
    """Whether stdin is something to read: not closed, not a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


def _read_stdin(on_wait: Callable[[], None]) -> bytes:
    descriptor = sys.stdin.fileno()
    if os.name == "posix" and not select.select([descriptor], [], [], _PATIENCE_S)[0]:
        on_wait()
    return sys.stdin.buffer.read()


def _read_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise ModelNotFoundError(f"no such prompt file: {file}", "check the path") from None
    except OSError as error:
        raise UsageError(f"the prompt file {file} cannot be read: {error.strerror}", "give a text file") from None


def _decode(data: bytes, where: str) -> str:
    """UTF-8 without a byte order mark and without the newline that ends a file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            "convert it first, for example: iconv -f latin1 -t utf-8",
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
