"""Pairs of one target beside plain decoding, in one process, taking turns.

Every model is loaded once. Every arm is warmed up on prompts that are not measured; what a pair learned there (costs,
acceptance) is what each of its measured answers starts from, as it would be in a run of its own, so no answer teaches
the next one, nor one arm another. Then, repeat by repeat and prompt by prompt, all arms answer greedily, in an order
that rotates, so that whatever the machine does in a minute, it does to all of them.
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specgen import __version__
from specgen.bench.budget import Plan, Speed, choose, seconds_of
from specgen.bench.record import Answer, Arm, Model, PairInfo, PromptInfo, Report, Role, Rounds, Settings
from specgen.bench.workload import WARM_UP, Prompt
from specgen.engine.knowledge import Knowledge
from specgen.engine.loop import Engine
from specgen.engine.metrics import Metrics
from specgen.engine.policy import FixedPolicy
from specgen.errors import ConfigError, SpecgenError
from specgen.llama import chat, library
from specgen.llama.context import LlamaBackend
from specgen.llama.model import LlamaModel
from specgen.session import Decoding, Session, SessionParams
from specgen.types import FinishReason, FloatArray, Request

MAX_TOKENS = 128
"""The longest answer of any plan."""
_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_N_PAST = 256
_N_SAMPLES = 3
_COST_SHARE = 0.1
"""Of the budget, at most, for the cost curve."""
_N_WARM_UP = 32
_WARM_UP_SHARE = 0.2
"""Of the budget, at most, for the warm-up; the first prompt is always answered."""


class Interrupted(Exception):  # noqa: N818
    """The user stopped before anything was measured."""


@dataclass(frozen=True, slots=True)
class PairFiles:
    """A pair's name and its draft; None drafts from the text alone."""

    name: str
    draft: Path | None


@dataclass(frozen=True, slots=True)
class Task:
    """What is compared.

    Attributes:
        target: the file of all pairs' target.
        pairs: their names are distinct.
        params: placement and threads; `gamma` is None.
        gammas: fixed lengths to measure beside the default.
        prompts: what is asked; `source` says where they come from.
        budget_s: seconds for everything after loading.
    """

    target: Path
    pairs: tuple[PairFiles, ...]
    params: SessionParams
    gammas: tuple[int, ...]
    prompts: tuple[Prompt, ...]
    source: str
    budget_s: float


