"""A scripted world for the loop: a target whose text is known, and drafts that agree with it as told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from specgen.drafting.model import ModelDrafter
from specgen.engine.fake import FakeBackend, FakeClock, FakeVocabulary, Script
from specgen.engine.loop import Engine
from specgen.engine.metrics import Metrics, Stats
from specgen.engine.policy import FixedPolicy
from specgen.engine.sampling import GreedySampler
from specgen.types import Request, Step

N_VOCAB = 50
EOG = 0
PROMPT = [1, 2, 3]


def vocabulary(n_tokens: int = N_VOCAB) -> FakeVocabulary:
    """Token i is the letter number i, the end-of-generation token is nothing."""
    pieces = [b"", *(bytes([ord("A") + i % 26]) for i in range(1, n_tokens))]
    return FakeVocabulary(pieces, eog_ids=[EOG])


def next_token(prefix: Sequence[int]) -> int:
    """A text without pattern that depends on the whole prefix, never EOG."""
    return 1 + random.Random(",".join(map(str, prefix))).randrange(N_VOCAB - 1)


def one_hot(choose: Callable[[Sequence[int]], int], n_vocab: int = N_VOCAB) -> Script:
    """Logits whose largest entry is the chosen token."""

    def script(prefix: Sequence[int]) -> np.ndarray:
        logits = np.zeros(n_vocab, dtype=np.float32)
        logits[choose(prefix)] = 10.0
        return logits

    return script


def always(prefix: Sequence[int]) -> int:
    return next_token(prefix)


def never(prefix: Sequence[int]) -> int:
    return 1 + next_token(prefix) % (N_VOCAB - 1)


def every_second(prefix: Sequence[int]) -> int:
    return always(prefix) if len(prefix) % 2 else never(prefix)


def at_random(prefix: Sequence[int]) -> int:
    return always(prefix) if random.Random(f"draft{len(prefix)}").random() < 0.6 else never(prefix)


AGREEMENTS = {"always": always, "never": never, "every second": every_second, "random": at_random}


def true_text(n: int, prompt: Sequence[int] = PROMPT, choose: Callable[[Sequence[int]], int] = next_token) -> list[int]:
    """What the target says, one token at a time."""
    history = list(prompt)
    for _ in range(n):
        history.append(choose(history))
    return history[len(prompt) :]


@dataclass
class World:
    """An engine over fakes, and what it did."""

    gamma: int = 4
    agreement: Callable[[Sequence[int]], int] | None = always
    target_says: Callable[[Sequence[int]], int] = next_token
    n_ctx: int = 4096
    n_draft_ctx: int = 4096
    draft_vocab: int = N_VOCAB
    target_cost_s: Callable[[int], float] = lambda n: 1.0 + 0.1 * n
    draft_cost_s: Callable[[int], float] = lambda n: 0.1 * n
    rollback_limit: int | None = None
    ignore_eog: bool = False
    max_batch: int = 64
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.target = FakeBackend(
            one_hot(self.target_says),
            vocabulary(),
            self.n_ctx,
            self.clock,
            self.target_cost_s,
            self.rollback_limit,
            self.max_batch,
        )
        self.draft = None
        drafter = None
        if self.agreement is not None:
            script = one_hot(self.agreement, self.draft_vocab)
            self.draft = FakeBackend(
                script,
                vocabulary(self.draft_vocab),
                self.n_draft_ctx,
                self.clock,
                self.draft_cost_s,
                None,
                self.max_batch,
            )
            drafter = ModelDrafter(self.draft, GreedySampler(), lambda: random.Random(0).random)
        self.engine = Engine(
            self.target,
            GreedySampler(),
            lambda: random.Random(0).random,
            drafter,
            FixedPolicy(self.gamma),
            ignore_eog=self.ignore_eog,
            clock=self.clock,
        )

    def steps(self, max_tokens: int = 40, prompt: Sequence[int] = PROMPT, stop: tuple[str, ...] = ()) -> Iterator[Step]:
        return self.engine.generate(Request(prompt, max_tokens, stop))

    def run(self, max_tokens: int = 40, prompt: Sequence[int] = PROMPT, stop: tuple[str, ...] = ()) -> Metrics:
        metrics = Metrics(len(prompt), clock=self.clock)
        for step in self.steps(max_tokens, prompt, stop):
            metrics.add(step)
        return metrics


def check_counts(metrics: Metrics, *, ended_by_eog: bool = False) -> Stats:
    """The identities that hold for every answer."""
    stats = metrics.stats()
    n_round_tokens = stats.n_accepted + stats.n_recovered + stats.n_bonus
    if stats.n_generated or ended_by_eog:
        assert n_round_tokens + 1 == stats.n_generated + ended_by_eog
    assert stats.n_accepted <= stats.n_drafted
    assert sum(stats.accept_histogram) == stats.n_rounds
    assert sum(i * n for i, n in enumerate(stats.accept_histogram)) == stats.n_accepted
    assert sum(p.n_drafted for p in stats.accept_by_position) == stats.n_drafted
    assert sum(p.n_accepted for p in stats.accept_by_position) == stats.n_accepted
    assert sum(d.n_drafted for d in stats.by_drafter.values()) == stats.n_drafted
    assert sum(d.n_accepted for d in stats.by_drafter.values()) == stats.n_accepted
    assert stats.overhead_s > -1e-9
    return stats
