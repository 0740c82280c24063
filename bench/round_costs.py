"""How much of decoding time the rounds' own passes explain.

    python bench/round_costs.py [--gamma 4] [--repeats 5] [--tokens 160]

Decodes a prompt of every category, writing down how many rows every pass of target and draft had; then times passes of
just those widths at a similar cache length, in turn with the decoding. What the sum of the passes does not explain is
time that the loop itself costs: Python, sampling, printing, rollbacks. Prints one line per prompt.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Sequence

from prompts import PROMPTS, prompts_of

from specgen.cli._options import physical_cores
from specgen.engine.metrics import Metrics
from specgen.llama import chat
from specgen.llama.context import LlamaBackend
from specgen.pairs.resolve import find, resolve
from specgen.session import Decoding, Session, SessionParams
from specgen.types import Request

N_CTX = 2048


class Widths:
    """Counts the passes of a backend by their number of tokens, while it is watched."""

    def __init__(self, backend: LlamaBackend) -> None:
        self.backend = backend
        self.counts: Counter[tuple[int, int]] = Counter()
        self._eval = backend.eval
        backend.eval = self._counted  # type: ignore[method-assign]

    def _counted(self, tokens: Sequence[int], n_rows: int, pad_to: int = 1):
        self.counts[len(tokens), n_rows] += 1
        return self._eval(tokens, n_rows, pad_to)

    def take(self) -> Counter[tuple[int, int]]:
        """The counts since the last call."""
        taken, self.counts = self.counts, Counter()
        return taken

    def cost_s(self, n_tokens: int, n_rows: int, n_past: int) -> float:
        """Seconds of one pass at a cache of `n_past` tokens; the cache must hold more."""
        self.backend.rollback(n_past)
        start_s = time.perf_counter()
        self._eval([1] * n_tokens, n_rows)
        return time.perf_counter() - start_s


def fill(backend: LlamaBackend, n_tokens: int) -> None:
    """Put `n_tokens` into an empty cache."""
    backend.rollback(0)
    for start in range(0, n_tokens, 64):
        backend.eval([1] * min(64, n_tokens - start), n_rows=0)


def explained_s(watched: list[Widths], passes: list[Counter[tuple[int, int]]], n_past: int, repeats: int) -> float:
    """Seconds of all passes at their measured costs; the widths take turns."""
    total = 0.0
    for widths, counts in zip(watched, passes, strict=True):
        fill(widths.backend, n_past)
        samples: dict[tuple[int, int], list[float]] = {width: [] for width in counts}
        for _ in range(repeats):
            for width in samples:
                samples[width].append(widths.cost_s(*width, n_past))
        total += sum(counts[width] * statistics.median(samples[width]) for width in counts)
    return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--pair", default="demo")
    options = parser.parse_args()
    files = resolve(find(options.pair), None, lambda *_: None)
    params = SessionParams(n_threads=physical_cores(), gamma=options.gamma)
    print("| prompt | unexplained | outside the models |\n|---|---|---|")
    shares = []
    with Session(files.target, files.draft, params) as session:
        engine = session.engine(N_CTX, Decoding())
        watched = [Widths(backend) for backend in session.backends]
        for text in prompts_of(tuple(PROMPTS), n_each=1):
            prompt = chat.encode_raw(session.target.vocabulary, text.text)
            unexplained, outside = [], []
            for _ in range(options.repeats):
                steps = engine.generate(Request(prompt, options.tokens))
                metrics = Metrics(len(prompt))
                metrics.add(next(steps))
                for widths in watched:
                    widths.take()
                for step in steps:
                    metrics.add(step)
                stats = metrics.stats()
                passes = [widths.take() for widths in watched]
                for counts in passes:  # the draft's prefill is left out on both sides
                    for width in [width for width in counts if width[1] == 0]:
                        del counts[width]
                n_past = len(prompt) + stats.n_generated // 2
                seconds = stats.decode_s - stats.draft_prefill_s
                unexplained.append(1 - explained_s(watched, passes, n_past, 3) / seconds)
                outside.append(stats.overhead_s / stats.decode_s)
            shares.append(statistics.median(unexplained))
            print(f"| {text.name} | {100 * shares[-1]:.1f} % | {100 * statistics.median(outside):.2f} % |", flush=True)
    print(f"\nunexplained, median over prompts: {100 * statistics.median(shares):.1f} %")


if __name__ == "__main__":
    main()
