"""How an arm is run: its command line, its process, and where its speed is read."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import llama_programs
from arms import CONTEXT_LENGTH, Arm, Run, Task
from peers import BENCH, LOOKUP, SERVER, SPECULATIVE_SIMPLE
from processes import finish

SPECGEN = "specgen"

_PEERS = {
    SPECULATIVE_SIMPLE: llama_programs.run_with_log,
    LOOKUP: llama_programs.run_with_log,
    SERVER: llama_programs.run_server,
    BENCH: llama_programs.run_bench,
}


def run(arm: Arm, task: Task) -> Run:
    """Do a task once, in a fresh process that knows of the pair what the arm may know."""
    if arm.program != SPECGEN:
        return _PEERS[arm.program](arm.program, arm.words, task)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        if task.learned and not arm.is_new_pair:
            shutil.copytree(task.learned, cache)
        return run_specgen(arm.words, task, cache)


def run_specgen(words: tuple[str, ...], task: Task, cache: Path) -> Run:
    """`specgen run --json`; what it learns about the pair is kept in `cache`."""
    options: list[object] = ["--target", task.target, "--file", task.prompt, "--max-tokens", task.max_tokens]
    options += ["--threads", task.n_threads, "--ctx-size", CONTEXT_LENGTH, "--raw", "--json", "--no-stdin", "--quiet"]
    options += ["--draft", task.draft] if task.draft else []
    options += ["--ignore-eos"] if task.ignores_eos else []
    command = [sys.executable, "-m", "specgen", "run", *map(str, options), *words]
    process = finish(command, {"SPECGEN_CACHE": str(cache)})
    answer = json.loads(process.stdout)
    stats = answer["stats"]
    n_decoded = stats["n_generated"] - 1  # the first token is the prompt's
    return Run(
        tok_s=stats["decode_tok_s"],
        bare_tok_s=n_decoded / (stats["decode_s"] - stats["draft_prefill_s"]),
        n_prompt=stats["n_prompt"],
        n_tokens=stats["n_generated"],
        peak_bytes=process.peak_bytes,
        n_drafted=stats["n_drafted"],
        n_accepted=stats["n_accepted"],
        overhead=stats["overhead_s"] / stats["decode_s"],
        text=answer["text"],
    )