@dataclass(frozen=True, slots=True)
class Moment:
    """How far it is.

    Attributes:
        doing: for people.
        done: 0 to 1.
        left_s: seconds until the end; None before that can be told.
    """

    doing: str
    done: float
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told, and who is asked.

    Attributes:
        on_load: a file is being loaded, and how far; False stops.
        on_moment: after every answer.
        on_block: after all arms answered a prompt; the report so far is complete in itself.
        is_cancelled: asked between passes.
        clock: seconds.
    """

    on_load: Callable[[Path, float], bool] = lambda _path, _fraction: True
    on_moment: Callable[[Moment], None] = lambda _moment: None
    on_block: Callable[[Report], None] = lambda _report: None
    is_cancelled: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.perf_counter


def compare(task: Task, watchers: Watchers, saved: Report | None = None) -> Report:
    """Measure, or go on with a report that was interrupted.

    Raises:
        SpecgenError: as `Session` and `Engine.generate` raise them.
        ConfigError: `saved` compared something else.
        Interrupted: stopped before the first answer was measured.
    """
    with ExitStack() as stack:
        sessions: list[Session] = []
        for pair in task.pairs:
            beside = sessions[0] if sessions else None
            session = Session(task.target, pair.draft, task.params, watchers.on_load, watchers.is_cancelled, beside)
            sessions.append(stack.enter_context(session))
        return _Comparison(task, sessions, watchers).run(saved)


@dataclass(frozen=True, slots=True)
class _Competitor:
    """An arm and the way to an engine for its next answer."""

    arm: Arm
    engine: Callable[[], Engine]


class _Comparison:
    """One comparison while it runs; sessions[i] belongs to task.pairs[i]."""

    def __init__(self, task: Task, sessions: Sequence[Session], watchers: Watchers) -> None:
        self._task = task
        self._sessions = sessions
        self._watchers = watchers
        self._start_s = watchers.clock()
        self._prompts = [(prompt, self._encode(prompt.text)) for prompt in task.prompts]
        longest = max(len(tokens) for _, tokens in self._prompts)
        self._n_ctx = sessions[0].context_for(longest, MAX_TOKENS)
        if longest + MAX_TOKENS > self._n_ctx:
            raise ConfigError(
                f"the longest prompt has {longest:,} tokens, the target's context is {self._n_ctx:,}",
                "leave that prompt out",
            )
        self._plain = replace(sessions[0].engine(self._n_ctx, Decoding()), drafter=None, policy=FixedPolicy(0))
        self._warm: list[dict[str, Any]] = []
        self._competitors = self._make_competitors()
        self._agreed = [(0, 0) for _ in sessions]

    def run(self, saved: Report | None) -> Report:
        """Warm up, measure costs, choose how much to measure, and take turns."""
        if saved is not None:
            self._require_same(saved)
        speeds = self._warm_up()
        verify_s, steps_s = self._measure_costs()
        if self._watchers.is_cancelled():
            raise Interrupted
        if saved is None:
            by_category: dict[str, list[int]] = {}
            for prompt, tokens in self._prompts:
                by_category.setdefault(prompt.category, []).append(len(tokens))
            plan = choose(list(by_category.values()), speeds, self._task.budget_s - self._elapsed_s())
            report = self._empty_report(plan, verify_s, steps_s)
        else:
            plan = Plan(len(saved.prompts), saved.settings.n_tokens, saved.settings.n_repeats)
            report = _whole_blocks(saved)
            self._agreed = [(pair.n_agreed, pair.n_compared) for pair in saved.pairs]
        return self._take_turns(report, plan, speeds)

    # Arms.

    def _make_competitors(self) -> list[_Competitor]:
        found = [
            _Competitor(Arm("plain", Role.PLAIN), lambda: self._plain),
            _Competitor(Arm("plain again", Role.CONTROL), lambda: self._plain),
        ]
        for i, (pair, session) in enumerate(zip(self._task.pairs, self._sessions, strict=True)):
            session.engine(self._n_ctx, Decoding())  # makes its contexts, which may switch drafting off
            self._warm.append(session.knowledge.as_data())
            found.append(_Competitor(Arm(pair.name, Role.PAIR, pair.name), partial(self._pair_engine, i)))
            for gamma in self._task.gammas if session.speculation.is_on else ():
                arm = Arm(f"{pair.name} γ={gamma}", Role.FIXED, pair.name, gamma)
                found.append(_Competitor(arm, partial(self._fixed_engine, i, gamma)))
            if session.draft_engine(self._n_ctx, Decoding()) is not None:
                arm = Arm(f"{pair.name}: draft alone", Role.DRAFT, pair.name)
                found.append(_Competitor(arm, partial(self._draft_engine, i)))
        return found

    def _pair_engine(self, i: int) -> Engine:
        """As a run of its own would begin: a new policy, with what the warm-up taught."""
        self._sessions[i].knowledge = Knowledge.from_data(self._warm[i])
        return self._sessions[i].engine(self._n_ctx, Decoding())

    def _fixed_engine(self, i: int, gamma: int) -> Engine:
        return replace(self._pair_engine(i), policy=FixedPolicy(gamma))

    def _draft_engine(self, i: int) -> Engine:
        engine = self._sessions[i].draft_engine(self._n_ctx, Decoding())
        assert engine is not None
        return engine

    # Before the measurement.

    def _warm_up(self) -> list[Speed]:
        """Every arm answers, pairs as often as there is time, which is where they learn; how fast each arm was."""
        speeds: list[Speed] = []
        for prompt in WARM_UP:
            if speeds and self._elapsed_s() > _WARM_UP_SHARE * self._task.budget_s:
                break
            tokens = self._encode(prompt.text)
            speeds = []
            for competitor in self._competitors:
                if self._watchers.is_cancelled():
                    raise Interrupted
                self._watchers.on_moment(Moment(f"warming up: {competitor.arm.name}", 0.0))
                metrics, _ = self._answer(competitor, tokens, _N_WARM_UP)
                stats = metrics.stats()
                if competitor.arm.role is Role.PAIR:
                    i = [pair.name for pair in self._task.pairs].index(competitor.arm.pair)
                    self._warm[i] = self._sessions[i].knowledge.as_data()
                prompt_s = (stats.ttft_s or 0.0) / len(tokens)
                speeds.append(Speed(prompt_s, stats.decode_s / max(1, stats.n_generated - 1)))
        return speeds

    def _measure_costs(self) -> tuple[dict[int, float], list[float | None]]:
        """Seconds of target passes by rows, and of a step of every draft model, with some tokens in the cache."""
        self._watchers.on_moment(Moment("measuring what passes cost", 0.0))
        n_past = min(_N_PAST, self._n_ctx // 2)
        until_s = self._elapsed_s() + _COST_SHARE * self._task.budget_s
        history = [token for _, tokens in self._prompts for token in tokens]
        history = (history * (n_past // max(1, len(history)) + 1))[:n_past]
        target = self._plain.target
        assert isinstance(target, LlamaBackend)
        widths = _WIDTHS if target.capabilities.can_verify else (1,)
        _fill(target, history)
        samples: dict[int, list[float]] = {}
        for n in range(_N_SAMPLES):
            for width in widths:
                if width > 1 and (self._watchers.is_cancelled() or (n and self._elapsed_s() > until_s)):
                    break
                if width <= target.capabilities.max_rows:
                    samples.setdefault(width, []).append(_pass_s(target, history[:width], n_past))
        target_s = {width: statistics.median(seconds) for width, seconds in samples.items()}
        steps_s: list[float | None] = []
        for session in self._sessions:
            draft = next(iter(session.backends[1:]), None)
            if draft is None:
                steps_s.append(None)
                continue
            n_draft_past = min(n_past, draft.n_ctx // 2)
            _fill(draft, history[:n_draft_past])
            steps_s.append(statistics.median(_pass_s(draft, history[:1], n_draft_past) for _ in range(2 * _N_SAMPLES)))
            draft.rollback(0)
        target.rollback(0)
        return target_s, steps_s

    def _empty_report(self, plan: Plan, verify_s: dict[int, float], steps_s: list[float | None]) -> Report:
        task, first = self._task, self._sessions[0]
        n_of: dict[str, int] = {}
        prompts = []
        for prompt, tokens in self._prompts:
            n_of[prompt.category] = n_of.get(prompt.category, 0) + 1
            if n_of[prompt.category] <= plan.n_each:
                prompts.append(PromptInfo(prompt.name, prompt.category, prompt.text, len(tokens)))
        pairs = [
            PairInfo(
                pair.name,
                _model(session.draft, session.kv_types[1]) if session.draft and len(session.kv_types) > 1 else None,
                session.limit or session.speculation.reason,
                step_s,
            )
            for pair, session, step_s in zip(task.pairs, self._sessions, steps_s, strict=True)
        ]
        return Report(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            state="interrupted",
            versions={"specgen": __version__, "llama_cpp": library.versions(), "python": platform.python_version()},
            machine={
                "platform": platform.platform(),
                "cpus": str(os.cpu_count()),
                "system_info": library.system_info(),
            },
            settings=Settings(
                n_tokens=plan.n_tokens,
                n_repeats=plan.n_repeats,
                budget_s=task.budget_s,
                gammas=task.gammas,
                threads=task.params.n_threads,
                ctx_size=first.n_ctx,
                gpu_layers=task.params.n_gpu_layers,
                draft_gpu_layers=task.params.n_draft_gpu_layers,
                prompts=task.source,
            ),
            target=_model(first.target, first.kv_types[0]),
            pairs=tuple(pairs),
            arms=tuple(competitor.arm for competitor in self._competitors),
            prompts=tuple(prompts),
            verify_s=verify_s,
            n_past=min(_N_PAST, self._n_ctx // 2),
        )

    def _require_same(self, saved: Report) -> None:
        """What cannot be continued: another question, or another file of the same name."""
        mine = {
            "target": _model(self._sessions[0].target, self._sessions[0].kv_types[0]),
            "arms": tuple(competitor.arm for competitor in self._competitors),
            "threads": self._task.params.n_threads,
            "prompts": all(info.text in {prompt.text for prompt in self._task.prompts} for info in saved.prompts),
            "llama.cpp": library.versions(),
        }
        theirs = {
            "target": saved.target,
            "arms": saved.arms,
            "threads": saved.settings.threads,
            "prompts": True,
            "llama.cpp": saved.versions.get("llama_cpp"),
        }
        for what, value in mine.items():
            if value != theirs[what]:
                raise ConfigError(f"the saved report was made with other {what}", "start a new one without --resume")

    # The measurement.

    def _take_turns(self, report: Report, plan: Plan, speeds: Sequence[Speed]) -> Report:
        """All arms, prompt by prompt, until it is complete, the time is over, or the user stops it."""
        answers = list(report.answers)
        done = {(answer.repeat, answer.prompt) for answer in answers}
        tokens_of = {prompt.name: tokens for prompt, tokens in self._prompts}
        blocks = [
            (repeat, i, prompt)
            for repeat in range(plan.n_repeats)
            for i, prompt in enumerate(report.prompts)
            if (repeat, prompt.name) not in done
        ]
        estimate = [seconds_of(replace(plan, n_repeats=1), [prompt.n_tokens], speeds) for _, _, prompt in blocks]
        start_s = self._elapsed_s()
        for n, (repeat, i, prompt) in enumerate(blocks):
            if repeat > 0 and self._elapsed_s() > self._task.budget_s:
                return self._reported(report, answers, "out of time")
            turn = (repeat + i) % len(self._competitors)
            block: list[Answer] = []
            for j, competitor in enumerate(self._competitors[turn:] + self._competitors[:turn]):
                share = (sum(estimate[:n]) + estimate[n] * j / len(self._competitors)) / sum(estimate)
                spent_s = self._elapsed_s() - start_s
                left_s = sum(estimate) * (1 - share) if n == 0 else spent_s * (1 - share) / share
                doing = f"{prompt.category}, repeat {repeat + 1} of {plan.n_repeats}: {competitor.arm.name}"
                self._watchers.on_moment(Moment(doing, share, left_s))
                metrics, engine = self._answer(competitor, tokens_of[prompt.name], plan.n_tokens)
                if metrics.finish_reason is FinishReason.INTERRUPTED:
                    return self._reported(report, [*answers, *block], "interrupted")
                block.append(_as_answer(competitor.arm, prompt, repeat, metrics, engine.policy.reason))
                if competitor.arm.role is Role.PLAIN and repeat == 0:
                    self._count_agreement(tokens_of[prompt.name], metrics.token_ids)
            answers += block
            is_last = n == len(blocks) - 1
            self._watchers.on_block(self._reported(report, answers, "complete" if is_last else "interrupted"))
        return self._reported(report, answers, "complete")

    def _reported(self, report: Report, answers: Sequence[Answer], state: str) -> Report:
        pairs = [
            replace(pair, n_agreed=n_agreed, n_compared=n_compared)
            for pair, (n_agreed, n_compared) in zip(report.pairs, self._agreed, strict=True)
        ]
        for i, session in enumerate(self._sessions):
            session.knowledge = Knowledge.from_data(self._warm[i])  # what a closing session keeps
        return replace(report, pairs=tuple(pairs)).with_answers(answers, state)

    def _answer(self, competitor: _Competitor, tokens: Sequence[int], max_tokens: int) -> tuple[Metrics, Engine]:
        engine = competitor.engine()
        metrics = Metrics(len(tokens), clock=self._watchers.clock)
        for step in engine.generate(Request(tokens, max_tokens)):
            metrics.add(step)
        return metrics, engine

    def _count_agreement(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """How many of the target's tokens every draft model would have said, each time after the target's own text."""
        for i, session in enumerate(self._sessions):
            draft = next(iter(session.backends[1:]), None)
            if draft is None or len(prompt) + len(answer) > draft.n_ctx or self._watchers.is_cancelled():
                continue
            if max([*prompt, *answer]) >= draft.n_vocab:
                continue
            n_agreed, n_compared = self._agreed[i]
            logits = _fill(draft, prompt)
            for token in answer:
                n_agreed += int(np.argmax(logits)) == token
                logits = draft.eval([token], n_rows=1)[0]
            draft.rollback(0)
            self._agreed[i] = (n_agreed, n_compared + len(answer))

    def _encode(self, text: str) -> list[int]:
        target = self._sessions[0].target
        if not chat.has_template(target):
            return chat.encode_raw(target.vocabulary, text)
        return chat.encode_chat(target, [chat.Message("user", text)])

    def _elapsed_s(self) -> float:
        return self._watchers.clock() - self._start_s


def _whole_blocks(saved: Report) -> Report:
    """Without the answers of a prompt that not all arms answered: what is compared belongs to one minute."""
    arms_of: dict[tuple[int, str], set[str]] = {}
    for answer in saved.answers:
        arms_of.setdefault((answer.repeat, answer.prompt), set()).add(answer.arm)
    kept = [a for a in saved.answers if len(arms_of[a.repeat, a.prompt]) == len(saved.arms)]
    return saved.with_answers(kept, "interrupted")


def _as_answer(arm: Arm, prompt: PromptInfo, repeat: int, metrics: Metrics, reason: str) -> Answer:
    stats = metrics.stats()
    return Answer(
        arm=arm.name,
        prompt=prompt.name,
        repeat=repeat,
        n_generated=stats.n_generated,
        n_recovered=stats.n_recovered,
        ttft_s=stats.ttft_s or 0.0,
        decode_s=stats.decode_s,
        target_s=stats.target_s,
        draft_s=stats.draft_s,
        draft_prefill_s=stats.draft_prefill_s,
        reason=reason,
        rounds=Rounds.of(metrics.rounds),
    )


def _fill(backend: LlamaBackend, tokens: Sequence[int]) -> FloatArray:
    """Tokens into an empty cache; the logits after the last one."""
    backend.rollback(0)
    n_pass = backend.capabilities.max_batch
    for start in range(0, len(tokens), n_pass):
        rows = backend.eval(tokens[start : start + n_pass], n_rows=int(start + n_pass >= len(tokens)))
    last: FloatArray = rows[-1]
    return last


def _pass_s(backend: LlamaBackend, tokens: Sequence[int], n_past: int) -> float:
    """Seconds of one pass; the cache is as before."""
    before_s = backend.busy_s
    backend.eval(tokens, n_rows=len(tokens))
    seconds = backend.busy_s - before_s
    if not backend.capabilities.can_verify:
        return seconds
    backend.rollback(n_past)
    return seconds


def _model(model: LlamaModel, kv_type: str) -> Model:
    return Model(
        path=str(model.path.absolute()),
        description=model.description,
        size_bytes=model.path.stat().st_size,
        devices=tuple(model.device_names),
        n_ctx_train=model.n_ctx_train,
        kv_type=kv_type,
    )


def named(words: Sequence[str]) -> list[str]:
    """Distinct names for what may have been given twice."""
    seen: dict[str, int] = {}
    found = []
    for word in words:
        seen[word] = seen.get(word, 0) + 1
        found.append(word if seen[word] == 1 else f"{word} ({seen[word]})")
    if len(set(found)) < len(found):
        raise SpecgenError("two pairs have one name", "this is a bug in specgen: report it")
    return found
