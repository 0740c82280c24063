"""Rigs: models, settings and prompts that are measured together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arms import Arm
from llama_programs import DRAFT_MODEL
from models import derived, shuffled
from settings import aside, fixed, n_grams, ours, simple_drafts

_DRAFT_CATEGORIES = ("explain", "list", "story", "code", "copy", "short", "random")


@dataclass(frozen=True)
class Rig:
    """What is measured together.

    Attributes:
        about: one line.
        target: makes the target's file.
        draft: makes the draft's; None for a target alone.
        arms: those that are always measured; the first is plain decoding.
        candidates: settings of which a first round keeps the best of each role.
        categories: whose prompts count.
        losing: categories that are measured on purpose although nothing can be won there; they do not count.
        n_each: prompts per category.
    """

    about: str
    target: Callable[[], Path]
    draft: Callable[[], Path] | None
    arms: tuple[Arm, ...]
    candidates: tuple[Arm, ...]
    categories: tuple[str, ...] = _DRAFT_CATEGORIES
    losing: tuple[str, ...] = ()
    n_each: int = 1


def _draft_rig(about: str, target: str, draft: Callable[[], Path], candidates: Sequence[Arm]) -> Rig:
    arms = (*ours(), *aside("--spec-type", DRAFT_MODEL))
    return Rig(about, partial(derived, target), draft, arms, tuple(candidates))


def _lookup_rig(about: str, target: str) -> Rig:
    arms = (*ours(), *aside("--spec-type", "ngram-map-k"))
    lengths = [*fixed((1, 2, 3, 4, 6, 8, 12, 16), "lookup"), *fixed((4, 8, 16), "suffix")]
    candidates = (*lengths, *n_grams())
    return Rig(about, partial(derived, target), None, arms, candidates, ("copy", "edit"), ("random",), n_each=3)


_LENGTHS = [*fixed((1, 2, 3, 4, 5, 6, 8, 10, 12)), *fixed((2, 4, 6, 8, 10), "model")]

RIGS = {
    "demo": _draft_rig(
        "the demo pair: F32, drafted for by Q4_K_M", "F32", partial(derived, "Q4_K_M"), [*_LENGTHS, *simple_drafts()]
    ),
    "q8": _draft_rig("F32, drafted for by Q8_0", "F32", partial(derived, "Q8_0"), [*_LENGTHS, *simple_drafts()]),
    "lookup": _lookup_rig("F32 without a draft model, on text that can be copied", "F32"),
    "lookup-bf16": _lookup_rig("BF16 without a draft model, on text that can be copied", "BF16"),
    "q4": Rig(
        "Q4_1 alone: passes of several rows are dear",
        partial(derived, "Q4_1"),
        None,
        (*ours(), *aside("--spec-type", "ngram-map-k")),
        tuple(fixed((1, 3))),
        categories=(*_DRAFT_CATEGORIES, "edit"),
    ),
    "q4-draft": _draft_rig("Q4_1 with a draft that never pays, Q2_K", "Q4_1", partial(derived, "Q2_K"), fixed((1, 3))),
    "unrelated": _draft_rig(
        "F32 with a draft whose guesses are worthless", "F32", partial(shuffled, "Q4_K_M"), fixed((1, 3))
    ),
}
