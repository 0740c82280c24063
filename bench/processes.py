"""A program that is run to its end, with what it wrote and the memory it took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """A process that ended well."""

    stdout: str
    stderr: str
    peak_bytes: int


def finish(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Finished:
    """Run a program to its end; leave with its last words when it fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        env = {**os.environ, **(environment or {})}
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env)
        peak_bytes = reap(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{''.join(texts)[-2000:]}")
    return Finished(texts[0], texts[1], peak_bytes)


def reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that was not waited for; its peak memory in bytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
