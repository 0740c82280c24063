"""What the options of a command mean together: defaults, notes about options without effect, contradictions refused."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from specgen.cli._corpus import read_corpus
from specgen.cli._placement import PlacementOptions
from specgen.errors import ConfigError, UsageError
from specgen.session import SessionParams
from specgen.types import DraftType, SamplingParams

Note = Callable[[str], None]

DEFAULT_PAIR = "demo"
LONGEST_GAMMA = 64


def split_words(words: list[str], target: Path | None) -> tuple[str | Path, str | None]:
    """The model and the prompt among the words of a command line.

    Returns:
        A pair's name or a file, or the path that `--target` gave, and the prompt where there is one.

    Raises:
        UsageError: too many words, which is a prompt without quotes.
    """
    model, rest = (target, words) if target is not None else ((words or [DEFAULT_PAIR])[0], words[1:])
    if len(rest) > 1:
        raise UsageError(f"too many words after the prompt {rest[0]!r}", "put the prompt in quotes")
    return model, rest[0] if rest else None


def sampling_params(
    temperature: float, seed: int | None, given: Mapping[str, float | None], note: Note
) -> SamplingParams:
    """The sampling settings; options that change nothing are noted.

    Args:
        temperature: 0 is greedy.
        seed: None draws one.
        given: fields of SamplingParams that the user set; None where not.
        note: told about options without effect.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    for name, value in {"temperature": temperature, **settings}.items():
        if not math.isfinite(value):
            raise UsageError(f"{_flag(name)} must be a finite number", "see specgen run --help")
    params = SamplingParams(
        temperature=temperature,
        seed=secrets.randbelow(2**32 - 1) if seed is None else seed,
        **settings,  # type: ignore[arg-type]
    )
    if params.is_greedy:
        only_sampled = {"top_k", "top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"} & settings.keys()
        for name in (*sorted(only_sampled), *(["seed"] if seed is not None else [])):
            note(f"{_flag(name)} has no effect at temperature 0, which is greedy")
    has_penalty = params.repeat_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
    if has_penalty and params.repeat_last_n == 0:
        note("--repeat-penalty and its kin have no effect with --repeat-last-n 0")
    elif "repeat_last_n" in settings and not has_penalty:
        note("--repeat-last-n has no effect without a penalty")
    if "xtc_threshold" in settings and params.xtc_probability <= 0 and not params.is_greedy:
        note("--xtc-threshold has no effect without --xtc-probability")
    return params


def session_params(
    *,
    has_draft: bool,
    has_grammar: bool,
    gamma: str,
    draft_type: str,
    corpus: Path | None,
    threads: int | None,
    placement: PlacementOptions,
    requires_draft: bool,
    note: Note,
) -> SessionParams:
    """Placement and drafting.

    Raises:
        UsageError: a draft length or type that is none.
        ConfigError: an option that needs a draft or a grammar, without one; a corpus that cannot be read.
    """
    draft_types = _draft_types(draft_type, has_draft=has_draft, has_grammar=has_grammar)
    needing = {
        "--draft-type model": draft_type != "auto" and DraftType.MODEL in draft_types,
        **dict.fromkeys(placement.draft_flags, True),
        "--require-draft": requires_draft,
    }
    for flag, is_given in needing.items():
        if is_given and not has_draft:
            raise ConfigError(f"{flag} needs a draft", "give --draft FILE, or the name of a pair")
    if DraftType.GRAMMAR in draft_types and not has_grammar:
        raise ConfigError("--draft-type grammar needs a grammar", "give --grammar or --json-schema")
    if corpus is not None and DraftType.SUFFIX not in draft_types:
        raise ConfigError("--draft-corpus is for suffix drafts", "add suffix to --draft-type")
    if placement.note:
        note(placement.note)
    return SessionParams(
        n_gpu_layers=placement.target.n_gpu_layers,
        n_draft_gpu_layers=placement.draft.n_gpu_layers,
        n_threads=threads or physical_cores(),
        gamma=_draft_length(gamma),
        draft_types=draft_types,
        corpus=tuple(read_corpus(corpus, note)) if corpus is not None else (),
        requires_draft=requires_draft,
        devices=placement.target.devices,
        draft_devices=placement.draft.devices,
        tensor_split=placement.target.tensor_split,
        kv_type=placement.kv_type,
        draft_kv_type=placement.draft_kv_type,
    )


def _draft_types(text: str, *, has_draft: bool, has_grammar: bool) -> tuple[DraftType, ...]:
    """The drafters that `--draft-type` asks for.

    Raises:
        UsageError: a word that is none of them.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["auto"]:
        is_there = {DraftType.GRAMMAR: has_grammar, DraftType.SUFFIX: True, DraftType.MODEL: has_draft}
        return tuple(name for name, is_wanted in is_there.items() if is_wanted)
    if words == ["none"]:
        return ()
    unknown = next((word for word in words if word not in tuple(DraftType)), None)
    if unknown is not None:
        raise UsageError(
            f"--draft-type does not know {unknown!r}",
            f"use auto, none, or some of {', '.join(DraftType)} with commas between",
        )
    return tuple(name for name in DraftType if name in words)


def _draft_length(text: str) -> int | None:
    """The draft length that `--gamma` asks for; None lets the policy choose.

    Raises:
        UsageError: neither a length nor `auto`.
    """
    if text == "auto":
        return None
    if text.isdecimal() and int(text) <= LONGEST_GAMMA:
        return int(text)
    raise UsageError(f"--gamma must be 0 to {LONGEST_GAMMA}, or auto", "see specgen run --help")


def physical_cores() -> int:
    """Physical cores that this process may use."""
    allowed = allowed_cpus()
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def allowed_cpus() -> int:
    """CPUs that this process may run on, hyperthreads counted."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
