"""The plan of real models beside what llama.cpp takes, and a limit of the process that the plan respects."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.command import Specgen
from tests.gguf.test_footprint import assert_planned


@pytest.fixture(scope="module")
def specgen(tmp_path_factory, demo) -> Specgen:
    return Specgen(tmp_path_factory.mktemp("plan"))


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("kv_type", [None, "q8_0"])
def test_smollm2(demo, role, kv_type):
    assert_planned(getattr(demo, role), 4096, kv_type)


@pytest.mark.parametrize("kv_type", [None, "f32", "q4_0"])
def test_gemma(gemma, kv_type):
    assert_planned(gemma.target, 4096, kv_type)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
def test_a_limit_of_addresses_is_respected_by_plan_and_run(specgen, demo):
    limited = ["sh", "-c", 'ulimit -v 1150000; exec "$0" "$@"']

    def call(*words: object) -> subprocess.CompletedProcess[bytes]:
        argv = [*limited, *specgen.argv(*words)]
        return subprocess.run(
            argv, cwd=specgen.folder, env=specgen.environment(), capture_output=True, check=False, timeout=60
        )

    files = (demo.target, "--draft", demo.draft)
    shown = call("plan", *files)
    assert shown.returncode == 0, shown.stderr
    assert b"ulimit -v 1150000" in shown.stdout
    assert b"does not fit" in shown.stdout
    # The draft alone has no room: the answer goes on without it, and says so.
    shown = call("run", demo.target, "Hello", "--draft", demo.draft, "-n", 3, "-c", 2048)
    assert shown.returncode == 0, shown.stderr
    assert b"no memory for the draft model: RAM needs" in shown.stderr
    # Where it is required, or the target has no room either, there are numbers and a proposal.
    for words in (("--require-draft", "-c", 4096), ("-c", 8192)):
        shown = call("run", demo.target, "Hello", "--draft", demo.draft, "-n", 3, *words)
        assert shown.returncode == 6, shown.stderr
        error, hint = shown.stderr.decode().splitlines()
        assert error.startswith("error: not enough memory: RAM needs ")
        assert "fits" in hint
