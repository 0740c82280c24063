"""GGUF files that are already on this machine: the Hub's cache, and what llama.cpp, LM Studio and Ollama keep.

Nothing here is written but a note of hashes that were computed. Searching is bounded, in depth and in number.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgen.pairs import hub_cache
from specgen.pairs.derived import cache_dir
from specgen.pairs.sources import HubFile

_MAX_DEPTH = 5
_MAX_ENTRIES = 20_000
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A GGUF file of some program on this machine.

    Attributes:
        path: of the file.
        name: what the program calls it.
        origin: the program.
        size: bytes.
        sha256: where the program's own bookkeeping says it.
    """

    path: Path
    name: str
    origin: str
    size: int
    sha256: str | None = None


def local_models() -> list[LocalModel]:
    """Every GGUF file that is found, each once, the Hub's cache first."""
    found: dict[Path, LocalModel] = {}
    for models in (_in_hub_cache(), _in_llama_cpp_cache(), _in_lm_studio(), _in_ollama()):
        for model in models:
            found.setdefault(model.path.resolve(), model)
    return list(found.values())


def find_content(size: int, sha256: str, is_cancelled: Callable[[], bool] = lambda: False) -> Path | None:
    """A file with this content. Only files of this size are read, and each only once until it changes."""
    candidates = [model for model in local_models() if model.size == size]
    for model in candidates:
        if model.sha256 == sha256:
            return model.path
    unknown = [model.path for model in candidates if model.sha256 is None]
    return next((path for path in unknown if _hash_of(path, is_cancelled) == sha256), None)


def find_model(file: HubFile, parts: list[tuple[str, int, str]]) -> Path | None:
    """A model's first file in another program's folder, where all of its shards lie under their own names.

    Args:
        file: the model.
        parts: name without folders, size and sha256 of each shard.
    """
    (_, size, sha256), *others = parts
    first = find_content(size, sha256)
    if first is None or not others:
        return first
    if first.name != Path(file.file).name:
        return None
    for name, size, sha256 in others:
        path = first.with_name(name)
        with suppress(OSError):
            if path.stat().st_size == size and _hash_of(path) == sha256:
                continue
        return None
    return first


def _in_hub_cache() -> Iterator[LocalModel]:
    for path, size in _gguf_files(hub_cache.root()):
        repo, _, rest = str(path.relative_to(hub_cache.root())).partition(os.sep)
        if rest.startswith("snapshots"):
            name = f"{repo.removeprefix('models--').replace('--', '/')}/{'/'.join(Path(rest).parts[2:])}"
            blob = path.resolve().name
            yield LocalModel(path, name, "Hub cache", size, blob if _SHA256.fullmatch(blob) else None)


def _in_llama_cpp_cache() -> Iterator[LocalModel]:
    folder = os.environ.get("LLAMA_CACHE")
    if folder:
        folders = [Path(folder)]
    elif sys.platform == "darwin":
        folders = [Path.home() / "Library" / "Caches" / "llama.cpp"]
    else:
        folders = [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama.cpp"]
    for folder_path in folders:
        for path, size in _gguf_files(folder_path):
            yield LocalModel(path, path.name, "llama.cpp", size)


def _in_lm_studio() -> Iterator[LocalModel]:
    homes = [Path.home() / ".lmstudio", Path.home() / ".cache" / "lm-studio"]
    with suppress(OSError, UnicodeDecodeError):
        homes.insert(0, Path((Path.home() / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip()))
    for home in homes:
        for path, size in _gguf_files(home / "models"):
            yield LocalModel(path, str(path.relative_to(home / "models")), "LM Studio", size)


def _in_ollama() -> Iterator[LocalModel]:
    """Ollama names a file by its hash; which of them are models is in its manifests."""
    root = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    for manifest, _ in _files(root / "manifests"):
        for digest in _model_layers(manifest):
            path = root / "blobs" / f"sha256-{digest}"
            with suppress(OSError):
                *folders, tag = manifest.relative_to(root / "manifests").parts
                name = "/".join(folder for folder in folders[1:] if folder != "library")
                yield LocalModel(path, f"{name}:{tag}", "Ollama", path.stat().st_size, digest)


def _model_layers(manifest: Path) -> list[str]:
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digests = [layer["digest"].partition(":")[2] for layer in layers if layer["mediaType"] == _OLLAMA_MODEL]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # not a manifest
    return [digest for digest in digests if _SHA256.fullmatch(digest)]


def _gguf_files(folder: Path) -> Iterator[tuple[Path, int]]:
    return (found for found in _files(folder) if found[0].suffix.lower() == ".gguf")


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files below a folder with their sizes, links followed to files only; an unreadable folder has none."""
    n_entries = 0
    for where, folders, names in os.walk(folder):
        n_entries += len(folders) + len(names)
        if n_entries > _MAX_ENTRIES:
            return
        if len(Path(where).relative_to(folder).parts) >= _MAX_DEPTH:
            folders.clear()
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            with suppress(OSError):
                yield path, path.stat().st_size


def _hash_of(path: Path, is_cancelled: Callable[[], bool] = lambda: False) -> str | None:
    """A file's sha256, remembered until its size or time changes; None where it cannot be read."""
    try:
        status = path.stat()
        key, state = str(path.resolve()), [status.st_size, status.st_mtime_ns]
        known = _known_hashes()
        entry = known.get(key)
        if isinstance(entry, list) and entry[:2] == state:
            return str(entry[2])
        sha256 = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK_BYTES):
                if is_cancelled():
                    return None
                sha256.update(chunk)
    except OSError:
        return None
    _remember(known | {key: [*state, sha256.hexdigest()]})
    return sha256.hexdigest()


def _known_hashes() -> dict[str, Any]:
    try:
        known = json.loads(_hashes_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(known: dict[str, Any]) -> None:
    path = _hashes_path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        new.write_text(json.dumps(known, indent=1), encoding="utf-8")
        new.replace(path)


def _hashes_path() -> Path:
    return cache_dir() / "hashes.json"
