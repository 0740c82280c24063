"""The adaptive policy against every fixed draft length, on machines that are not here.

    python bench/simulate_policy.py [--quick] [--markdown FILE]

Simulates target and draft by their costs alone: v(n), the time of a target pass over n rows, and c, the time of a
draft step, both in plain steps. Whether a drafted token is accepted is drawn once per position of a text, so that all
policies meet the same text. Confidences are informative (each position has its own probability, and the draft knows
it), noisy, or useless; or both are what `record_traces.py` wrote down of the demo pair, started at another place for
every seed. Prints the speed of the policy over the best fixed length in hindsight (0 to 16, chosen per cell), and over
plain decoding: geometric means over seeds, then the worst and the mean cell, and how many cells miss the bar. Times
carry 3 % of noise; a draft that was left behind pays for catching up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from specgen.engine.adaptive import AdaptivePolicy
from specgen.engine.knowledge import Knowledge
from specgen.engine.policy import FixedPolicy, Outlook, Policy
from specgen.types import Ending, Proposal, Round

Curve = dict[int, float]


def measured(**points: float) -> Curve:
    """A curve through measured widths, straight between them and beyond."""
    known = {int(name[1:]): value for name, value in points.items()}
    widths = sorted(known)
    slope = (known[widths[-1]] - known[widths[-2]]) / (widths[-1] - widths[-2])
    curve = {n: float(np.interp(n, widths, [known[w] for w in widths])) / known[1] for n in range(1, 18)}
    return {
        n: v if n <= widths[-1] else (known[widths[-1]] + slope * (n - widths[-1])) / known[1] for n, v in curve.items()
    }


def flat(v8: float) -> Curve:
    """A GPU: hardly more for several rows, v(8) given."""
    return {n: 1 + (v8 - 1) * (n - 1) / 7 for n in range(1, 18)}


def cliff(at: int, low: float, high: float) -> Curve:
    """Flat up to a width, then a jump: kernels that change with the batch."""
    return {n: 1.0 if n == 1 else (low if n <= at else high) + 0.01 * n for n in range(1, 18)}


CURVES: dict[str, Curve] = {
    "GPU, v(8) = 1.1": flat(1.1),
    "GPU, v(8) = 1.5": flat(1.5),
    "Apple, cliff behind 8": cliff(8, 1.25, 2.4),
    "A100-like, never pays": {n: 1.0 if n == 1 else 0.2 + n for n in range(1, 18)},
    "CPU F32": measured(n1=15.6, n2=24.1, n3=26.4, n4=29.9, n5=32.1, n6=31.4, n8=38.0, n12=46.5, n16=56.1),
    "CPU BF16": measured(n1=10.4, n2=14.6, n3=16.8, n4=19.2, n5=20.2, n6=21.8, n8=25.3, n12=32.1, n16=38.0),
    "CPU Q4_1": measured(n1=7.7, n2=13.5, n3=17.0, n4=21.0, n5=26.1, n6=29.9, n8=35.0, n12=49.9, n16=64.3),
    "CPU Gemma Q4_K_M": measured(n1=12.6, n2=23.3, n3=28.3, n4=31.1, n5=47.0, n6=51.0, n8=46.2, n12=61.9, n16=74.7),
}
STEPS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
ACCEPTANCES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.98)
CONFIDENCES = ("informative", "noisy", "useless")
RECORDED = "recorded"
LENGTHS = (160, 1000)
BARS = {(160, False): (0.92, 0.95), (160, True): (0.97, 0.98), (1000, False): (0.97, 0.98), (1000, True): (0.97, 0.98)}
"""By tokens and whether the pair was seen before: what a cell should reach of the best fixed length, and of plain."""
MAX_GAMMA = 16
NOISE = 0.03


@dataclass(frozen=True)
class Text:
    """For every position: would a drafted token be accepted, and how sure is the draft."""

    is_accepted: np.ndarray
    confidence: np.ndarray


def make_text(n: int, acceptance: Callable[[int], float], kind: str, seed: int) -> Text:
    """A text of `n` positions whose mean acceptance is given by position."""
    if kind == RECORDED:
        return recorded_text(n, seed)
    rng = np.random.default_rng([seed, n])
    mean = np.array([acceptance(i) for i in range(n)])
    spread = 2.0 if kind != "useless" else 1e6
    prob = rng.beta(spread * mean, spread * (1 - mean))
    confidence = prob
    if kind == "noisy":
        logit = np.log(np.clip(prob, 1e-4, 1 - 1e-4) / (1 - np.clip(prob, 1e-4, 1 - 1e-4)))
        confidence = 1 / (1 + np.exp(-(logit + rng.normal(0, 1.5, n))))
    elif kind == "useless":
        confidence = rng.uniform(0, 1, n)
    return Text(rng.random(n) < prob, confidence)


@cache
def recorded() -> Text:
    """All traces of the demo pair, one after the other."""
    traces = json.loads(Path(__file__).with_name("traces.json").read_text(encoding="utf-8"))["traces"].values()
    is_accepted = np.concatenate([trace["accepted"] for trace in traces]).astype(bool)
    return Text(is_accepted, np.concatenate([trace["confidence"] for trace in traces]))


def recorded_text(n: int, seed: int) -> Text:
    """Some `n` positions of the traces, which go round."""
    at = (np.arange(n) + 137 * seed) % len(recorded().confidence)
    return Text(recorded().is_accepted[at], recorded().confidence[at])


def catch_up_of(curve: Curve) -> float:
    """Taking in a token, in draft steps: next to nothing where rows are nearly free, a third on a CPU."""
    return min(0.3, 0.3 * (curve[8] - 1) / 7 * 2)


def simulate(policy: Policy, text: Text, curve: Curve, step: float, n_tokens: int, seed: int) -> np.ndarray:
    """Decode `n_tokens` and return the time after each of them, in plain steps."""
    rng = np.random.default_rng([seed, 7])
    noise = 1 + NOISE * np.clip(rng.standard_normal(4 * n_tokens + 64), -3, 3)
    times = np.zeros(n_tokens)
    at = n_noise = 0
    now = 0.0
    n_behind = 1
    while at < n_tokens:
        n_wanted = n_tokens - at
        limit = min(n_wanted - 1, MAX_GAMMA)
        outlook = Outlook(limit, limit, at, n_wanted, n_behind)
        gamma = min(policy.begin(outlook).gamma, limit)
        made: list[Proposal] = []
        sent = 0
        catch_up = 0.0
        if gamma > 0:
            catch_up = catch_up_of(curve) * step * (n_behind - 1)
            while len(made) < gamma:
                made.append(Proposal(0, "model", float(text.confidence[at + len(made)])))
                sent = len(made)
                kept = policy.next(made)
                if kept is not None:
                    sent = kept
                    break
        n_accepted = 0
        while n_accepted < sent and text.is_accepted[at + n_accepted]:
            n_accepted += 1
        target_s = curve[sent + 1] * noise[n_noise % len(noise)]
        draft_s = len(made) * step * noise[(n_noise + 1) % len(noise)]
        n_noise += 2
        now += target_s + draft_s + catch_up
        is_full = n_accepted == sent
        ending = Ending.BONUS if is_full else Ending.RECOVERED
        policy.observe(
            Round(
                at,
                ("model",) * sent,
                len(made) - sent,
                n_accepted,
                ending,
                target_s,
                draft_s,
                catch_up if n_behind > 16 else 0.0,
                (("model", draft_s),),
                bool(text.is_accepted[at + sent]) if is_full and len(made) > sent else None,
            )
        )
        n_behind = 1 if made else n_behind + n_accepted + 1
        times[at : at + n_accepted + 1] = now
        at += n_accepted + 1
    return times


def adaptive(knowledge: Knowledge | None = None) -> AdaptivePolicy:
    """The policy, cold or with what it learned."""
    return AdaptivePolicy(knowledge or Knowledge(), "model")


def warmed(curve: Curve, step: float, kind: str, acceptance: float, seed: int) -> Knowledge:
    """What an earlier answer of 400 tokens left, through the form in which it is stored."""
    knowledge = Knowledge()
    text = make_text(500, lambda _: acceptance, kind, 1000 + seed)
    simulate(AdaptivePolicy(knowledge, "model"), text, curve, step, 400, 1000 + seed)
    return Knowledge.from_data(knowledge.as_data())


@dataclass(frozen=True)
class Cell:
    """One machine, draft, text kind; speeds are geometric means over seeds."""

    curve: str
    step: float
    acceptance: float
    kind: str
    n_tokens: int
    is_warm: bool
    to_best: float
    to_plain: float
    best_gamma: int


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


def cells_of(job: tuple[str, float, float, str, int, int]) -> list[Cell]:
    """The cold and the warm cell of one setting."""
    name, step, acceptance, kind, n_tokens, n_seeds = job
    curve = CURVES[name]
    fixed: dict[int, list[float]] = {gamma: [] for gamma in range(MAX_GAMMA + 1)}
    ours: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(n_seeds):
        text = make_text(n_tokens + MAX_GAMMA + 1, lambda _: acceptance, kind, seed)
        for gamma in fixed:
            fixed[gamma].append(float(simulate(FixedPolicy(gamma), text, curve, step, n_tokens, seed)[-1]))
        for is_warm in ours:
            known = warmed(curve, step, kind, acceptance, seed) if is_warm else None
            ours[is_warm].append(float(simulate(adaptive(known), text, curve, step, n_tokens, seed)[-1]))
    means = {gamma: geometric_mean(times) for gamma, times in fixed.items()}
    best = min(means, key=lambda gamma: means[gamma])
    return [
        Cell(name, step, acceptance, kind, n_tokens, is_warm, means[best] / mean, means[0] / mean, best)
        for is_warm, mean in ((is_warm, geometric_mean(times)) for is_warm, times in ours.items())
    ]


def change_of(job: tuple[str, float, str, float, float, int]) -> tuple[str, float]:
    """Speed over the best fixed length after acceptance changed, from 60 tokens after the change on."""
    name, step, kind, before, after, n_seeds = job
    curve = CURVES[name]
    change, settle, n_tokens = 300, 60, 700
    spent: dict[int, list[float]] = {gamma: [] for gamma in range(MAX_GAMMA + 1)}
    ours = []
    for seed in range(n_seeds):
        text = make_text(n_tokens + MAX_GAMMA + 1, lambda i: before if i < change else after, kind, seed)
        for gamma in spent:
            times = simulate(FixedPolicy(gamma), text, curve, step, n_tokens, seed)
            spent[gamma].append(float(times[-1] - times[change + settle]))
        times = simulate(adaptive(), text, curve, step, n_tokens, seed)
        ours.append(float(times[-1] - times[change + settle]))
    best = min(geometric_mean(times) for times in spent.values())
    return f"{name}, c = {step}, {kind}, {before} to {after}", best / geometric_mean(ours)


def summarise(cells: list[Cell]) -> list[str]:
    """The table: worst and mean cell per length and state."""
    lines = [
        "| tokens | pair | cells | to best fixed γ: worst | mean | below bar | to plain: worst | mean | below bar |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for n_tokens, is_warm in itertools.product(sorted({c.n_tokens for c in cells}), (False, True)):
        part = [c for c in cells if c.n_tokens == n_tokens and c.is_warm == is_warm]
        best, plain = [c.to_best for c in part], [c.to_plain for c in part]
        best_bar, plain_bar = BARS[n_tokens, is_warm]
        lines.append(
            f"| {n_tokens} | {'seen before' if is_warm else 'new'} | {len(part)} | {min(best):.3f} "
            f"| {geometric_mean(best):.3f} | {sum(x < best_bar for x in best)} of {best_bar} | {min(plain):.3f} "
            f"| {geometric_mean(plain):.3f} | {sum(x < plain_bar for x in plain)} of {plain_bar} |"
        )
    return lines


def worst(cells: list[Cell], n: int) -> list[str]:
    """The cells that do worst against the best fixed length."""
    lines = []
    for n_tokens, is_warm in itertools.product(sorted({c.n_tokens for c in cells}), (False, True)):
        part = sorted((c for c in cells if c.n_tokens == n_tokens and c.is_warm == is_warm), key=lambda c: c.to_best)
        for c in part[:n]:
            state = "seen before" if is_warm else "new"
            lines.append(
                f"| {n_tokens} | {state} | {c.curve} | {c.step} | {c.acceptance} | {c.kind} | {c.best_gamma} "
                f"| {c.to_best:.3f} | {c.to_plain:.3f} |"
            )
    return lines


def main() -> None:
    """Simulate, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a part of the cells, to try something out")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    steps = STEPS[1::2] if options.quick else STEPS
    acceptances = ACCEPTANCES[::2] if options.quick else ACCEPTANCES
    lengths = LENGTHS[:1] if options.quick else LENGTHS
    jobs = list(itertools.product(CURVES, steps, acceptances, CONFIDENCES, lengths, (options.seeds,)))
    typical = round(float(recorded().is_accepted.mean()), 2)
    jobs += itertools.product(CURVES, steps, (typical,), (RECORDED,), lengths, (options.seeds,))
    pairs = ((0.9, 0.3), (0.3, 0.9), (0.9, 0.6), (0.6, 0.95))
    changes = [
        (n, c, k, a, b, options.seeds) for n, c, k, (a, b) in itertools.product(CURVES, (0.1, 0.3), CONFIDENCES, pairs)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        cells = [cell for found in pool.map(cells_of, jobs, chunksize=4) for cell in found]
        changed = [] if options.quick else sorted(pool.map(change_of, changes, chunksize=4), key=lambda item: item[1])
    lines = [*summarise(cells), ""]
    lines += [
        "| tokens | pair | machine | c | α | confidence | best γ | to the best | to plain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += worst(cells, 6)
    if changed:
        ratios = [ratio for _, ratio in changed]
        lines += [
            "",
            f"after a change of α: worst {ratios[0]:.3f} ({changed[0][0]}), mean {geometric_mean(ratios):.3f}",
        ]
        lines += [f"- {name}: {ratio:.3f}" for name, ratio in changed[:6]]
    print("\n".join(lines))
    if options.markdown:
        command = f"python bench/simulate_policy.py --seeds {options.seeds}"
        title = [
            "# The adaptive policy against fixed draft lengths",
            "",
            f"Written by `{command} --markdown FILE`.",
            "",
        ]
        options.markdown.write_text("\n".join([*title, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
