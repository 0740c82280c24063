"""The settings that are compared: specgen's own, and what llama.cpp's programs offer.

Names are short; `Arm.command` has the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from arms import Arm, Role
from llama_programs import DRAFT_MODEL
from peers import BENCH, LOOKUP, SERVER, SPECULATIVE_SIMPLE
from programs import SPECGEN


def ours() -> tuple[Arm, ...]:
    """Plain decoding, twice, and the default: on a pair that answered other prompts before, and on a new one."""
    plain = ("--gamma", "0")
    return (
        Arm("plain", Role.PLAIN, SPECGEN, plain),
        Arm("plain again", Role.CONTROL, SPECGEN, plain),
        Arm("default", Role.DEFAULT, SPECGEN),
        Arm("default, new pair", Role.DEFAULT, SPECGEN, is_new_pair=True),
    )


def fixed(gammas: Sequence[int], draft_type: str = "") -> list[Arm]:
    """specgen at fixed lengths, with the drafters of the default or with one."""
    name = f"{draft_type} γ" if draft_type else "γ"
    words = ("--draft-type", draft_type) if draft_type else ()
    return [Arm(f"{name} = {gamma}", Role.FIXED, SPECGEN, (*words, "--gamma", str(gamma))) for gamma in gammas]


def _peer(name: str, program: str, *words: object, role: Role = Role.PEER) -> Arm:
    return Arm(name, role, program, tuple(map(str, words)))


def simple_drafts() -> list[Arm]:
    """llama-speculative-simple with the rig's draft: its default, and a grid of lengths and thresholds."""
    words = ("--spec-type", DRAFT_MODEL, "--spec-draft-n-min", 0)
    settings = [(1, 0.0), (3, 0.0), *product((2, 4, 8, 16), (0.0, 0.5, 0.75))]
    return [
        _peer(f"simple {n}/{p:g}", SPECULATIVE_SIMPLE, *words, "--spec-draft-n-max", n, "--spec-draft-p-min", p)
        for n, p in settings
    ]


def n_grams() -> list[Arm]:
    """Every way of llama.cpp to draft from the text alone, from its defaults down to short n-grams."""
    arms = [_peer(f"llama-lookup {n}", LOOKUP, "--spec-draft-n-max", n) for n in (3, 8, 16)]
    arms.append(_peer("ngram-cache", SPECULATIVE_SIMPLE, "--spec-type", "ngram-cache"))
    for kind, (n, m) in product(("simple", "map-k", "map-k4v"), ((12, 48), (3, 4), (3, 8), (3, 16), (5, 32))):
        sizes = (f"--spec-ngram-{kind}-size-n", n, f"--spec-ngram-{kind}-size-m", m)
        arms.append(_peer(f"ngram-{kind} {n}/{m}", SPECULATIVE_SIMPLE, "--spec-type", f"ngram-{kind}", *sizes))
    for n_match, n_min, n_max in ((24, 48, 64), (3, 0, 8), (3, 0, 16), (5, 0, 16), (8, 0, 32)):
        sizes = ("--spec-ngram-mod-n-match", n_match, "--spec-ngram-mod-n-min", n_min)
        words = ("--spec-type", "ngram-mod", *sizes, "--spec-ngram-mod-n-max", n_max)
        arms.append(_peer(f"ngram-mod {n_match}/{n_max}", SPECULATIVE_SIMPLE, *words))
    return arms


def aside(*words: object) -> tuple[Arm, ...]:
    """llama.cpp decoding plainly, and its server drafting."""
    bench = _peer("llama-bench, plain", BENCH, role=Role.ASIDE)
    server = _peer("llama-server", SERVER, *words, role=Role.ASIDE)
    return bench, server
