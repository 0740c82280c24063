"""llama.cpp's own programs as arms: greedy by their cheapest sampler, timed by their own clocks."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from arms import CONTEXT_LENGTH, Run, Task
from peers import peer
from processes import finish, reap

DRAFT_MODEL = "draft-simple"
"""The `--spec-type` that takes a draft model; the others draft from the text alone."""

_START_S = 60


def run_with_log(program: str, words: Sequence[str], task: Task) -> Run:
    """`llama-speculative-simple` and `llama-lookup`: text on stdout, numbers in the log."""
    options = ["-f", task.prompt, "-n", task.max_tokens, "--no-escape", "-lv", 3]
    options += ["--samplers", "top_k", "--top-k", 1, "--temp", 0]
    options += ["--ignore-eos"] if task.ignores_eos else []
    process = finish([str(peer(program)), *_shared(words, task), *map(str, options), *words])
    log = process.stderr
    text = process.stdout.partition(task.prompt_text)[2].rstrip("\n")
    n_decoded = int(_number(r"decoded +(\d+) tokens", log))
    n_tokens = without_surplus(n_decoded, text, task)
    return Run(
        tok_s=None,
        bare_tok_s=n_tokens / _number(r"decoded +\d+ tokens in +([\d.]+) seconds", log),
        n_prompt=int(_number(r"encoded +(\d+) tokens", log)),
        n_tokens=n_tokens,
        peak_bytes=process.peak_bytes,
        n_drafted=int(_number(r"n_drafted += (\d+)", log)),
        n_accepted=int(_number(r"n_accept += (\d+)", log)),
        text=text,
    )


def run_bench(program: str, words: Sequence[str], task: Task) -> Run:
    """`llama-bench`: as many one-token passes as plain decoding took, behind as long a prompt; nothing is sampled."""
    if task.plain is None:
        sys.exit(f"{program} cannot come first")
    n_prompt, n_tokens = task.plain.n_prompt, task.plain.n_tokens
    options = ["-m", task.target, "-t", task.n_threads, "-p", 0, "-n", n_tokens, "-d", n_prompt]
    process = finish([str(peer(program)), *map(str, options), "-r", "1", "-o", "json", *words])
    (measured,) = json.loads(process.stdout)
    return Run(None, measured["avg_ts"], n_prompt, n_tokens, process.peak_bytes)


def run_server(program: str, words: Sequence[str], task: Task) -> Run:
    """`llama-server`, started for one request: what it learns from a text must not help with the same text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", port, "--parallel", 1, "--no-webui"]
    command = [str(peer(program)), *_shared(words, task), *map(str, options), *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _await_health(process, address)
        answer = _ask(f"{address}/completion", _request(task))
    finally:
        process.terminate()
        peak_bytes = reap(process) if process.returncode is None else 0
    timings = answer["timings"]
    text = answer["content"]
    n_tokens = without_surplus(timings["predicted_n"], text, task)
    return Run(
        tok_s=None,
        bare_tok_s=n_tokens / timings["predicted_ms"] * 1000,
        n_prompt=timings["prompt_n"],
        n_tokens=n_tokens,
        peak_bytes=peak_bytes,
        n_drafted=timings.get("draft_n"),
        n_accepted=timings.get("draft_n_accepted"),
        text=text,
    )


def without_surplus(n_tokens: int, text: str, task: Task) -> int:
    """A peer's count without what it accepted behind the end of the answer, where that can be told.

    llama.cpp's programs count a whole accepted draft, also where the answer ended within it. An answer with the text of
    plain decoding has its tokens, and the one that ended it. What they decode beyond the token limit, up to a whole
    draft, stays counted: they did decode it.
    """
    if task.plain is None or text.rstrip("\n") != task.plain.text.rstrip("\n"):
        return n_tokens
    return min(n_tokens, task.plain.n_tokens + 1)


def _shared(words: Sequence[str], task: Task) -> list[str]:
    """Options that all programs but llama-bench spell alike."""
    options = ["-m", task.target, "-t", task.n_threads, "-c", CONTEXT_LENGTH]
    options += ["-md", task.draft, "-td", task.n_threads] if DRAFT_MODEL in words else []
    return [str(option) for option in options]


def _request(task: Task) -> dict[str, Any]:
    return {
        "prompt": task.prompt_text,
        "n_predict": task.max_tokens,
        "ignore_eos": task.ignores_eos,
        "samplers": ["top_k"],
        "top_k": 1,
        "temperature": 0,
        "cache_prompt": False,
    }


def _await_health(process: subprocess.Popen[bytes], address: str) -> None:
    end_s = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(f"{address}/health"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    sys.exit(f"the server did not start: {' '.join(map(str, process.args))}")  # type: ignore[arg-type]


def _ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(request).encode(), headers)) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def _number(pattern: str, log: str) -> float:
    found = re.search(pattern, log)
    if not found:
        sys.exit(f"no {pattern!r} in what llama.cpp wrote:\n{log[-2000:]}")
    return float(found[1])
