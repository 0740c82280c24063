"""`specgen pull` as a user starts it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.cli.command import end
from tests.hub.conftest import DATA, FILE, REPO

NAME = f"hf:{REPO}/{FILE}"


def test_it_prints_the_path_and_nothing_else_on_stdout(specgen, hub):
    hub.add(REPO, FILE, DATA)
    found = specgen("pull", NAME, "-q")
    assert found.code == 0, found.stderr
    (path,) = found.stdout.splitlines()
    assert Path(path).read_bytes() == DATA
    assert found.err == b""


def test_a_dry_run_fetches_nothing(specgen, hub):
    hub.add(REPO, FILE, DATA)
    found = specgen("pull", NAME, "--dry-run")
    assert found.code == 0
    assert "1.2 MB to fetch" in found.stderr
    assert hub.bodies() == []


def test_killed_half_way_it_goes_on_from_there(specgen, hub):
    content = hub.add(REPO, FILE, DATA, pause_at=len(DATA) // 2)
    process = specgen.start("pull", NAME)
    assert hub.paused.wait(30)
    deadline = time.monotonic() + 30
    while sum(path.stat().st_size for path in specgen.folder.rglob("*.incomplete")) < 0.4 * len(DATA):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    end(process)
    content.pause_at = None
    hub.go.set()
    assert specgen("pull", NAME).code == 0
    assert 0.3 * len(DATA) < hub.bodies()[-1].start <= 0.6 * len(DATA)


def test_errors_are_two_lines(specgen, hub):
    hub.add(REPO, FILE, DATA)
    specgen("pull", f"hf:{REPO}/none.gguf").assert_error(4, "no file none.gguf")
    hub.gated.add(REPO)
    specgen("pull", NAME).assert_error(5, "gated", "hf auth login")
    specgen("pull", "nonsense").assert_error(3, "nonsense", "hf:owner/repo")
