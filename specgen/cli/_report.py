"""What a run says about itself: the first line, the live line, the summary, and the JSON object."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

from rich.text import Text

from specgen import __version__
from specgen.engine.metrics import Metrics, Stats
from specgen.llama import library
from specgen.llama.devices import gpus
from specgen.llama.model import LlamaModel
from specgen.session import Decoding, Session, Speculation

SCHEMA_VERSION = 1


def header(name: str, session: Session, decoding: Decoding) -> str:
    """One line: pair, devices, threads, context, and whether it speculates."""
    models = [f"{session.target.path.stem} on {_where(session.target)}"]
    if session.draft:
        models.append(f"draft {session.draft.path.stem} on {_where(session.draft)}")
    speculation = session.speculation
    state = f"on ({speculation.reason})" if speculation.is_on else f"off because {speculation.reason}"
    return "; ".join(
        [
            f"{name}: {' + '.join(models)}",
            f"{session.params.n_threads} threads",
            f"context {session.n_ctx:,} ({' and '.join(session.kv_types)} cache)",
            _sampling(decoding),
            f"speculation: {state}",
        ]
    )


def live(metrics: Metrics, reason: str) -> Text:
    """The line that is renewed while the answer streams; `reason` says why the policy does not draft just now."""
    stats = metrics.stats()
    parts = [f"{stats.n_generated:,} tokens", _rate(stats.decode_tok_s)]
    if stats.n_drafted:
        last = metrics.rounds[-1]
        parts += [
            f"accepted {_percent(stats.draft_acceptance_rate)}",
            f"{_number(stats.mean_accepted_length)} tokens per round",
            f"γ {last.n_drafted}",
        ]
    if reason:
        parts.append(f"not drafting: {reason}")
    return Text(" · ".join(parts), style="bold cyan")


def summary(metrics: Metrics, speculation: Speculation, reason: str) -> list[str]:
    """The lines after the answer, what speculation decided among them, and why."""
    stats = metrics.stats()
    ttft = "no token" if stats.ttft_s is None else f"first token after {stats.ttft_s:.2f} s"
    lines = [
        f"{stats.n_generated:,} tokens in {stats.decode_s:.2f} s, {_rate(stats.decode_tok_s)}; {ttft}; "
        f"finish: {metrics.finish_reason}"
    ]
    if stats.n_drafted:
        rounds = f"{_number(stats.mean_accepted_length)} tokens per round over {stats.n_rounds:,} rounds"
        n_drafting = sum(r.n_drafted > 0 for r in metrics.rounds)
        rounds += f", {n_drafting:,} of them with a draft" if n_drafting < stats.n_rounds else ""
        rate = _percent(stats.draft_acceptance_rate)
        lines.append(f"accepted {stats.n_accepted:,} of {stats.n_drafted:,} drafted ({rate}); {rounds}")
        lines += _by_drafter(stats)
        lines.append(f"time: {_shares(stats)}")
    if speculation.is_on and reason:
        lines.append(f"stopped drafting: {reason}" if stats.n_drafted else f"did not draft: {reason}")
    elif speculation.is_on and stats.n_rounds and not stats.n_drafted:
        lines.append("did not draft: nothing to draft promised to pay")
    return lines


def _by_drafter(stats: Stats) -> list[str]:
    """Each drafter's part, where there was more than one."""
    drafted = {name: part for name, part in stats.by_drafter.items() if part.n_drafted}
    if len(drafted) < 2:
        return []
    return ["by " + ", ".join(f"{name}: {p.n_accepted:,} of {p.n_drafted:,}" for name, p in drafted.items())]


def as_json(
    session: Session,
    decoding: Decoding,
    max_tokens: int,
    stop: tuple[str, ...],
    metrics: Metrics,
    reason: str,
) -> dict[str, Any]:
    """The object of `run --json`; keys may be added, these keep their names."""
    speculation = session.speculation
    params = session.params
    return {
        "schema_version": SCHEMA_VERSION,
        "text": metrics.text,
        "token_ids": metrics.token_ids,
        "finish_reason": metrics.finish_reason,
        "speculation": {
            "enabled": speculation.is_on,
            "reason": reason or speculation.reason,
            "drafters": list(speculation.drafters),
            "exact": False,
        },
        "models": {"target": _model(session.target), "draft": _model(session.draft) if session.draft else None},
        "settings": {
            **dataclasses.asdict(decoding.sampling),
            "accept": decoding.accept,
            "ignore_eos": decoding.ignore_eog,
            "max_tokens": max_tokens,
            "stop": list(stop),
            "gamma": params.gamma,
            "draft_types": list(params.draft_types),
            "ctx_size": session.n_ctx,
            "kv_types": session.kv_types,
            "threads": params.n_threads,
            "gpu_layers": params.n_gpu_layers,
            "draft_gpu_layers": params.n_draft_gpu_layers,
            "devices": list(params.devices),
            "draft_devices": list(params.draft_devices),
            "tensor_split": list(params.tensor_split),
            "kv_type": params.kv_type,
            "draft_kv_type": params.draft_kv_type,
        },
        "environment": {
            "specgen": __version__,
            "llama_cpp": library.versions(),
            "system_info": library.system_info(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        },
        "stats": dataclasses.asdict(metrics.stats()),
    }


def _model(model: LlamaModel) -> dict[str, Any]:
    return {
        "path": str(Path(model.path).absolute()),
        "description": model.description,
        "size_bytes": model.path.stat().st_size,
        "devices": list(model.device_names),
        "context_length": model.n_ctx_train,
    }


def _where(model: LlamaModel) -> str:
    """Devices, remote ones with their addresses, and how many layers are there if not all."""
    remote = {device.name: device.description for device in gpus() if device.is_remote}
    names = [f"{name} ({remote[name]})" if name in remote else name for name in model.device_names]
    placement = model.placement
    split = ":".join(f"{part:g}" for part in placement.tensor_split)
    n_all = model.n_layers + 1
    is_part = 0 < placement.n_gpu_layers < n_all and names != ["CPU"]
    return (
        "+".join(names)
        + (f" split {split}" if split else "")
        + (f" ({placement.n_gpu_layers} of {n_all} layers)" if is_part else "")
    )


def _sampling(decoding: Decoding) -> str:
    sampling = decoding.sampling
    within = ", within a grammar" if sampling.grammar else ""
    if sampling.is_greedy:
        return f"greedy{within}"
    return f"temperature {sampling.temperature:g}, seed {sampling.seed}, accept {decoding.accept}{within}"


def _shares(stats: Stats) -> str:
    """Where decoding time went."""
    parts = {
        "target": stats.target_s,
        "draft": stats.draft_s,
        "draft prefill": stats.draft_prefill_s,
        "other": stats.overhead_s,
    }
    return ", ".join(f"{name} {_percent(s / stats.decode_s)}" for name, s in parts.items() if stats.decode_s and s > 0)


def _rate(tok_s: float | None) -> str:
    return "- tok/s" if tok_s is None else f"{tok_s:.1f} tok/s"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
