"""What is measured: an arm is a program at one setting, a task what all arms do alike, a run one arm doing it once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

CONTEXT_LENGTH = 2048


class Role(StrEnum):
    """What an arm stands for in the comparison."""

    PLAIN = "plain"  # what every ratio that is called a speed-up is to
    CONTROL = "control"  # plain once more: how far two equal arms lie apart
    DEFAULT = "default"  # specgen as a user gets it
    FIXED = "fixed"  # specgen at one draft length
    PEER = "peer"  # llama.cpp's own programs, drafting
    ASIDE = "aside"  # shown, but compared with nothing


@dataclass(frozen=True)
class Task:
    """One prompt, and how to answer it.

    Attributes:
        target, draft: the models' files.
        prompt: a file with the raw text, and the newline that ends a file, which is no part of it.
        max_tokens: the longest answer. Most answers end before, and no program is told where.
        n_threads: of every program.
        ignores_eos: go on after the model's own end.
        learned: a cache folder of specgen's, with what it learned about the pair from other prompts; None for nothing.
        plain: what plain decoding answered; None before it did.
    """

    target: Path
    draft: Path | None
    prompt: Path
    max_tokens: int
    n_threads: int
    ignores_eos: bool
    learned: Path | None = None
    plain: Run | None = None

    @property
    def prompt_text(self) -> str:
        """What programs read from the prompt's file."""
        return self.prompt.read_text(encoding="utf-8").removesuffix("\n")


@dataclass(frozen=True)
class Run:
    """One answer of one program.

    Attributes:
        tok_s: tokens per second as the user waits for them, the draft's prefill included; None where it is not told.
        bare_tok_s: the same without the draft's prefill, which llama.cpp's programs count as part of the prompt.
        n_prompt, n_tokens: length of prompt and answer.
        n_drafted, n_accepted: None where the program does not draft.
        overhead: part of the time that was spent outside the models; None where it is not told.
        peak_bytes: memory of the process.
        text: the answer; empty where it is not told.
    """

    tok_s: float | None
    bare_tok_s: float
    n_prompt: int
    n_tokens: int
    peak_bytes: int
    n_drafted: int | None = None
    n_accepted: int | None = None
    overhead: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Arm:
    """One program at one setting.

    Attributes:
        name: short and unique within a rig.
        role: what it stands for.
        program: a key of `programs.PROGRAMS`.
        words: options beside those that every task gives.
        is_new_pair: specgen forgets what it learned about the pair.
    """

    name: str
    role: Role
    program: str
    words: tuple[str, ...] = ()
    is_new_pair: bool = False

    @property
    def command(self) -> str:
        """What it runs, without the options that all arms share."""
        return " ".join([self.program, *self.words])


def ratio(run: Run, other: Run) -> float:
    """Speed of one run to another's, by a clock that both have."""
    if run.tok_s is None or other.tok_s is None:
        return run.bare_tok_s / other.bare_tok_s
    return run.tok_s / other.tok_s
