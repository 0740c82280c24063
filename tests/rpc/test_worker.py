"""A target on the devices of a worker."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading

import pytest

from tests.cli.command import end
from tests.cli.terminal import Terminal
from tests.rpc.conftest import free_port

PROMPT = "Once upon a time"


def test_a_target_on_a_worker_says_what_it_says_here(specgen, shared_worker, tiny_models):
    words = (tiny_models.llama, PROMPT, "-n", 60, "--json", "--draft", tiny_models.llama_draft)
    here = specgen.run(*words).json
    there = specgen.run(*words, "--rpc", shared_worker.address, "--gpu-layers", "all").json
    assert there["text"] == here["text"]
    assert here["models"]["target"]["devices"] == ["CPU"]
    assert there["models"]["target"]["devices"] == there["models"]["draft"]["devices"] == ["RPC0"]


def test_the_header_names_devices_addresses_and_layers(specgen, shared_worker, tiny_models):
    words = ("--draft", tiny_models.llama_draft, "--draft-device", "CPU", "--gpu-layers", 2, "-n", 2)
    shown = specgen.run(tiny_models.llama, PROMPT, "--rpc", shared_worker.address, *words).stderr
    assert f"llama on RPC0 ({shared_worker.address}) (2 of 3 layers) + draft llama-draft on CPU" in shown


def test_one_worker_after_another_and_several_at_once(specgen, shared_worker, worker, tiny_models):
    both = ("--rpc", shared_worker.address, "--rpc", worker.address, "--tensor-split", "1,1")
    shown = specgen.run(tiny_models.llama, PROMPT, *both, "-n", 4, "--json").json
    assert shown["models"]["target"]["devices"] == ["RPC0", "RPC1"]
    assert shown["settings"]["tensor_split"] == [1, 1]


def test_the_plan_shows_the_device(specgen, shared_worker, tiny_models):
    plan = specgen("plan", tiny_models.llama, "--rpc", shared_worker.address, "--json").json
    ram, device = plan["devices"]
    assert (ram["name"], device["name"], device["description"]) == ("RAM", "RPC0", shared_worker.address)
    assert device["target"]["kv"] > 0 == ram["target"]["kv"]
    assert device["free_bytes"] > device["need_bytes"] > 0


def test_a_worker_that_dies_during_an_answer_ends_with_one_error(specgen, worker, tiny_models):
    words = (tiny_models.llama, PROMPT, "--rpc", worker.address, "-c", 2048, "-n", 2000, "--ignore-eos")
    terminal = Terminal(specgen, "run", *words, columns=100)
    terminal.wait_for_status()
    worker.end(signal.SIGKILL)
    assert terminal.finish() == 9
    terminal.assert_restored()
    last = terminal.written.splitlines()[-2:]
    assert [line.split(":")[0] for line in last] == ["error", "hint"], last
    assert "worker" in last[0]
    assert terminal.written.count("error:") == 1


def test_in_a_pipe_a_lost_worker_leaves_the_answer_so_far(specgen, worker, tiny_models):
    words = (tiny_models.llama, PROMPT, "--rpc", worker.address, "-c", 2048, "-n", 2000, "--ignore-eos", "-q")
    process = specgen.start("run", *words, stdin=subprocess.DEVNULL)
    assert process.stdout.read(20)
    worker.end(signal.SIGKILL)
    found = end(process)
    assert found.code == 9
    assert [line.split(":")[0] for line in found.stderr.splitlines()] == ["error", "hint"], found.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_ends_cleanly(worker, number):
    assert worker.end(number) == 0
    assert worker.process.stdout.read() == b""
    assert worker.process.stderr.read() == b"worker ended\n"


def test_a_port_that_is_taken_is_one_error(specgen, shared_worker):
    port = shared_worker.address.rpartition(":")[2]
    specgen("worker", "--port", port).assert_error(3, "cannot listen on", port, "--port")


def test_no_worker_is_one_error_with_the_command_that_starts_one(specgen, tiny_models):
    port = free_port()
    shown = specgen.run(tiny_models.llama, PROMPT, "--rpc", f"127.0.0.1:{port}")
    shown.assert_error(9, "no worker answers", f"specgen worker --host 127.0.0.1 --port {port}")


@pytest.mark.parametrize("address", ["127.0.0.1", "50052", "host:port", "a:0", "a:70000"])
def test_an_address_needs_host_and_port(specgen, tiny_models, address):
    specgen("plan", tiny_models.llama, "--rpc", address).assert_error(2, "--rpc", address)


def test_something_else_that_listens_is_no_worker(specgen, tiny_models):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=refuse_all, args=(server,), daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        specgen("plan", tiny_models.llama, "--rpc", address).assert_error(9, "worker", address)


def test_a_worker_that_others_can_reach_warns(specgen):
    process = specgen.start("worker", "--host", "0.0.0.0", "--port", free_port())
    with process:
        line = process.stderr.readline()
        process.kill()
    assert b"note: 0.0.0.0 can be reached from outside" in line


def refuse_all(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        connection.close()
