"""Texts that answers may resemble: `--draft-corpus`. They are only read, and may be deleted at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from specgen.errors import ConfigError

MAX_BYTES = 4_000_000
"""About a million tokens, which take a second or two to tokenise and index."""


def read_corpus(path: Path, note: Callable[[str], None]) -> Iterator[str]:
    """The texts of a file, or of all text files below a directory, newest first and hidden ones left out.

    Args:
        path: file or directory.
        note: told when there is more than MAX_BYTES, of which the rest is left out.

    Raises:
        ConfigError: nothing that can be read.
    """
    if not path.exists():
        raise ConfigError(f"--draft-corpus {path} does not exist", "give a text file, or a directory of them")
    n_left = MAX_BYTES
    has_text = False
    for file in [path] if path.is_file() else _files_below(path):
        text = _read(file, n_left)
        if text:
            has_text = True
            n_left -= file.stat().st_size
            yield text
        if n_left <= 0:
            note(f"--draft-corpus: only the first {MAX_BYTES:,} bytes are used, newest files first")
            return
    if not has_text:
        raise ConfigError(f"--draft-corpus {path} has no text", "give a text file, or a directory of them")


def _files_below(directory: Path) -> list[Path]:
    files = [
        file
        for file in directory.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(directory).parts)
    ]
    return sorted(files, key=lambda file: (-file.stat().st_mtime, file))


def _read(file: Path, n_bytes: int) -> str:
    """Up to `n_bytes` of a text file; nothing of a file that is no UTF-8 text.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(n_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", "check its permissions") from error
    if b"\0" in data:
        return ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut_off = error.start > len(data) - 4 and len(data) == n_bytes
        return data[: error.start].decode("utf-8") if is_cut_off else ""
