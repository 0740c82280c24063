"""From what a user typed to model files on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specgen.pairs.derived import Progress, prepare
from specgen.pairs.registry import Pair, find_pair, load_registry


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What will be loaded, and what to call it."""

    name: str
    target: Path
    draft: Path | None


def find(word: str) -> Pair | Path:
    """What a word names: a file, if it looks like a path to one or there is one, else a pair. Touches no model.

    Raises:
        ConfigError: a name that no pair has.
    """
    is_path = word.lower().endswith(".gguf") or "/" in word or "\\" in word or Path(word).is_file()
    return Path(word) if is_path else find_pair(word, load_registry())


def resolve(model: Pair | Path, draft: Path | None, on_progress: Progress) -> ModelFiles:
    """The files to load; a pair's derived files are made when they are missing.

    Args:
        model: a pair, or a target's file.
        draft: replaces the pair's own.
        on_progress: told about files that are being made.

    Raises:
        ModelNotFoundError, DownloadError, BackendError: the pair's files cannot be made.
    """
    if isinstance(model, Path):
        return ModelFiles(model.name, model, draft)
    target = prepare(model.target, on_progress)
    return ModelFiles(model.id, target, draft or prepare(model.draft, on_progress))
