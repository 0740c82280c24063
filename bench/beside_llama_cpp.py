"""specgen beside llama.cpp's own speculative program: same files, prompts, threads and kernels, in turn.

    python bench/beside_llama_cpp.py [--repeats 3] [--gammas 2,4,8] [--tokens 160] [--json FILE]

Both decode greedily and are timed by their own clocks, the draft's prefill left out on both sides, as the peer does.
Every ratio is taken within one repeat, so that a machine whose speed drifts does not enter it. End-of-generation tokens
are ignored on both sides: the peer counts what it accepted after them. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from peers import SPECULATIVE_SIMPLE, peer
from prompts import PROMPTS, chatml

from specgen.cli._options import physical_cores
from specgen.pairs.resolve import ModelFiles, find, resolve

N_CTX = 2048


@dataclass(frozen=True)
class Run:
    """One answer of one program: its speed, text and peak memory."""

    tok_s: float
    n_accepted: int
    n_drafted: int
    overhead: float = 0.0
    peak_bytes: int = 0
    text: str = ""


def output_of(command: list[str]) -> tuple[str, int]:
    """stdout and stderr of a program together, and its peak memory in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{text[-2000:]}")
    return text, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run_specgen(files: ModelFiles, prompt: Path, gamma: int, n_tokens: int, threads: int) -> Run:
    """One `specgen run --json`."""
    words = ["--target", files.target, "--draft", files.draft, "--file", prompt, "--gamma", gamma]
    words += ["--max-tokens", n_tokens, "--threads", threads, "--ctx-size", N_CTX]
    command = [
        sys.executable,
        "-m",
        "specgen",
        "run",
        "--raw",
        "--ignore-eos",
        "--json",
        "--no-stdin",
        *map(str, words),
    ]
    text, peak_bytes = output_of(command)
    answer = json.loads(text)
    stats = answer["stats"]
    decode_s = stats["decode_s"] - stats["draft_prefill_s"]
    return Run(
        tok_s=(stats["n_generated"] - 1) / decode_s,
        n_accepted=stats["n_accepted"],
        n_drafted=stats["n_drafted"],
        overhead=stats["overhead_s"] / stats["decode_s"],
        peak_bytes=peak_bytes,
        text=answer["text"],
    )


def run_peer(files: ModelFiles, prompt: Path, gamma: int, n_tokens: int, threads: int) -> Run:
    """One `llama-speculative-simple`, with the cheapest greedy sampler it has."""
    words = [
        "-m",
        files.target,
        "-md",
        files.draft,
        "-f",
        prompt,
        "-n",
        n_tokens,
        "-c",
        N_CTX,
        "-t",
        threads,
        "-td",
        threads,
    ]
    words += [
        "--spec-type",
        "draft-simple",
        "--spec-draft-n-max",
        gamma,
        "--spec-draft-n-min",
        0,
        "--spec-draft-p-min",
        0,
    ]
    words += ["--no-escape", "--ignore-eos", "--samplers", "top_k", "--top-k", 1, "--temp", 0, "-lv", 3]
    text, _ = output_of([str(peer(SPECULATIVE_SIMPLE)), *map(str, words)])

    def number(pattern: str) -> float:
        found = re.search(pattern, text)
        if not found:
            sys.exit(f"no {pattern!r} in the peer's output:\n{text[-2000:]}")
        return float(found[1])

    return Run(
        tok_s=number(r"decoded +\d+ tokens in +[\d.]+ seconds, speed: +([\d.]+) t/s"),
        n_accepted=int(number(r"n_accept += (\d+)")),
        n_drafted=int(number(r"n_drafted += (\d+)")),
    )


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gammas", default="2,4,8")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gammas = [int(word) for word in options.gammas.split(",")]
    files = resolve(find(options.pair), None, lambda *_: None)
    peer(SPECULATIVE_SIMPLE)

    ours: defaultdict[tuple[str, int], list[Run]] = defaultdict(list)
    theirs: defaultdict[tuple[str, int], list[Run]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for kind, text in PROMPTS.items():
                prompt = Path(folder, f"{kind}.txt")
                prompt.write_text(chatml(text), encoding="utf-8")
                for gamma in gammas:
                    arguments = (files, prompt, gamma, options.tokens, options.threads)
                    ours[kind, gamma].append(run_specgen(*arguments))
                    theirs[kind, gamma].append(run_peer(*arguments))
                ours[kind, 0].append(run_specgen(files, prompt, 0, options.tokens, options.threads))
                print(f"repeat {repeat + 1} of {options.repeats}: {kind}", file=sys.stderr, flush=True)

    table = report(ours, theirs, gammas)
    print("\n".join(table))
    if options.json:
        programs = {"specgen": ours, "llama.cpp": theirs}
        rows = {
            f"{name} {k} {g}": [r.tok_s for r in runs]
            for name, part in programs.items()
            for (k, g), runs in part.items()
        }
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


def report(
    ours: dict[tuple[str, int], list[Run]], theirs: dict[tuple[str, int], list[Run]], gammas: list[int]
) -> list[str]:
    """The table, and what goes with it."""
    lines = ["| prompt | " + " | ".join(f"γ = {g}: to llama.cpp | to plain" for g in gammas) + " |"]
    lines.append("|---" * (1 + 2 * len(gammas)) + "|")
    to_peer: defaultdict[int, list[float]] = defaultdict(list)
    to_plain: defaultdict[int, list[float]] = defaultdict(list)

    def ratio(first: list[Run], second: list[Run]) -> float:
        return statistics.median(a.tok_s / b.tok_s for a, b in zip(first, second, strict=True))

    for kind in PROMPTS:
        cells = []
        for gamma in gammas:
            to_peer[gamma].append(ratio(ours[kind, gamma], theirs[kind, gamma]))
            to_plain[gamma].append(ratio(ours[kind, gamma], ours[kind, 0]))
            cells += [f"{to_peer[gamma][-1]:.2f}", f"{to_plain[gamma][-1]:.2f}"]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    means = [f"**{geometric_mean(part[gamma]):.2f}**" for gamma in gammas for part in (to_peer, to_plain)]
    lines.append("| geometric mean | " + " | ".join(means) + " |")

    runs = [run for part in ours.values() for run in part]
    drafting = [run for (_, gamma), part in ours.items() if gamma for run in part]
    same = all(r.text == ours[kind, 0][0].text for (kind, _), part in ours.items() for r in part)
    lines += [
        "",
        f"plain decoding: {statistics.median(r.tok_s for kind in PROMPTS for r in ours[kind, 0]):.1f} tok/s (median)",
        f"texts equal those of plain decoding: {'yes' if same else 'NO'}",
        f"time outside the models: median {100 * statistics.median(r.overhead for r in drafting):.2f} %, "
        f"worst {100 * max(r.overhead for r in drafting):.2f} % of decoding",
        f"peak memory: {max(r.peak_bytes for r in runs) / 1e6:,.0f} MB",
    ]
    return lines


if __name__ == "__main__":
    main()
