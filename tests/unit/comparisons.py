"""Comparisons that never ran: reports with known speeds, acceptance and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from specgen.bench.record import (
    Answer,
    Arm,
    Model,
    PairInfo,
    PromptInfo,
    Report,
    Role,
    Rounds,
    Settings,
)

FLAT = {1: 0.010, 2: 0.011, 4: 0.0115, 8: 0.012, 16: 0.014}
F32 = {1: 0.0156, 2: 0.0241, 3: 0.0264, 4: 0.0299, 6: 0.0314, 8: 0.0380, 12: 0.0465, 16: 0.0561}
Q4_1 = {1: 0.0077, 2: 0.0135, 3: 0.0170, 4: 0.0210, 6: 0.0299, 8: 0.0350, 12: 0.0499, 16: 0.0643}
"""Recorded on two cores: seconds of a pass by rows."""
N_TOKENS = 101
WOBBLE = (0.99, 1.0, 1.01)
"""Of plain decoding again, by repeat."""


def model(name: str, size: int) -> Model:
    return Model(f"/models/{name}.gguf", name, size, ("CPU",), 8192, "f16")


def report_of(
    speedups: Mapping[str, Mapping[str, float]],
    *,
    verify_s: Mapping[int, float] = FLAT,
    step_s: float | None = 0.001,
    alpha: float = 0.8,
    gamma: int = 4,
    wobble: Sequence[float] = WOBBLE,
    plain_tok_s: float = 100.0,
) -> Report:
    """Every pair at a speed-up by category; `alpha` is what its draft foresees, `gamma` 0 drafts nothing."""
    categories = list(next(iter(speedups.values())))
    arms = [Arm("plain", Role.PLAIN), Arm("plain again", Role.CONTROL)]
    arms += [Arm(name, Role.PAIR, name) for name in speedups]
    answers = []
    for repeat, shake in enumerate(wobble):
        for category in categories:
            answers.append(answer("plain", category, repeat, plain_tok_s))
            answers.append(answer("plain again", category, repeat, plain_tok_s * shake))
            for name, by_category in speedups.items():
                tok_s = plain_tok_s * by_category[category]
                answers.append(answer(name, category, repeat, tok_s, gamma, alpha))
    return Report(
        created="2026-01-02T03:04:05+00:00",
        state="complete",
        versions={"specgen": "0", "llama_cpp": "1"},
        machine={"platform": "p", "cpus": "2", "system_info": "s"},
        settings=Settings(N_TOKENS, len(wobble), 180.0, (), 2, 4096, 0, 0, "built in"),
        target=model("target", 8_000_000_000),
        pairs=tuple(
            PairInfo(name, model("draft", 900_000_000), "model", step_s, round(1000 * alpha), 1000) for name in speedups
        ),
        arms=tuple(arms),
        prompts=tuple(PromptInfo(f"{c} 1", c, f"about {c}", 9) for c in categories),
        verify_s=dict(verify_s),
        n_past=256,
        answers=tuple(answers),
    )


def answer(arm: str, category: str, repeat: int, tok_s: float, gamma: int = 0, alpha: float = 0.0) -> Answer:
    """A hundred tokens after the first, at a speed; three rounds, the middle one with a draft if there is any."""
    n_accepted = math.floor(gamma * alpha)
    rounds = Rounds(
        n_drafted=(0, gamma, 0),
        n_accepted=(0, n_accepted, 0),
        n_tokens=(1, n_accepted + 1, 1),
        n_dropped=(0, 0, 0),
        seconds=(0.1, 0.2, 0.1),
        drafters=("-", "model" if gamma else "-", "-"),
        n_model=(0, gamma, 0),
    )
    seconds = (N_TOKENS - 1) / tok_s
    n_recovered = int(gamma > n_accepted)
    name = f"{category} 1"
    return Answer(arm, name, repeat, N_TOKENS, n_recovered, 0.1, seconds, seconds, 0, 0, rounds=rounds)
