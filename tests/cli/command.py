"""The command as a user starts it: a process of its own, bytes on its streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TIMEOUT_S = 60
_CHECKOUT = Path(__file__).parents[2]
_SHAPES_OUTPUT = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@dataclass(frozen=True)
class Result:
    """How a process ended. The streams are decoded strictly: what is not UTF-8 fails the test."""

    code: int
    out: bytes
    err: bytes

    @property
    def stdout(self) -> str:
        return self.out.decode()

    @property
    def stderr(self) -> str:
        return self.err.decode()

    @property
    def json(self) -> dict[str, Any]:
        """The object on stdout, if it is one by the letter of RFC 8259 (no NaN, no Infinity)."""
        return json.loads(self.stdout, parse_constant=_refuse)

    def notes(self) -> list[str]:
        return [line.removeprefix("note: ") for line in self.stderr.splitlines() if line.startswith("note: ")]

    def assert_error(self, code: int, *words: str) -> None:
        """Two lines on stderr, nothing on stdout, and every one of `words` in what they say."""
        lines = self.stderr.splitlines()
        assert self.code == code, self.stderr
        assert [line.split(":")[0] for line in lines] == ["error", "hint"], self.stderr
        assert all(len(line.split(": ", 1)[-1].strip()) > 3 for line in lines), self.stderr
        assert self.out == b""
        for word in words:
            assert word in self.stderr


class Specgen:
    """Starts `specgen` in an empty folder, with a cache of its own and one thread.

    One thread, because the tiny models need no more, and two that wait for each other crawl on a busy machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if name not in _SHAPES_OUTPUT}
        self._environment = inherited | {
            "SPECGEN_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(_CHECKOUT),
            "TERM": "xterm-256color",
        }

    def environment(self, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**self._environment, **(changes or {})}

    def argv(self, *words: object) -> list[str | bytes]:
        """The words of a command line; `run` gets one thread unless it says otherwise."""
        first, *rest = words or ("",)
        threads = ["--threads=1"] if first == "run" else []
        command = [first, *threads, *rest] if words else []
        return [
            sys.executable,
            "-m",
            "specgen",
            *(word if isinstance(word, bytes) else str(word) for word in command),
        ]

    def __call__(self, *words: object, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
        """Run to the end. stdin is a pipe that holds `stdin` and is closed."""
        done = subprocess.run(
            self.argv(*words),
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.environment(env),
            timeout=TIMEOUT_S,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run(self, *words: object, **settings: Any) -> Result:
        """`specgen run`."""
        return self("run", *words, **settings)

    def start(self, *words: object, **streams: Any) -> subprocess.Popen[bytes]:
        """Start and leave running; streams are pipes unless `streams` says otherwise."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(self.argv(*words), cwd=self.folder, env=self.environment(), **{**pipes, **streams})

    def shell(self, script: str, **variables: object) -> Result:
        """A line of sh, in which `$specgen` is the command and the others are `variables`."""
        names = {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            ["sh", "-c", script.replace("specgen run", '"$python" -m specgen run --threads=1')],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.folder,
            env=self.environment({**names, "python": sys.executable}),
            timeout=TIMEOUT_S,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)


def end(process: subprocess.Popen[bytes]) -> Result:
    """Wait for a started process and read the rest of its pipes; kills it if it does not end."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Result(process.returncode, out or b"", err or b"")


def read_until(stream: IO[bytes], word: bytes) -> bytes:
    """What a pipe gives up to and including `word`; fails at its end."""
    seen = b""
    deadline = time.monotonic() + TIMEOUT_S
    while word not in seen:
        assert time.monotonic() < deadline, seen
        data = os.read(stream.fileno(), 4096)
        assert data, seen
        seen += data
    return seen


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
