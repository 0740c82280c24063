"""What everything outside the models costs when tokens are sampled: the demo pair, and a vocabulary of 152,000.

    python bench/overhead.py [--repeats 5] [--tokens 160] [--vocabulary 152000]

Runs `specgen run` at temperature 0.8, top-k 40, top-p 0.95, plainly and with drafts, and prints the part of decoding
time that was not spent inside llama_decode and fetching its logits: sampling, verification, rollbacks, text, printing.
The second model has random weights, SmolLM2's size, and drafts for itself at 4 bits; its text is nonsense, its costs
are not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from arms import Arm, Role, Run, Task
from models import derived, requantized, with_vocabulary
from programs import SPECGEN, run
from prompts import PROMPTS, prompts_of

from specgen.cli._options import physical_cores

_SAMPLING = ("--temperature", "0.8", "--top-k", "40", "--top-p", "0.95")
_SETTINGS: dict[str, tuple[str, ...]] = {"plain": ("--gamma", "0"), "γ = 4": ("--gamma", "4"), "default": ()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    options = parser.parse_args()
    large = with_vocabulary(options.vocabulary)
    pairs = {
        "the demo pair": (derived("F32"), derived("Q4_K_M")),
        f"a vocabulary of {options.vocabulary:,}": (large, requantized(large, "Q4_K_M")),
    }
    prompts = prompts_of(tuple(PROMPTS), n_each=1)
    print("| pair | setting | outside the models, median | worst run | accepted | tok/s |\n|---|---|---|---|---|---|")
    for name, (target, draft) in pairs.items():
        runs: dict[str, list[Run]] = {setting: [] for setting in _SETTINGS}
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(options.repeats):
                prompt = prompts[repeat % len(prompts)]
                file = Path(folder, f"{prompt.name}.txt")
                file.write_text(prompt.text + "\n", encoding="utf-8")
                task = Task(target, draft, file, options.tokens, physical_cores(), ignores_eos=True)
                for setting, words in _SETTINGS.items():
                    sampled = (*_SAMPLING, "--seed", str(repeat), *words)
                    runs[setting].append(run(Arm(setting, Role.ASIDE, SPECGEN, sampled), task))
        for setting, found in runs.items():
            print(_row(name, setting, found), flush=True)


def _row(name: str, setting: str, runs: list[Run]) -> str:
    shares = [100 * (run.overhead or 0.0) for run in runs]
    n_drafted = sum(run.n_drafted or 0 for run in runs)
    accepted = f"{sum(run.n_accepted or 0 for run in runs) / n_drafted:.0%}" if n_drafted else ""
    speed = statistics.median(run.bare_tok_s for run in runs)
    return (
        f"| {name} | {setting} | {statistics.median(shares):.2f} % | {max(shares):.2f} % | {accepted} | {speed:.1f} |"
    )


if __name__ == "__main__":
    main()
