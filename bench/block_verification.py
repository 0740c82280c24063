"""What block verification gains over rejection token by token, on the demo pair.

    python bench/block_verification.py [--gammas 4,8] [--temperatures 0.6,1] [--seeds 3] [--tokens 160]

Both rules keep the target's distribution (tests/unit/test_exact_answers.py), so only the number of target passes can
differ. Answers every prompt with every seed under both rules at a fixed draft length, without suffix drafts, and prints
tokens per target pass, counted over all answers, and the gain with its standard error over prompts and seeds. Counts
tokens, not seconds: a busy machine changes nothing. Sampling is by temperature alone, where a draft has the most to
lose.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator

from prompts import PROMPTS, prompts_of

from specgen.cli._options import physical_cores
from specgen.engine.metrics import Metrics
from specgen.llama import chat
from specgen.pairs.resolve import ModelFiles, find, resolve
from specgen.session import Decoding, Session, SessionParams
from specgen.types import AcceptRule, DraftType, Request, SamplingParams

N_CTX = 1024
_RULES = (AcceptRule.REJECT, AcceptRule.BLOCK)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gammas", type=lambda text: [int(word) for word in text.split(",")], default=[4, 8])
    parser.add_argument("--temperatures", type=lambda text: [float(word) for word in text.split(",")], default=[0.6, 1])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160)
    options = parser.parse_args()
    files = resolve(find("demo"), None, lambda *_: None)
    print("| γ | temperature | reject | block | gain |\n|---|---|---|---|---|")
    for gamma in options.gammas:
        for temperature in options.temperatures:
            counts = list(_counts(files, gamma, temperature, options.seeds, options.tokens))
            n_tokens, n_rejecting, n_blocking = (sum(column) for column in zip(*counts, strict=True))
            gains = [math.log(rejecting / blocking) for _, rejecting, blocking in counts]
            error = statistics.stdev(gains) / math.sqrt(len(gains))
            print(
                f"| {gamma} | {temperature:g} | {n_tokens / n_rejecting:.2f} | {n_tokens / n_blocking:.2f} "
                f"| {100 * (n_rejecting / n_blocking - 1):+.1f} ± {100 * error:.1f} % |",
                flush=True,
            )


def _counts(
    files: ModelFiles, gamma: int, temperature: float, n_seeds: int, n_tokens: int
) -> Iterator[tuple[int, int, int]]:
    """Per prompt and seed: tokens of an answer, and the target passes that each rule took for them."""
    params = SessionParams(n_threads=physical_cores(), gamma=gamma, draft_types=(DraftType.MODEL,))
    with Session(files.target, files.draft, params) as session:
        for text in prompts_of(tuple(PROMPTS), n_each=1):
            prompt = chat.encode_raw(session.target.vocabulary, text.text)
            for seed in range(n_seeds):
                sampling = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0, seed=seed)
                n_passes = []
                for rule in _RULES:
                    engine = session.engine(N_CTX, Decoding(sampling, rule, ignore_eog=True))
                    metrics = Metrics(len(prompt))
                    for step in engine.generate(Request(prompt, n_tokens)):
                        metrics.add(step)
                    n_passes.append(metrics.stats().n_rounds)
                yield n_tokens, n_passes[0], n_passes[1]


if __name__ == "__main__":
    main()
