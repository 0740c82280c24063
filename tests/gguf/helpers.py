"""Short ways to a loaded model, a context, an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from specgen.engine.loop import Engine
from specgen.engine.metrics import Metrics
from specgen.llama.chat import encode_raw
from specgen.llama.context import ContextParams, LlamaBackend
from specgen.llama.model import LlamaModel
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.session import Decoding, Session, SessionParams
from specgen.types import AcceptRule, DraftType, FloatArray, Placement, Request, SamplingParams
from tests.tiny_gguf import FIRST_BYTE

PROMPT = "Once upon a time, "
N_ANSWER = 48
ROUNDING = {"f32": 5e-4, "f16": 0.02}
"""Twice what passes of different widths change in the logits of the noisiest tiny model, by the cache's precision."""
FEED_WIDTH = 32
"""Below 64 rows, where flash attention on the CPU starts to tile and rounds in another way."""
SENTENCE = "Héllo wörld, the first and the second! 🦙 日本\n\ttab "


@contextmanager
def vocabulary_of(path: Path) -> Iterator[LlamaVocabulary]:
    with LlamaModel(path) as model:
        yield model.vocabulary


@contextmanager
def backend_of(path: Path, n_ctx: int = 512, max_rows: int = 9, kv_type: str = "f32") -> Iterator[LlamaBackend]:
    params = ContextParams(n_ctx, max_rows, n_threads=1, kv_type=kv_type)
    with LlamaModel(path, Placement(0)) as model, LlamaBackend(model, params) as backend:
        yield backend


def some_tokens(n: int, seed: int = 0) -> list[int]:
    """A text without meaning: `n` byte tokens, which every tiny vocabulary has."""
    return (FIRST_BYTE + np.random.default_rng(seed).integers(0, 256, n)).tolist()


def fresh_logits(
    path: Path, tokens: Sequence[int], n_rows: int = 1, n_ctx: int = 512, kv_type: str = "f32"
) -> FloatArray:
    """What a context that never saw anything else says: (n_rows, n_vocab), one token at a time after the prompt."""
    with backend_of(path, n_ctx, kv_type=kv_type) as backend:
        n_prompt = len(tokens) - n_rows
        feed(backend, tokens[:n_prompt])
        return np.concatenate([backend.eval([token], 1).copy() for token in tokens[n_prompt:]])


def feed(backend: LlamaBackend, tokens: Sequence[int]) -> None:
    """Into the cache, without logits."""
    for start in range(0, len(tokens), FEED_WIDTH):
        backend.eval(tokens[start : start + FEED_WIDTH], 0)


def assert_close(actual: FloatArray, expected: FloatArray, kv_type: str = "f32") -> None:
    """Equal but for rounding: one-row and many-row passes run different kernels.

    One wrong token in the cache moves some logit of nearly every later row by 0.2 to 10.
    """
    np.testing.assert_allclose(actual, expected, rtol=0, atol=ROUNDING[kv_type])


def open_session(target: Path, draft: Path | None, gamma: int | None = 4, **params: object) -> Session:
    """Without a draft, and unless `draft_types` says otherwise, plain decoding."""
    params.setdefault("draft_types", (DraftType.MODEL,))
    return Session(target, draft, SessionParams(0, 0, gamma=gamma, **params))  # type: ignore[arg-type]


def ask(
    session: Session,
    prompt: str | Sequence[int],
    max_tokens: int,
    *,
    n_ctx: int = 512,
    accept: AcceptRule = AcceptRule.BLOCK,
    stop: tuple[str, ...] = (),
    ignore_eog: bool = False,
    **sampling: object,
) -> tuple[Engine, Request]:
    """A session and a question as an engine and its request; text is a raw prompt."""
    if isinstance(prompt, str):
        prompt = encode_raw(session.target.vocabulary, prompt)
    engine = session.engine(n_ctx, Decoding(SamplingParams(**sampling), accept, ignore_eog))  # type: ignore[arg-type]
    return engine, Request(prompt, max_tokens, stop)


def run(engine: Engine, request: Request) -> Metrics:
    metrics = Metrics(len(request.prompt))
    for step in engine.generate(request):
        metrics.add(step)
    return metrics


def answer(
    session: Session, prompt: str | Sequence[int] = PROMPT, max_tokens: int = N_ANSWER, **question: object
) -> Metrics:
    """The whole answer of a session."""
    return run(*ask(session, prompt, max_tokens, **question))  # type: ignore[arg-type]


def answer_of(
    target: Path,
    draft: Path | None,
    gamma: int | None = 4,
    draft_types: tuple[DraftType, ...] = (DraftType.MODEL,),
    **question: object,
) -> Metrics:
    """The answer of a fresh session."""
    with open_session(target, draft, gamma, draft_types=draft_types) as session:
        return answer(session, **question)  # type: ignore[arg-type]


class Shaken:
    """A backend whose logits are off by as much as another kernel's are."""

    def __init__(self, backend: LlamaBackend, seed: int) -> None:
        self._backend = backend
        self._random = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def eval(self, tokens: Sequence[int], n_rows: int, pad_to: int = 1) -> FloatArray:
        rows = self._backend.eval(tokens, n_rows, pad_to)
        rows += self._random.normal(0, ROUNDING["f16"] / 4, rows.shape)
        return rows


def steady_question(
    target: Path, first_seed: int = 0, max_tokens: int = N_ANSWER, **question: object
) -> tuple[dict[str, object], Metrics]:
    """A question whose answer does not hang on rounding, and the answer of plain decoding.

    One-row and many-row passes differ in the last bits, so where two tokens are nearly tied (or the random number falls
    between two), draft lengths may rightly disagree. Prompts are tried until the answer survives small noise.
    """
    with open_session(target, None) as session:
        for seed in range(first_seed, first_seed + 100):
            prompt = some_tokens(20, seed)
            expected = answer(session, prompt, max_tokens, **question)
            for shake in range(5):
                engine, request = ask(session, prompt, max_tokens, **question)  # type: ignore[arg-type]
                engine.target = Shaken(engine.target, shake)
                if run(engine, request).token_ids != expected.token_ids:
                    break
            else:
                return {"prompt": prompt, "max_tokens": max_tokens, **question}, expected
    raise AssertionError("no prompt has a steady answer")
