"""A worker on the loopback: a device of type GPU on a machine without one."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cli.command import TIMEOUT_S, Specgen, read_until


@dataclass(frozen=True)
class Worker:
    """A running `specgen worker`."""

    process: subprocess.Popen[bytes]
    address: str

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait. Returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@pytest.fixture(scope="session")
def specgen(tmp_path_factory) -> Specgen:
    return Specgen(tmp_path_factory.mktemp("rpc"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_worker(specgen: Specgen) -> Worker:
    port = free_port()
    process = specgen.start("worker", "--port", port, "--threads", 1)
    assert process.stderr is not None
    read_until(process.stderr, b"Ctrl-C\n")
    return Worker(process, f"127.0.0.1:{port}")


@pytest.fixture
def worker(specgen) -> Iterator[Worker]:
    """One of its own."""
    started = start_worker(specgen)
    with started.process:
        yield started
        started.process.kill()


@pytest.fixture(scope="session")
def shared_worker(specgen) -> Iterator[Worker]:
    """One for all tests that leave it as it is."""
    started = start_worker(specgen)
    with started.process:
        yield started
        assert started.process.poll() is None
        started.process.kill()
