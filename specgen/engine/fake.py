"""A scripted model, drafter and clock: the seams of the engine without a model file.

Shipped, so that whoever builds on the engine tests with what specgen itself is tested with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from specgen.engine.backend import Capabilities, MemoryKind
from specgen.errors import BackendError
from specgen.types import Distribution, FloatArray, IntArray, Proposal

Script = Callable[[Sequence[int]], FloatArray]
"""Logits (n_vocab,) of the token that follows a prefix."""


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class FakeVocabulary:
    """Token `i` is the bytes `pieces[i]`."""

    def __init__(self, pieces: Sequence[bytes], eog_ids: Sequence[int] = ()) -> None:
        self.pieces = list(pieces)
        self.n_tokens = len(self.pieces)
        self.eog_ids = frozenset(eog_ids)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token."""
        return self.pieces[token]


class FakeBackend:
    """A model that follows a script and charges a clock.

    Args:
        script: logits after a prefix.
        vocabulary: its ids.
        n_ctx: room in the cache.
        clock: advanced by `cost_s(n)` for every pass over n tokens.
        cost_s: seconds of a pass.
        rollback_limit: as in Capabilities.
        max_batch, max_rows: as in Capabilities.

    Attributes:
        cache: the tokens in the cache.
        passes: the tokens of every pass so far.
        fail_rollback: refuse every rollback that would drop something, as a recurrent memory does.
    """

    def __init__(
        self,
        script: Script,
        vocabulary: FakeVocabulary,
        n_ctx: int = 4096,
        clock: FakeClock | None = None,
        cost_s: Callable[[int], float] = lambda n: 0.0,  # noqa: ARG005
        rollback_limit: int | None = None,
        max_batch: int = 64,
        max_rows: int = 64,
    ) -> None:
        self.vocabulary = vocabulary
        self.n_vocab = vocabulary.n_tokens
        self.n_ctx = n_ctx
        memory = MemoryKind.FULL if rollback_limit is None else MemoryKind.RECURRENT
        self.capabilities = Capabilities(rollback_limit, max_rows, max_batch, memory=memory)
        self.cache: list[int] = []
        self.passes: list[tuple[int, ...]] = []
        self.fail_rollback = False
        self.busy_s = 0.0
        self._script = script
        self._clock = clock or FakeClock()
        self._cost_s = cost_s

    @property
    def n_past(self) -> int:
        """Tokens in the cache."""
        return len(self.cache)

    def eval(self, tokens: Sequence[int], n_rows: int, pad_to: int = 1) -> FloatArray:
        """One scripted pass; the same contract as a real one, checked."""
        n_padded = -(-len(tokens) // pad_to) * pad_to
        if not 1 <= len(tokens) <= self.capabilities.max_batch or n_rows > self.capabilities.max_rows:
            raise BackendError(f"a pass of {len(tokens)} tokens and {n_rows} rows is beyond this backend")
        if self.n_past + len(tokens) > self.n_ctx:
            raise BackendError(f"the context is full: {self.n_past} + {len(tokens)} > {self.n_ctx}")
        if not all(0 <= token < self.n_vocab for token in tokens):
            raise BackendError("a token outside the vocabulary")
        seconds = self._cost_s(n_padded)
        self._clock.advance(seconds)
        self.busy_s += seconds
        self.passes.append(tuple(tokens))
        rows = np.empty((n_rows, self.n_vocab), dtype=np.float32)
        for i, token in enumerate(tokens, start=n_rows - len(tokens)):
            self.cache.append(token)
            if i >= 0:
                rows[i] = self._script(self.cache)
        return rows

    def rollback(self, n_past: int) -> None:
        """Drop what is in the cache from `n_past` on."""
        n_dropped = self.n_past - n_past
        limit = self.capabilities.rollback_limit
        is_beyond = limit is not None and n_dropped > limit
        if n_dropped > 0 and n_past > 0 and (self.fail_rollback or is_beyond):
            raise BackendError(f"the memory cannot take back {n_dropped} tokens")
        del self.cache[n_past:]


class ScriptedDrafter:
    """Guesses what `script` says follows a prefix, without a model. None ends the draft.

    Args:
        script: the next token after a prefix.
        name: the source of its proposals.
        n_ctx: longest history and draft.
        is_free: offer instead of being asked.
    """

    def __init__(
        self,
        script: Callable[[Sequence[int]], int | None],
        name: str = "script",
        n_ctx: int = 1 << 20,
        is_free: bool = False,
    ) -> None:
        self.names = (name,)
        self.prefill_s = 0.0
        self.commits: list[int] = []
        self._script = script
        self._n_ctx = n_ctx
        self._is_free = is_free

    def begin(self, prompt: Sequence[int]) -> None:
        """Nothing to forget."""

    def limit(self, n_history: int) -> int:
        """Room up to n_ctx; 0 where it only offers."""
        return 0 if self._is_free else max(0, self._n_ctx - n_history)

    def n_behind(self, n_history: int) -> int:  # noqa: ARG002
        """Never behind."""
        return 1

    def offer(self, history: Sequence[int], n: int) -> Sequence[Proposal]:
        """Follow the script, where this drafter is free."""
        return list(islice(self._follow(history), n)) if self._is_free else ()

    def propose(self, history: Sequence[int], draft: Sequence[Proposal] = ()) -> Iterator[Proposal]:
        """Follow the script, where this drafter is asked."""
        return iter(()) if self._is_free else self._follow([*history, *(proposal.token for proposal in draft)])

    def _follow(self, history: Sequence[int]) -> Iterator[Proposal]:
        prefix = list(history)
        while (token := self._script(prefix)) is not None:
            yield Proposal(token, self.names[0])
            prefix.append(token)

    def commit(self, n_valid: int) -> None:
        """Remember what was asked."""
        self.commits.append(n_valid)

    @property
    def busy_s(self) -> Mapping[str, float]:
        """Drafting takes no time."""
        return {self.names[0]: 0.0}


class SoftmaxSampler:
    """Temperature and top-k in numpy: a sampler for tests of the sampled rules.

    Args:
        temperature: positive.
        top_k: keep this many of the most probable tokens; 0 keeps all.
    """

    is_greedy = False

    def __init__(self, temperature: float = 1.0, top_k: int = 0) -> None:
        self._temperature = temperature
        self._top_k = top_k

    def reset(self, prompt: Sequence[int]) -> None:
        """Nothing to forget."""

    def distribution(self, logits: FloatArray) -> Distribution:
        """Softmax of the kept logits, most probable first."""
        ids = np.argsort(-logits, kind="stable")[: self._top_k or None]
        weights = np.exp((logits[ids] - logits[ids[0]]).astype(np.float64) / self._temperature)
        return Distribution(ids.astype(np.int32), weights / weights.sum())

    def accept(self, token: int) -> None:
        """Nothing to remember."""

    n_candidates = None

    def distribution_among(self, ids: IntArray, logits: FloatArray) -> Distribution:
        """Never asked: it needs the whole row."""
        raise NotImplementedError

    def is_finished(self) -> bool:
        """Never."""
        return False

    def fork(self) -> SoftmaxSampler:
        """Itself: there is no state."""
        return self
