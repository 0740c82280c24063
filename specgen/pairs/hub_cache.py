"""The Hub's cache on this machine, laid out as huggingface_hub lays it out, so that each finds what the other fetched.

    models--owner--name/blobs/<sha256>                         the content
    models--owner--name/snapshots/<commit>/<path>              a link to it
    models--owner--name/refs/<branch>                          the commit of a branch, as it was last seen
    models--owner--name/blobs/<sha256>.specgen.incomplete      what an unfinished `specgen pull` has so far

On a file system without symbolic links the snapshot holds the content itself. HF_HOME and HF_HUB_CACHE move it all.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants

from specgen.pairs.hub import RemoteFile, check_names, is_commit
from specgen.pairs.sources import HubFile


def root() -> Path:
    """The cache's folder; it need not be there."""
    return Path(constants.HF_HUB_CACHE)


def locate(file: HubFile) -> Path | None:
    """The first shard of a model that is here whole, by its pinned commit or the commit last seen. No request.

    Raises:
        ConfigError: the names are none that a repository has.
    """
    check_names(file)
    commit = last_seen(file.repo, file.revision)
    if commit is None:
        return None
    paths = [_snapshot(file.repo, commit, shard) for shard in file.shards]
    if not all(path.is_file() for path in paths):
        return None
    if file.size is not None and sum(path.stat().st_size for path in paths) != file.size:
        return None
    return paths[0]


def last_seen(repo: str, revision: str) -> str | None:
    """The commit of a revision: itself where it is one, else what it was when something was fetched."""
    if is_commit(revision):
        return revision
    try:
        return (_folder(repo) / "refs" / revision).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def locate_part(part: RemoteFile) -> Path | None:
    """A file that is here whole; its content may have come with another commit, and is then linked.

    Raises:
        OSError: the cache cannot be written.
    """
    path = snapshot_path(part)
    if _has_size(path, part.size):
        return path
    if _has_size(blob_path(part), part.size):
        return _publish(part)
    return None


def snapshot_path(part: RemoteFile) -> Path:
    """Where a file is, or will be, under its own name."""
    return _snapshot(part.repo, part.commit, part.file)


def blob_path(part: RemoteFile) -> Path:
    """Where its content is, or will be."""
    return _folder(part.repo) / "blobs" / part.sha256


def unfinished_path(part: RemoteFile) -> Path:
    """Where its content grows while it is fetched."""
    return _folder(part.repo) / "blobs" / f"{part.sha256}.specgen.incomplete"


def lock_path(part: RemoteFile) -> Path:
    """Held while the content is fetched; the file that huggingface_hub locks too."""
    return root() / ".locks" / _folder(part.repo).name / f"{part.sha256}.lock"


def store(part: RemoteFile) -> Path:
    """Make the unfinished file, whose content is now whole and checked, the file that everyone finds.

    Raises:
        OSError: the cache cannot be written.
    """
    unfinished_path(part).replace(blob_path(part))
    return _publish(part)


def _publish(part: RemoteFile) -> Path:
    """Give content that is here its name, and remember which commit the revision was."""
    path, blob = snapshot_path(part), blob_path(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    relative = os.path.relpath(blob, path.parent)
    try:
        if constants.HF_HUB_DISABLE_SYMLINKS:
            raise OSError
        _replace(path, lambda new: new.symlink_to(relative))
    except OSError:
        _replace(path, lambda new: _copy(blob, new))
    if part.revision != part.commit:
        ref = _folder(part.repo) / "refs" / part.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        _replace(ref, lambda new: _write(new, part.commit))
    return path


def _copy(blob: Path, new: Path) -> None:
    """The content under a second name: a hard link where there are some, else a copy."""
    try:
        os.link(blob, new)
    except OSError:
        shutil.copyfile(blob, new)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    """Put something in place of `path` so that nobody ever sees less than all of it."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        make(new)
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _folder(repo: str) -> Path:
    return root() / f"models--{repo.replace('/', '--')}"


def _snapshot(repo: str, commit: str, file: str) -> Path:
    return _folder(repo) / "snapshots" / commit / file


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False
