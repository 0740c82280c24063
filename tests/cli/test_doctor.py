"""What is here, what is wrong with it, and what to do about it."""

from __future__ import annotations

import http.server
import threading

import pytest

BROKEN = "raise OSError('libllama.so: cannot open shared object file')\n"


@pytest.fixture
def broken_library(tmp_path):
    """An environment in which the native library does not load."""
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text(BROKEN)
    return package.parent


def problems(found):
    return [entry["problem"] for entry in found.json["problems"]]


def test_what_is_here(specgen):
    found = specgen("doctor", "--json").json
    assert found["versions"]["llama-cpp-python"] in found["versions"]["llama.cpp"]
    assert "CPU" in found["backends"]
    assert any(device["name"] == "CPU" for device in found["devices"])
    assert found["memory"]["limits"][0]["free_bytes"] > 0
    assert found["cache"]["path"] == specgen.environment()["SPECGEN_CACHE"]
    assert "hub" not in found


def test_the_text_names_the_same(specgen):
    found = specgen("doctor", env={"COLUMNS": "60"})
    assert found.code == 0
    assert {"versions", "devices", "memory", "cache"} <= {line.split(" ")[0] for line in found.stdout.splitlines()}


def test_it_works_where_the_native_library_does_not(specgen, broken_library):
    path = f"{broken_library}:{specgen.environment()['PYTHONPATH']}"
    found = specgen("doctor", "--json", env={"PYTHONPATH": path})
    assert found.code == 0, found.stderr
    assert any("cannot be loaded" in problem for problem in problems(found))
    assert found.json["devices"] is None
    assert found.json["memory"]["limits"]
    assert "remedy: " in specgen("doctor", env={"PYTHONPATH": path}).stdout


def test_a_cache_that_cannot_be_written_is_a_problem(specgen):
    found = specgen("doctor", "--json", env={"SPECGEN_CACHE": "/dev/null/x"})
    assert any("/dev/null/x cannot be written" in problem for problem in problems(found))


def test_more_threads_than_cpus_are_a_problem(specgen):
    found = specgen("doctor", "--json", env={"OMP_NUM_THREADS": "5000"})
    assert any("OMP_NUM_THREADS is 5000" in problem for problem in problems(found))


def test_a_worker_that_does_not_answer_is_a_problem(specgen):
    found = specgen("doctor", "--json", "--rpc", "127.0.0.1:1")
    assert any("no worker answers at 127.0.0.1:1" in problem for problem in problems(found))


def test_online_asks_the_hub(specgen):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        found = specgen("doctor", "--json", "--online", env={"HF_ENDPOINT": address})
        thread.join()
    assert found.json["hub"]["state"] == "answers"
    found = specgen("doctor", "--json", "--online", env={"HF_ENDPOINT": "http://127.0.0.1:1"})
    assert any("http://127.0.0.1:1 cannot be reached" in problem for problem in problems(found))
