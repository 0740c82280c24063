"""One prompt through a session, shown while it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specgen.cli import _fitting, _report
from specgen.cli._interrupt import Interrupt
from specgen.cli._output import Output
from specgen.cli._placement import PlacementOptions
from specgen.engine.metrics import Metrics
from specgen.errors import EXIT_INTERRUPTED, ModelLoadError, UsageError
from specgen.llama import chat, library
from specgen.llama.model import LoadCancelledError
from specgen.pairs.plan import Verdict
from specgen.pairs.registry import Pair
from specgen.pairs.resolve import ModelFiles, resolve
from specgen.session import Decoding, Session, SessionParams
from specgen.types import FinishReason, Request


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how long the answer may be.

    Attributes:
        text: the user's prompt.
        system: a system message.
        is_raw: no chat template.
        max_tokens: longest answer.
        stop: strings that end it.
        n_ctx: size of the context; None for what is needed.
    """

    text: str
    system: str | None
    is_raw: bool
    max_tokens: int
    stop: tuple[str, ...]
    n_ctx: int | None


def answer(
    output: Output,
    model: Pair | Path,
    draft: Path | None,
    params: SessionParams,
    placement: PlacementOptions,
    decoding: Decoding,
    question: Question,
) -> int:
    """Load, answer, report. Returns the exit code."""
    library.before_abort(output.leave_terminal)
    with Interrupt() as interrupt:
        with output.progress() as progress:
            files = resolve(model, draft, progress)
        params = _fitted(output, files, params, placement, question)
        try:
            with output.progress() as progress:

                def on_progress(path: Path, fraction: float) -> bool:
                    progress(f"loading {path.name}", fraction)
                    return not interrupt.is_set

                session = Session(files.target, files.draft, params, on_progress, interrupt)
        except LoadCancelledError:
            return EXIT_INTERRUPTED
        with session:
            metrics = _stream(output, files, session, decoding, question)
    return EXIT_INTERRUPTED if metrics.finish_reason is FinishReason.INTERRUPTED else 0


def _fitted(
    output: Output, files: ModelFiles, params: SessionParams, placement: PlacementOptions, question: Question
) -> SessionParams:
    """The parameters with which both models have room; without the draft model where only that has none.

    Raises:
        NotEnoughMemoryError: no room for the target, or for a draft that is required.
        ConfigError: a cache precision that the model's heads do not allow.
    """
    here = _fitting.machine()
    # Three bytes for a token are few: the plan would rather ask for too much.
    n_wanted = len(question.text.encode()) // 3 + question.max_tokens
    try:
        plan = _fitting.plan_pair(
            here,
            files.target,
            files.draft,
            placement,
            n_ctx=question.n_ctx,
            n_wanted=n_wanted,
            gamma=params.gamma if params.draft_types else 0,
            has_draft=params.loads_draft,
        )
    except ModelLoadError:
        return params  # loading the file says what is wrong with it
    if not plan.fits and not params.requires_draft and _fitting.without_draft(here, plan).fits:
        params = replace(params, draft_limit=_fitting.why_no_draft(here, plan))
        plan = _fitting.without_draft(here, plan)
    _fitting.require_room(here, plan)
    if plan.verdict is not Verdict.FITS:
        output.note(
            "weights and cache have no room in memory together: weights are read from disk again for each token"
        )
    target, moved_draft = plan.options.target.placement, plan.options.draft
    params = replace(params, n_gpu_layers=target.n_gpu_layers)
    if moved_draft is not None:
        draft = moved_draft.placement
        params = replace(params, n_draft_gpu_layers=draft.n_gpu_layers, draft_devices=draft.devices)
    return params


def _stream(output: Output, files: ModelFiles, session: Session, decoding: Decoding, question: Question) -> Metrics:
    """Show the answer while it is made, and the statistics after it."""
    prompt = _encode(output, session, question)
    n_ctx = question.n_ctx or session.context_for(len(prompt), question.max_tokens)
    engine = session.engine(n_ctx, decoding)
    steps = engine.generate(Request(prompt, question.max_tokens, question.stop))
    _announce(output, files, session, decoding)

    cost = session.knowledge.cost
    metrics = Metrics(len(prompt), lambda: engine.target.busy_s, session.load_s, cost=cost)
    with output.status() as show:
        for step in steps:
            metrics.add(step)
            output.answer(step.text)
            show(lambda: _report.live(metrics, engine.policy.reason))
        output.end_answer()
    for line in _report.summary(metrics, session.speculation, engine.policy.reason):
        output.line(line)
    reason = engine.policy.reason
    output.json(lambda: _report.as_json(session, decoding, question.max_tokens, question.stop, metrics, reason))
    return metrics


def _announce(output: Output, files: ModelFiles, session: Session, decoding: Decoding) -> None:
    """The line that says what runs, and loudly if it is less than was asked for."""
    output.line(_report.header(files.name, session, decoding))
    if session.limit:
        state = f"goes on with {' + '.join(session.speculation.drafters)}" if session.speculation.is_on else "is off"
        output.note(f"speculation {state}: {session.limit}")
    if session.n_ctx > session.target.n_ctx_train:
        output.note(f"the context is longer than the {session.target.n_ctx_train:,} tokens the target was trained for")
    if session.draft and session.speculation.is_on and session.n_ctx > session.draft.n_ctx_train:
        output.note(f"drafting stops after {session.draft.n_ctx_train:,} tokens, the draft's trained context")


def _encode(output: Output, session: Session, question: Question) -> Sequence[int]:
    """The prompt's tokens, through the chat template where there is one."""
    target = session.target
    is_raw = question.is_raw
    if not is_raw and not chat.has_template(target):
        output.note(f"{target.path.name} has no chat template (a base model?): the prompt is continued as it is")
        if question.system is not None:
            raise UsageError(f"{target.path.name} has no chat template for --system", "put it into the prompt")
        is_raw = True
    if is_raw:
        tokens = chat.encode_raw(target.vocabulary, question.text)
    else:
        system = [chat.Message("system", question.system)] if question.system is not None else []
        tokens = chat.encode_chat(target, [*system, chat.Message("user", question.text)])
    if not tokens:
        raise UsageError("the prompt has no tokens", "give some text")
    return tokens
