"""What a comparison measured, as plain data that can be saved, drawn again and compared with another.

Only measurements are kept here; every statistic is computed from them (`specgen.bench.statistics`), so a saved report
can always be read with better eyes. `schemas/compare.schema.json` describes the file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from specgen.errors import ConfigError, DownloadError, ModelNotFoundError
from specgen.types import Round

SCHEMA_VERSION = 1
KIND = "compare"

_T = TypeVar("_T")


class Role(StrEnum):
    """What an arm stands for."""

    PLAIN = "plain"  # what every speed-up is to
    CONTROL = "control"  # plain once more: how far two equal arms lie apart
    PAIR = "pair"  # a pair as `specgen run` uses it
    FIXED = "fixed"  # a pair at one draft length
    DRAFT = "draft"  # the draft model answering alone


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to answer.

    Attributes:
        name: unique in a report.
        role: what it stands for.
        pair: name of the pair; empty for the target alone.
        gamma: draft length, for a fixed one.
    """

    name: str
    role: Role
    pair: str = ""
    gamma: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model file, and where it ran."""

    path: str
    description: str
    size_bytes: int
    devices: tuple[str, ...]
    n_ctx_train: int
    kv_type: str


@dataclass(frozen=True, slots=True)
class PairInfo:
    """A pair that was compared.

    Attributes:
        name: what the report calls it.
        draft: None where only the text itself is looked up.
        speculation: what drafts, or why nothing does.
        step_s: seconds of one token of the draft model; None without one.
        n_agreed, n_compared: of the target's greedy tokens, how many the draft model would have said in their place,
            each time after the target's own text.
    """

    name: str
    draft: Model | None
    speculation: str
    step_s: float | None = None
    n_agreed: int = 0
    n_compared: int = 0


@dataclass(frozen=True, slots=True)
class PromptInfo:
    """A prompt, as it was measured."""

    name: str
    category: str
    text: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one answer, in columns: the first element of each belongs to the first round.

    Attributes:
        n_drafted: tokens sent to verification.
        n_accepted: those that stood.
        n_tokens: tokens that the round added.
        n_dropped: drafted and not sent.
        seconds: inside the models.
        drafters: source of the tokens, `-` without any, `a+b` where several drafted one round.
        n_model: drafted by the draft model.
    """

    n_drafted: tuple[int, ...] = ()
    n_accepted: tuple[int, ...] = ()
    n_tokens: tuple[int, ...] = ()
    n_dropped: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    drafters: tuple[str, ...] = ()
    n_model: tuple[int, ...] = ()

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Rounds:
        """The columns of an answer's rounds."""
        return cls(
            n_drafted=tuple(r.n_drafted for r in rounds),
            n_accepted=tuple(r.n_accepted for r in rounds),
            n_tokens=tuple(r.n_tokens for r in rounds),
            n_dropped=tuple(r.n_dropped for r in rounds),
            seconds=tuple(round(r.target_s + r.draft_s + r.draft_prefill_s, 6) for r in rounds),
            drafters=tuple("+".join(dict.fromkeys(r.drafted_by)) or "-" for r in rounds),
            n_model=tuple(r.drafted_by.count("model") for r in rounds),
        )

    def __len__(self) -> int:
        return len(self.n_drafted)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one arm.

    Attributes:
        arm, prompt: names.
        repeat: from 0.
        n_generated: tokens of the answer.
        n_recovered: rejected drafted tokens that the target replaced.
        ttft_s: seconds until the first token.
        decode_s: seconds from there to the last one: what the user waits for.
        target_s, draft_s, draft_prefill_s: parts of decode_s.
        reason: why drafting had stopped at the end; empty where it had not.
        rounds: every round.
    """

    arm: str
    prompt: str
    repeat: int
    n_generated: int
    n_recovered: int
    ttft_s: float
    decode_s: float
    target_s: float
    draft_s: float
    draft_prefill_s: float
    reason: str = ""
    rounds: Rounds = field(default_factory=Rounds)

    @property
    def n_decoded(self) -> int:
        """Tokens after the first, which is the prompt's."""
        return max(0, self.n_generated - 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all arms had in common, and how much was measured."""

    n_tokens: int
    n_repeats: int
    budget_s: float
    gammas: tuple[int, ...]
    threads: int
    ctx_size: int
    gpu_layers: int
    draft_gpu_layers: int
    prompts: str


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison, whole or as far as it came.

    Attributes:
        created: when it began, ISO 8601.
        state: `complete`, `interrupted` or `out of time`.
        versions, machine: by name.
        target: the model that all arms but a draft alone share.
        verify_s: seconds of a target pass, by number of rows, with `n_past` tokens in the cache.
        n_past: cache length that verify_s and the drafts' steps were measured at.
    """

    created: str
    state: str
    versions: dict[str, str]
    machine: dict[str, str]
    settings: Settings
    target: Model
    pairs: tuple[PairInfo, ...]
    arms: tuple[Arm, ...]
    prompts: tuple[PromptInfo, ...]
    verify_s: dict[int, float]
    n_past: int
    answers: tuple[Answer, ...] = ()

    def with_answers(self, answers: Sequence[Answer], state: str) -> Report:
        """The same with other answers."""
        return replace(self, answers=tuple(answers), state=state)

    def arms_of(self, role: Role) -> list[Arm]:
        """The arms with a role, in order."""
        return [arm for arm in self.arms if arm.role is role]

    @property
    def categories(self) -> list[str]:
        """In the order of the prompts."""
        return list(dict.fromkeys(prompt.category for prompt in self.prompts))


def as_data(report: Report) -> dict[str, Any]:
    """The measurements as plain data."""
    return {"schema_version": SCHEMA_VERSION, "kind": KIND, **asdict(report)}


def from_data(data: Mapping[str, Any]) -> Report:
    """A report from what `as_data` gave; keys that it does not know are left alone.

    Raises:
        KeyError, TypeError, ValueError: something is missing or of another kind.
    """
    if data["schema_version"] != SCHEMA_VERSION or data["kind"] != KIND:
        raise ValueError(f"schema {data['schema_version']} of a {data['kind']} report")
    pairs = [
        _made(PairInfo, entry, draft=_model(entry["draft"]) if entry["draft"] else None) for entry in data["pairs"]
    ]
    answers = [
        _made(Answer, entry, rounds=Rounds(**{k: tuple(v) for k, v in entry["rounds"].items()}))
        for entry in data["answers"]
    ]
    return _made(
        Report,
        data,
        settings=_made(Settings, data["settings"], gammas=tuple(data["settings"]["gammas"])),
        target=_model(data["target"]),
        pairs=tuple(pairs),
        arms=tuple(_made(Arm, entry, role=Role(entry["role"])) for entry in data["arms"]),
        prompts=tuple(_made(PromptInfo, entry) for entry in data["prompts"]),
        verify_s={int(rows): float(seconds) for rows, seconds in data["verify_s"].items()},
        answers=tuple(answers),
    )


def save(data: Mapping[str, Any], path: Path) -> None:
    """Write a report, whole or not at all.

    Raises:
        DownloadError: the file cannot be written.
    """
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=False, allow_nan=False)
        Path(part).replace(path)
    except OSError as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        raise DownloadError(f"{path} cannot be written: {error.strerror}", "give another file") from error


def load(path: Path) -> Report:
    """A saved report.

    Raises:
        ModelNotFoundError: no such file.
        ConfigError: it is no report of a comparison, or of another version.
    """
    try:
        return from_data(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"no such report: {path}", "specgen compare PAIR --output FILE.json makes one"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "give a file of specgen compare") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"{path} is no report of specgen compare that this version reads",
            "make one with specgen compare PAIR --output FILE.json",
        ) from None


def _model(entry: Mapping[str, Any]) -> Model:
    return _made(Model, entry, devices=tuple(entry["devices"]))


def _made(kind: type[_T], entry: Mapping[str, Any], **changes: Any) -> _T:
    """A dataclass from the keys that it knows."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: entry[name] for name in names if name in entry and name not in changes}, **changes)
