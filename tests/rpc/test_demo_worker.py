"""The demo target on a worker."""

from __future__ import annotations

from tests.pair.conftest import demo  # noqa: F401  (a fixture)


def test_the_demo_target_says_on_a_worker_what_it_says_here(specgen, shared_worker, demo):  # noqa: F811
    words = (demo.target, "Why is the sky blue?", "-n", 60, "--json", "--gpu-layers", "all", "--draft-type", "none")
    here = specgen.run(*words).json
    there = specgen.run(*words, "--rpc", shared_worker.address).json
    assert there["models"]["target"]["devices"] == ["RPC0"]
    assert there["text"] == here["text"]
