"""Every error that a user can meet, as one tree; the class decides the exit code.

SpecgenError                    1   a bug in specgen
├─ UsageError                   2   the command line or the prompt cannot be used
├─ ConfigError                  3   models.toml, an unknown pair, options that contradict each other
├─ ModelNotFoundError           4   no such file, or a pair whose files are not here
├─ DownloadError                5   network, gating, size or hash mismatch, disk full
├─ ModelLoadError               6   not a GGUF, truncated, unknown architecture
│  └─ NotEnoughMemoryError      6   no room for a context
├─ IncompatiblePairError        7   draft and target do not share a vocabulary
├─ ContextLengthError           8   the prompt does not fit the context
├─ BackendError                 9   llama.cpp failed, or is not there
└─ CheckFailedError            10   a check found what it looks for

Exit code 130 (interrupted) is no error: the answer so far is the result.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_INTERRUPTED = 130


class SpecgenError(Exception):
    """One sentence that says what is wrong, and one that says what to do about it.

    Args:
        message: what happened, on one line, without a trailing period.
        hint: a command or a concrete change; never empty where a remedy exists.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecgenError):
    """The command line, or the prompt that came with it, cannot be used."""

    exit_code = 2


class ConfigError(SpecgenError):
    """models.toml is wrong, a pair is unknown, or options contradict each other."""

    exit_code = 3


class ModelNotFoundError(SpecgenError):
    """A model file, or a file of a known pair, is not here."""

    exit_code = 4


class DownloadError(SpecgenError):
    """A file could not be fetched or stored whole."""

    exit_code = 5


class ModelLoadError(SpecgenError):
    """A file is there, but no model comes out of it."""

    exit_code = 6


class NotEnoughMemoryError(ModelLoadError):
    """The model is fine, but this machine has no room for it."""


class IncompatiblePairError(SpecgenError):
    """Draft and target do not share a vocabulary; the message carries the first difference."""

    exit_code = 7


class ContextLengthError(SpecgenError):
    """The prompt does not fit the context."""

    exit_code = 8


class BackendError(SpecgenError):
    """llama.cpp reported a failure, or its library cannot be loaded."""

    exit_code = 9


class CheckFailedError(SpecgenError):
    """A check that the user asked for found a difference."""

    exit_code = 10


class StdoutClosed(Exception):  # noqa: N818
    """stdout's reader has left: nothing more to do, and no error."""
