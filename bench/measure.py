"""Arms in turn: what is compared runs within the same minutes, in an order that is drawn anew for every prompt."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arms import Arm, Role, Run, Task
from programs import run, run_specgen
from prompts import WARM_UP, Prompt, chatml

Tasks = dict[Prompt, Task]


@dataclass(frozen=True)
class Measurement:
    """One run, and what it belongs to."""

    arm: Arm
    prompt: Prompt
    repeat: int
    run: Run


def learn(default: Arm, task: Task, folder: Path) -> Path:
    """A cache in which specgen knows the pair: from the warm-up prompts, none of which is measured."""
    cache = folder / "learned"
    cache.mkdir()
    for i, text in enumerate(WARM_UP):
        prompt = _write(folder / f"warm-up-{i}.txt", chatml(text))
        run_specgen(default.words, replace(task, prompt=prompt), cache)
    return cache


def make_tasks(prompts: Sequence[Prompt], plain: Arm, task: Task, folder: Path) -> Tasks:
    """The task of every prompt, with the answer of plain decoding."""
    tasks = {}
    for prompt in prompts:
        mine = replace(task, prompt=_write(folder / f"{prompt.name}.txt", prompt.text))
        tasks[prompt] = replace(mine, plain=run(plain, mine))
    return tasks


def alternate(arms: Sequence[Arm], tasks: Tasks, n_repeats: int) -> list[Measurement]:
    """Every arm does every task, `n_repeats` times."""
    measured = []
    for repeat in range(n_repeats):
        for prompt, task in tasks.items():
            order = random.Random(f"{repeat} {prompt.name}").sample(arms, len(arms))
            measured += [Measurement(arm, prompt, repeat, run(arm, task)) for arm in order]
            print(f"repeat {repeat + 1} of {n_repeats}: {prompt.name}", file=sys.stderr, flush=True)
    return measured


def members(arms: Sequence[Arm], role: Role) -> list[Arm]:
    """The arms with a role."""
    return [arm for arm in arms if arm.role is role]


def _write(path: Path, text: str) -> Path:
    path.write_text(text + "\n", encoding="utf-8")
    return path
