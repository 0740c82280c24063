"""Acceptance traces of a real pair, for the simulation.

    python bench/record_traces.py [--pair demo] [--tokens 400] [--json bench/traces.json]

For every position of the target's own greedy answer: what the draft would guess after the tokens before it, how sure
it is, and whether the target agrees. That is what any policy meets, whatever lengths it drafts, because a drafted token
only counts where all before it were right. No times are taken, so a busy machine gives the same file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from prompts import PROMPTS, prompts_of

from specgen.cli._options import physical_cores
from specgen.llama import chat
from specgen.llama.context import ContextParams, LlamaBackend, natural_kv_type
from specgen.llama.model import LlamaModel
from specgen.pairs.resolve import find, resolve

N_ROWS = 64


def answer(target: LlamaBackend, prompt: list[int], n_tokens: int) -> list[int]:
    """The target's greedy answer."""
    target.rollback(0)
    tokens = [int(target.eval(prompt, 1)[0].argmax())]
    while len(tokens) < n_tokens and tokens[-1] not in target.vocabulary.eog_ids:
        tokens.append(int(target.eval(tokens[-1:], 1)[0].argmax()))
    return tokens


def trace(draft: LlamaBackend, prompt: list[int], tokens: list[int]) -> dict[str, list[float]]:
    """The draft's confidence at every position of an answer, and whether its guess is right there."""
    draft.rollback(0)
    draft.eval(prompt, 0)
    confidences: list[float] = []
    accepted: list[float] = []
    for start in range(0, len(tokens) - 1, N_ROWS):
        part = tokens[start : min(start + N_ROWS, len(tokens) - 1)]
        for row, following in zip(draft.eval(part, len(part)), tokens[start + 1 :], strict=False):
            guess = int(row.argmax())
            confidences.append(round(float(1 / np.exp(row - row[guess]).sum()), 4))
            accepted.append(int(guess == following))
    return {"confidence": confidences, "accepted": accepted}


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("traces.json"))
    options = parser.parse_args()
    files = resolve(find(options.pair), None, lambda _text, _fraction: None)
    assert files.draft is not None
    with LlamaModel(files.target) as target_model, LlamaModel(files.draft) as draft_model:
        kv_types = natural_kv_type(target_model), natural_kv_type(draft_model)
        threads = physical_cores()
        with (
            LlamaBackend(target_model, ContextParams(2048, 1, threads, kv_types[0])) as target,
            LlamaBackend(draft_model, ContextParams(2048, N_ROWS, threads, kv_types[1])) as draft,
        ):
            traces = {}
            for text in prompts_of(tuple(PROMPTS), n_each=1):
                prompt = chat.encode_raw(target_model.vocabulary, text.text)
                found = traces[text.name] = trace(draft, prompt, answer(target, prompt, options.tokens))
                rate = np.mean(found["accepted"])
                print(f"{text.name}: {len(found['accepted'])} positions, {rate:.0%} accepted", flush=True)
    options.json.write_text(json.dumps({"pair": options.pair, "traces": traces}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
