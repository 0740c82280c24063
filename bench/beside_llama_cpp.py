"""specgen beside llama.cpp's own programs: same files, prompts, threads and kernels, in turn.

    python bench/beside_llama_cpp.py [--rig demo] [--quick] [--json FILE] [--markdown FILE]

One rig after the other: a target, perhaps a draft, and prompts of several categories, one of them there to lose. First
every candidate setting (fixed draft lengths of specgen's, settings of llama.cpp's) answers every prompt once; the best
few of each kind then alternate with specgen's default and with plain decoding, `--repeats` times. Every ratio is taken
within one repeat of one prompt; "plain again" shows how far two equal arms lie apart. Decoding is greedy.

The default is measured twice: on a pair that answered the warm-up prompts before (none of them is measured, and every
run starts from just that knowledge), and on a pair that specgen never saw. Both count the draft's prefill, which the
user waits for; only ratios to llama.cpp's programs leave it out, because those count it as part of the prompt.

A rig with its first round takes about half an hour on two cores, one of the small ones (q4, q4-draft, unrelated) ten to
fifteen minutes.

Prints Markdown: medians over repeats, geometric means over prompts, and the smallest and largest single ratio.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from arms import Arm, Role, Task
from comparison import ranked
from measure import Measurement, alternate, learn, make_tasks, members
from peers import peers
from programs import SPECGEN
from prompts import prompts_of
from report import as_data, tables
from rigs import RIGS, Rig

from specgen.cli._options import physical_cores

_QUICK_TOKENS = 48
_RIVALS = (Role.FIXED, Role.PEER)


def main() -> None:
    """Measure, print, and perhaps write."""
    options = _options()
    data, lines = {}, []
    for name in options.rig:
        start_s = time.monotonic()
        rig = RIGS[name]
        measured, swept = measure(rig, options)
        minutes = (time.monotonic() - start_s) / 60
        part = [f"## {name}: {rig.about}", "", *tables(rig, measured), f"- It took {minutes:.0f} minutes.", ""]
        print("\n".join(part), flush=True)
        lines += part
        data[name] = as_data(rig, measured, swept)
        if options.json:
            options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
        if options.markdown:
            title = ["# specgen beside llama.cpp", "", f"Written by `{_command(options)}`.", ""]
            options.markdown.write_text("\n".join([*title, *lines]), encoding="utf-8")


def measure(rig: Rig, options: argparse.Namespace) -> tuple[list[Measurement], list[Measurement]]:
    """The runs of a rig, and those of its first round."""
    arms, candidates = _chosen(rig, options)
    peers(sorted({arm.program for arm in (*arms, *candidates)} - {SPECGEN}))
    (plain,) = members(arms, Role.PLAIN)
    prompts = prompts_of((*rig.categories, *rig.losing), 1 if options.quick else rig.n_each)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draft = rig.draft() if rig.draft else None
        task = Task(rig.target(), draft, folder, options.tokens, options.threads, options.ignore_eos)
        for default in members(arms, Role.DEFAULT)[:1]:
            task = replace(task, learned=learn(default, task, folder))
        tasks = make_tasks(prompts, plain, task, folder)
        swept = alternate([plain, *candidates], tasks, 1) if candidates else []
        best = [arm for role in _RIVALS for arm in ranked(swept, role)[: options.keep]]
        return alternate([*arms, *best], tasks, options.repeats), swept


def _chosen(rig: Rig, options: argparse.Namespace) -> tuple[Sequence[Arm], Sequence[Arm]]:
    """The arms that are always measured, and the candidates of a first round, if there is one."""
    known = (*rig.arms, *rig.candidates)
    if options.arms:
        unknown = set(options.arms) - {arm.name for arm in known}
        if unknown:
            sys.exit(f"no arm is called {', '.join(sorted(unknown))}; known: {', '.join(arm.name for arm in known)}")
        return [arm for arm in known if arm.name in options.arms or arm.role is Role.PLAIN], []
    n_kept = 1 if options.quick else options.keep
    rivals = [members(rig.candidates, role) for role in _RIVALS]
    if options.quick or all(len(part) <= n_kept for part in rivals):
        return [*rig.arms, *(arm for part in rivals for arm in part[:n_kept])], []
    return rig.arms, rig.candidates


def _command(options: argparse.Namespace) -> str:
    """What makes these numbers again."""
    words = [word for name in options.rig for word in ("--rig", name)]
    words += ["--quick"] if options.quick else ["--repeats", str(options.repeats), "--tokens", str(options.tokens)]
    words += ["--ignore-eos"] if options.ignore_eos else []
    words += ["--arms", *options.arms] if options.arms else []
    return f"python bench/beside_llama_cpp.py {shlex.join(words)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rig", action="append", choices=RIGS, help="repeatable; demo by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160, help="the longest answer")
    parser.add_argument("--ignore-eos", action="store_true", help="make every answer that long")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--keep", type=int, default=3, help="settings of each kind that the first round keeps")
    parser.add_argument(
        "--arms", nargs="+", metavar="NAME", help="just these and plain decoding, without a first round"
    )
    parser.add_argument("--quick", action="store_true", help="one repeat of few arms and tokens, to see that all runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    options.rig = options.rig or ["demo"]
    if options.quick:
        options.repeats, options.tokens = 1, _QUICK_TOKENS
    return options


if __name__ == "__main__":
    main()
