"""A target, and what drafts for it, as an engine that answers prompts.

Owns the decision whether there is speculation here, by what, and the reason. Knows nothing of command lines and
streams.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from specgen.drafting.chain import Chain
from specgen.drafting.corpus import CorpusIndex
from specgen.drafting.grammar import GrammarDrafter
from specgen.drafting.lookup import LookupDrafter
from specgen.drafting.model import ModelDrafter, Shortlister
from specgen.drafting.suffix import SuffixDrafter
from specgen.engine.adaptive import MAX_GAMMA, AdaptivePolicy
from specgen.engine.block import verify_as_block
from specgen.engine.drafter import Drafter
from specgen.engine.knowledge import Knowledge
from specgen.engine.loop import Engine
from specgen.engine.policy import FixedPolicy, Policy
from specgen.engine.sampling import Sampler
from specgen.engine.verify import Rule, Uniform, verify_by_match, verify_by_rejection
from specgen.errors import ConfigError, IncompatiblePairError, NotEnoughMemoryError
from specgen.llama import library
from specgen.llama.context import ContextParams, LlamaBackend, natural_kv_type
from specgen.llama.grammar import Grammar
from specgen.llama.model import LlamaModel, check_gguf
from specgen.llama.samplers import make_sampler
from specgen.pairs.compatibility import Match, compare
from specgen.pairs.learned import machine, recall, remember
from specgen.types import ALL_LAYERS, AcceptRule, DraftType, Placement, SamplingParams

DEFAULT_CONTEXT = 4096
_MIN_SHORTLIST = 40
"""Candidates from a device that chooses: fewer would make a confidence of little meaning."""
_MAX_SHORTLIST = 512
DRAFT_ROWS = 1
_RULES: dict[AcceptRule, Rule] = {
    AcceptRule.BLOCK: verify_as_block,
    AcceptRule.REJECT: verify_by_rejection,
    AcceptRule.MATCH: verify_by_match,
}


@dataclass(frozen=True, slots=True)
class Speculation:
    """Whether this session drafts, why (not), and with what."""

    is_on: bool
    reason: str
    drafters: tuple[DraftType, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionParams:
    """Where the models go, and how they draft.

    Attributes:
        n_gpu_layers, n_draft_gpu_layers: layers on a GPU, ALL_LAYERS for all.
        n_threads: CPU threads of both.
        gamma: draft length; None lets the policy choose, 0 is plain decoding and leaves the draft unloaded.
        draft_types: what may draft, heard in the order of DraftType; `model` and `grammar` are ignored without one.
        corpus: texts that the answer may resemble, for `suffix`.
        requires_draft: an error, instead of decoding without it, when the draft model cannot be used here.
        devices, draft_devices: names of the GPUs to use, empty for all, ("CPU",) for none.
        tensor_split: the target's part on each of them; empty for parts by free memory.
        kv_type, draft_kv_type: precision of the caches; None for what does each model justice.
        draft_limit: why the draft model is left out, where something is known to be in its way.
    """

    n_gpu_layers: int = ALL_LAYERS
    n_draft_gpu_layers: int = ALL_LAYERS
    n_threads: int = 1
    gamma: int | None = None
    draft_types: tuple[DraftType, ...] = (DraftType.SUFFIX, DraftType.MODEL)
    corpus: tuple[str, ...] = ()
    requires_draft: bool = False
    devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    kv_type: str | None = None
    draft_kv_type: str | None = None
    draft_limit: str = ""

    @property
    def loads_draft(self) -> bool:
        """Whether a draft model would be used."""
        return self.gamma != 0 and DraftType.MODEL in self.draft_types and not self.draft_limit


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one answer's tokens are chosen."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    accept: AcceptRule = AcceptRule.BLOCK
    ignore_eog: bool = False


class Session:
    """A target and perhaps a draft, loaded. Contexts are made when the first prompt says how long they must be.

    Args:
        target: a GGUF file.
        draft: another, or None for plain decoding.
        params: placement and drafting.
        on_progress: told which file is being loaded and how far; False stops.
        is_cancelled: asked between passes.
        beside: another session of this target and with these parameters, whose target and whose target's context are
            used; it must outlive this one, and only one of them answers at a time.

    Raises:
        ModelNotFoundError, ModelLoadError: a file is missing or no model.
        IncompatiblePairError: the vocabularies differ.
        ConfigError: a draft is required, and there is none.
        LoadCancelledError: `on_progress` said stop.
    """

    def __init__(
        self,
        target: Path,
        draft: Path | None,
        params: SessionParams,
        on_progress: Callable[[Path, float], bool] = lambda _path, _fraction: True,
        is_cancelled: Callable[[], bool] = lambda: False,
        beside: Session | None = None,
    ) -> None:
        self._stack = ExitStack()
        self._is_cancelled = is_cancelled
        self._beside = beside
        self._contexts: tuple[LlamaBackend, LlamaBackend | None] | None = None
        self.params = params
        self.limit = params.draft_limit  # why the draft model, or all drafting, was given up
        self.draft: LlamaModel | None = None
        with self._stack:

            def load(path: Path, placement: Placement) -> LlamaModel:
                model = LlamaModel(path, placement, lambda fraction: on_progress(path, fraction))
                return self._stack.enter_context(model)

            placement = Placement(params.n_gpu_layers, params.devices, params.tensor_split)
            self.target: LlamaModel = beside.target if beside else load(target, placement)
            if draft is not None:
                check_gguf(draft)  # a wrong file is an error even where γ = 0 leaves it unloaded
            if draft is not None and params.loads_draft:
                self.draft = load(draft, Placement(params.n_draft_gpu_layers, params.draft_devices))
                self._require_compatible(self.target, self.draft)
            self.speculation = self._decide(has_draft=draft is not None)
            self.knowledge = Knowledge()
            self._corpus = self._index_corpus()
            self._stack = self._stack.pop_all()

    @property
    def load_s(self) -> float:
        """Seconds that loading took."""
        return self.target.load_s + (self.draft.load_s if self.draft else 0.0)

    @property
    def backends(self) -> list[LlamaBackend]:
        """The contexts that were made: the target's, then the draft's."""
        return [backend for backend in self._contexts or () if backend is not None]

    @property
    def kv_types(self) -> list[str]:
        """Precision of the caches, in the order of `backends`."""
        return [backend.kv_type for backend in self.backends]

    @property
    def n_ctx(self) -> int:
        """Tokens of the target's context; 0 before the first engine."""
        return self._contexts[0].n_ctx if self._contexts else 0

    def context_for(self, n_prompt: int, max_tokens: int) -> int:
        """A context that holds prompt and answer, at least DEFAULT_CONTEXT, at most what the target was trained for."""
        return min(max(DEFAULT_CONTEXT, n_prompt + max_tokens), self.target.n_ctx_train)

    def engine(self, n_ctx: int, decoding: Decoding) -> Engine:
        """An engine over this session's contexts; they are made at the first call and keep their size.

        Raises:
            ModelLoadError: not enough memory for the target's context.
            ConfigError: a draft is required and cannot be used; the grammar is none.
        """
        target, draft = self._contexts_for(n_ctx)
        sampling = decoding.sampling
        banned = sorted(self.target.vocabulary.eog_ids) if decoding.ignore_eog else []
        is_match = decoding.accept is AcceptRule.MATCH
        # A match needs the draft's best guess; the other rules need a sample of what it believes.
        draft_sampling = replace(sampling, temperature=0.0) if is_match else sampling
        drafters: list[Drafter] = []
        for name in self.speculation.drafters:
            if name is DraftType.GRAMMAR:
                if sampling.grammar:
                    vocabulary = target.vocabulary
                    drafters.append(GrammarDrafter(Grammar(vocabulary, sampling.grammar), vocabulary))
            elif name is DraftType.LOOKUP:
                drafters.append(LookupDrafter())
            elif name is DraftType.SUFFIX:
                drafters.append(SuffixDrafter(self._corpus))
            elif draft is not None:
                unknown = range(target.n_vocab, draft.n_vocab)  # the target cannot take these in
                sampler = make_sampler(draft.vocabulary, draft_sampling, draft.model.n_ctx_train, [*banned, *unknown])
                make_uniform = _uniform_maker(sampling.seed, stream=1)
                drafters.append(
                    ModelDrafter(draft, sampler, make_uniform, self._is_cancelled, _shortlister(draft, sampler))
                )
        return Engine(
            target,
            make_sampler(target.vocabulary, sampling, self.target.n_ctx_train, banned),
            _uniform_maker(sampling.seed, stream=0),
            Chain(drafters) if drafters else None,
            self._policy(),
            # Greedy rules are all the same; this one looks at no row after the first rejection.
            verify_by_rejection if sampling.is_greedy else _RULES[decoding.accept],
            decoding.ignore_eog,
            self._is_cancelled,
        )

    def draft_engine(self, n_ctx: int, decoding: Decoding) -> Engine | None:
        """The draft model answering alone, in the context it drafts in; None where no draft model is in use."""
        _, draft = self._contexts_for(n_ctx)
        if draft is None:
            return None
        banned = sorted(self.target.vocabulary.eog_ids) if decoding.ignore_eog else []
        sampler = make_sampler(draft.vocabulary, decoding.sampling, draft.model.n_ctx_train, banned)
        uniform = _uniform_maker(decoding.sampling.seed, stream=0)
        return Engine(draft, sampler, uniform, ignore_eog=decoding.ignore_eog, is_cancelled=self._is_cancelled)

    def _contexts_for(self, n_ctx: int) -> tuple[LlamaBackend, LlamaBackend | None]:
        self._contexts = self._contexts or self._make_contexts(n_ctx)
        return self._contexts

    def _make_contexts(self, n_ctx: int) -> tuple[LlamaBackend, LlamaBackend | None]:
        threads = self.params.n_threads
        if self._beside is not None:
            target, _ = self._beside._contexts_for(n_ctx)
        else:
            n_rows = target_rows(self.params.gamma) if self.speculation.is_on else 1
            params = ContextParams(n_ctx, n_rows, threads, self.params.kv_type or natural_kv_type(self.target))
            target = self._stack.enter_context(LlamaBackend(self.target, params))
        if self.speculation.is_on and (reason := _no_verify(target, "target")):
            self._switch_off(reason)
        draft = None
        if self.draft is not None and self.speculation.is_on:
            try:
                n_draft_ctx = min(n_ctx, self.draft.n_ctx_train)
                params = ContextParams(
                    n_draft_ctx, DRAFT_ROWS, threads, self.params.draft_kv_type or natural_kv_type(self.draft)
                )
                draft = LlamaBackend(self.draft, params)
                self._stack.enter_context(draft)
                reason = _no_verify(draft, "draft")
            except NotEnoughMemoryError as error:
                reason = error.message
            if reason:
                self._switch_off(reason, DraftType.MODEL)
                draft = None
        if self.speculation.is_on:
            self.knowledge = recall(self._key(target, draft))
        return target, draft

    def _policy(self) -> Policy:
        if self.params.gamma is not None:
            return FixedPolicy(self.params.gamma)
        asked = DraftType.MODEL if DraftType.MODEL in self.speculation.drafters else None
        return AdaptivePolicy(self.knowledge, asked)

    def _key(self, *backends: LlamaBackend | None) -> dict[str, str]:
        """What the pair's costs and acceptance depend on."""
        key = {**machine(), "llama.cpp": library.versions(), "threads": str(self.params.n_threads)}
        for role, backend in zip(("target", "draft"), backends, strict=False):
            if backend is not None:
                path = backend.model.path
                placement = f"{'+'.join(backend.model.device_names)}, {backend.model.placement.n_gpu_layers} layers"
                key[role] = f"{path.name}, {path.stat().st_size} bytes, {backend.kv_type} cache, {placement}"
        return key

    def _decide(self, *, has_draft: bool) -> Speculation:
        wanted = set(self.params.draft_types) - ({DraftType.MODEL} if self.draft is None else set())
        if self.params.gamma == 0:
            reason = "γ is 0"
        elif self.params.draft_limit:
            reason = self.params.draft_limit
        else:
            reason = "nothing may draft" if has_draft or not self.params.draft_types else "there is no draft"
        if self.params.requires_draft and self.draft is None:
            raise ConfigError(
                f"a draft is required, but {reason}", "give --draft FILE or a pair, and --gamma 1 or more"
            )
        if self.params.gamma == 0 or not wanted:
            return Speculation(False, reason)
        return self._speculation(tuple(name for name in DraftType if name in wanted))

    def _speculation(self, drafters: tuple[DraftType, ...]) -> Speculation:
        length = "length chosen as it pays" if self.params.gamma is None else f"γ = {self.params.gamma}"
        return Speculation(True, f"{' + '.join(drafters)}, {length}", drafters)

    def _switch_off(self, reason: str, only: DraftType | None = None) -> None:
        """A limit of the machine or the model: go on without, said loudly, or an error where a draft is required."""
        if self.params.requires_draft:
            raise ConfigError(f"a draft is required, but {reason}", "leave out --require-draft to go on without it")
        left = tuple(name for name in self.speculation.drafters if only is not None and name is not only)
        self.limit = reason
        self.speculation = self._speculation(left) if left else Speculation(False, reason)

    def _index_corpus(self) -> CorpusIndex | None:
        if DraftType.SUFFIX not in self.speculation.drafters or not self.params.corpus:
            return None
        return CorpusIndex([self.target.vocabulary.tokenize(text, parse_special=False) for text in self.params.corpus])

    @staticmethod
    def _require_compatible(target: LlamaModel, draft: LlamaModel) -> None:
        compatibility = compare(target.vocabulary, draft.vocabulary)
        if compatibility.match is Match.REFUSED:
            raise IncompatiblePairError(
                f"{draft.path.name} cannot draft for {target.path.name}: {compatibility.reason}",
                "use a draft of the target's own family, or none",
            )

    def close(self) -> None:
        """Keep what was learned, free contexts and models."""
        if self.backends and self.params.gamma is None and self.speculation.drafters:
            remember(self._key(*self.backends), self.knowledge)
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _shortlister(draft: LlamaBackend, sampler: Sampler) -> Shortlister | None:
    """Have the draft's device choose the candidates, where that saves a row of logits its way to this process.

    On the CPU there is no way to save, and its own top-k takes longer than looking for the best here.
    """
    n = sampler.n_candidates
    if draft.model.device_names == ("CPU",) or n is None or n > _MAX_SHORTLIST:
        return None
    n = max(n, _MIN_SHORTLIST)
    return partial(draft.shortlist, n=n) if draft.shorten(n) else None


def target_rows(gamma: int | None) -> int:
    """Rows of the target's widest pass for a draft length; None is what the policy may choose."""
    return (MAX_GAMMA if gamma is None else gamma) + 1


def _no_verify(backend: LlamaBackend, role: str) -> str:
    """Why a model's memory rules speculation out, or nothing."""
    if backend.capabilities.can_verify:
        return ""
    return f"the {role}'s {backend.capabilities.memory} memory cannot take back rejected tokens"


def _uniform_maker(seed: int, stream: int) -> Callable[[], Uniform]:
    """Random numbers that start over with every answer; streams of one seed are independent."""
    return lambda: np.random.default_rng([seed, stream]).random
