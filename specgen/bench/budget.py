"""How much to measure: the most that a time budget allows, from speeds that a warm-up has shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specgen.errors import UsageError

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SHARE = 0.95
"""Of the budget is planned for; the rest is for estimates that were too low."""
_LONG = ((128, 5), (128, 3), (96, 3), (64, 3))
"""Tokens and repeats that are worth leaving prompts out for."""
_SHORT = ((48, 3), (32, 3), (32, 2), (24, 2), (64, 1), (32, 1), (16, 1), (8, 1))
"""Tokens and repeats where one prompt per category is left; where taking in prompts takes most of the time, longer
answers are cheaper than a second repeat."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be measured.

    Attributes:
        n_each: prompts per category at most.
        n_tokens: of the longest answer.
        n_repeats: of every prompt and arm.
    """

    n_each: int
    n_tokens: int
    n_repeats: int


@dataclass(frozen=True, slots=True)
class Speed:
    """What one arm takes, in seconds per token of the prompt and of the answer."""

    prompt_s: float
    token_s: float


def seconds_of(plan: Plan, n_prompt: Sequence[int], speeds: Sequence[Speed]) -> float:
    """What a plan takes.

    Args:
        plan: what is measured.
        n_prompt: length of every prompt that is measured, in tokens.
        speeds: of every arm.
    """
    return plan.n_repeats * sum(
        n * speed.prompt_s + plan.n_tokens * speed.token_s for speed in speeds for n in n_prompt
    )


def choose(n_prompt_of: Sequence[Sequence[int]], speeds: Sequence[Speed], budget_s: float) -> Plan:
    """The largest plan that fits the budget, or the smallest there is.

    Args:
        n_prompt_of: lengths of the prompts of every category.
        speeds: of every arm.
        budget_s: seconds that are left.
    """
    for plan in _plans(max(map(len, n_prompt_of))):
        measured = [n for lengths in n_prompt_of for n in lengths[: plan.n_each]]
        if seconds_of(plan, measured, speeds) <= _SHARE * budget_s:
            return plan
    return plan


def _plans(n_each: int) -> Iterator[Plan]:
    """From the largest to the smallest."""
    while True:
        for n_tokens, n_repeats in _LONG:
            yield Plan(n_each, n_tokens, n_repeats)
        if n_each == 1:
            break
        n_each //= 2
    for n_tokens, n_repeats in _SHORT:
        yield Plan(1, n_tokens, n_repeats)


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `3m`, `1m30s` or `1h`.

    Raises:
        UsageError: none of these, or nothing.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in found.groups()) if found else (0.0, 0.0, 0.0)
    total_s = 3600 * hours + 60 * minutes + seconds
    if total_s <= 0:
        raise UsageError(f"--budget does not understand {text!r}", "give a time such as 90s, 3m or 1h")
    return total_s
