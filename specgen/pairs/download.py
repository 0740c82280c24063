"""Fetching models: what is here already, what is missing, and the missing part by Range into the Hub's cache.

A file grows under a name of its own, hashed as it comes, and gets its final name when size and sha256 are right:
nothing half-finished is ever found. What has come stays where it is after a failure, Ctrl-C or a kill, and the next run
goes on from there. Two processes that want the same file share the work: one fetches, the other waits and finds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from specgen.errors import DownloadError
from specgen.pairs import hub_cache
from specgen.pairs.hub import RemoteFile, is_commit, resolve_parts
from specgen.pairs.hub_errors import AGAIN, OfflineError, TransientError
from specgen.pairs.hub_http import CHUNK_BYTES, as_hub_file, open_body
from specgen.pairs.local_models import find_model
from specgen.pairs.patience import Patience
from specgen.pairs.sources import HubFile

_MAX_AT_ONCE = 4
_REPORT_INTERVAL_S = 0.1
_LOCK_INTERVAL_S = 0.1
_JOIN_S = 1.0
_ELSEWHERE = "set HF_HOME to a folder that can be written"


class State(StrEnum):
    """What happens to a file just now."""

    WAITING = "waiting for another process"
    CHECKING = "checking what is here"
    FETCHING = "fetching"
    RETRYING = "trying again"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a file is; `n_bytes` never goes down within one file, but for one that has to start over."""

    file: RemoteFile
    state: State
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model: where it is, or how much of it.

    Attributes:
        remote: the file on the Hub.
        path: on this machine, None while it is not whole.
        n_have: bytes that an earlier run has left.
    """

    remote: RemoteFile
    path: Path | None
    n_have: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """A model, what of it is here, and what is missing.

    Attributes:
        file: as it was asked for.
        path: of the first file; where it will be, if it is not here yet.
        missing: what has to be fetched.
        size: bytes of the whole model.
    """

    file: HubFile
    path: Path
    missing: tuple[Part, ...]
    size: int


OnProgress = Callable[[Transfer], None]


def survey(file: HubFile) -> Survey:
    """What of a model is here. No request for a pinned one that is whole; one HEAD for one that is not pinned.

    Without a network, an unpinned model is what it was when it was fetched.

    Raises:
        ModelNotFoundError, DownloadError: the Hub does not have it, refuses it or cannot be reached.
    """
    here = hub_cache.locate(file)
    if here is not None and is_commit(file.revision):
        return _whole(file, here)
    try:
        parts = resolve_parts(file)
    except (TransientError, OfflineError):
        if here is None:
            raise
        return _whole(file, here)
    size = sum(part.size for part in parts)
    with _cache_errors(parts[0]):
        found = [Part(part, hub_cache.locate_part(part), _n_unfinished(part)) for part in parts]
    missing = tuple(part for part in found if part.path is None)
    if missing:
        elsewhere = find_model(file, [(part.name, part.size, part.sha256) for part in parts])
        if elsewhere is not None:
            return Survey(file, elsewhere, (), size)
    return Survey(file, hub_cache.snapshot_path(parts[0]), missing, size)


def _whole(file: HubFile, path: Path) -> Survey:
    return Survey(file, path, (), file.size or path.stat().st_size)


def fetch(
    files: Sequence[HubFile], on_progress: OnProgress = lambda _transfer: None, patience: Patience | None = None
) -> list[Path]:
    """The models' first files on this machine; what is missing is fetched, several files at once.

    Args:
        files: models of the Hub.
        on_progress: called from several threads, a few times a second per file.
        patience: limits of waiting.

    Raises:
        ModelNotFoundError: the Hub does not have one of them.
        DownloadError: one of them cannot be fetched or stored whole; what has come is kept.
    """
    found = [survey(file) for file in files]
    fetch_missing(found, on_progress, patience or Patience())
    return [model.path for model in found]


def fetch_missing(surveys: Sequence[Survey], on_progress: OnProgress, patience: Patience | None = None) -> None:
    """Fetch what surveys say is missing.

    Raises:
        DownloadError, ModelNotFoundError: as `fetch`.
    """
    missing = list({part.remote: part for model in surveys for part in model.missing}.values())
    if missing:
        require_space(missing)
        _Workers(missing, on_progress, patience or Patience()).run()


def require_space(missing: Sequence[Part]) -> None:
    """Refuse a download that cannot fit.

    Raises:
        DownloadError: the disk has less room than is needed.
    """
    needed = sum(part.remote.size - part.n_have for part in missing)
    free = disk_free()
    if free is not None and needed > free:
        raise DownloadError(
            f"{hub_cache.root()} has {gigabytes(free)} free, the download needs {gigabytes(needed)}",
            "free some space, or set HF_HOME to a folder on another disk",
        )


def disk_free() -> int | None:
    """Free bytes where the cache is or will be; None where that cannot be told."""
    folder = hub_cache.root()
    for place in (folder, *folder.parents):
        if place.is_dir():
            try:
                return shutil.disk_usage(place).free
            except OSError:
                return None
    return None


def gigabytes(n_bytes: int) -> str:
    """A size as people write it, in powers of ten: 1.2 GB, 34.5 MB."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


class _CancelledError(Exception):
    """Another file has failed, or the user has left."""


@dataclass(slots=True)
class _Workers:
    """Threads that fetch files; the first failure ends them all.

    They are daemons: one that waits for a silent server does not keep the process from ending, and what is on disk is
    right at any moment.
    """

    missing: Sequence[Part]
    on_progress: OnProgress
    patience: Patience
    _cancel: threading.Event = field(default_factory=threading.Event)
    _results: queue.SimpleQueue[BaseException | None] = field(default_factory=queue.SimpleQueue)

    def run(self) -> None:
        """Fetch everything.

        Raises:
            SpecgenError: the first failure.
        """
        todo: queue.SimpleQueue[Part] = queue.SimpleQueue()
        for part in self.missing:
            todo.put(part)
        n_threads = min(_MAX_AT_ONCE, len(self.missing))
        threads = [threading.Thread(target=self._work, args=(todo,), daemon=True) for _ in range(n_threads)]
        try:
            for thread in threads:
                thread.start()
            for _ in self.missing:
                failure = self._results.get()
                if failure is not None:
                    raise failure
        finally:
            self._cancel.set()
            deadline = time.monotonic() + _JOIN_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, todo: queue.SimpleQueue[Part]) -> None:
        while not self._cancel.is_set():
            try:
                part = todo.get_nowait()
            except queue.Empty:
                return
            failure: BaseException | None = None
            try:
                _Download(part.remote, self.on_progress, self.patience, self._cancel).run()
            except BaseException as error:
                failure = error
            self._results.put(failure)


class _Download:
    """One file on its way."""

    def __init__(
        self, remote: RemoteFile, on_progress: OnProgress, patience: Patience, cancel: threading.Event
    ) -> None:
        self._remote = remote
        self._on_progress = on_progress
        self._patience = patience
        self._cancel = cancel
        self._n_bytes = 0
        self._sha256 = hashlib.sha256()
        self._last_report_s = 0.0

    def run(self) -> None:
        """Fetch the file, or find that another process has."""
        with _cache_errors(self._remote), self._lock():
            if hub_cache.locate_part(self._remote) is None:
                path = hub_cache.unfinished_path(self._remote)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("r+b" if path.exists() else "x+b", buffering=0) as file:
                    self._check_unfinished(file)
                    self._fetch(file)
                self._require_right(path)
                hub_cache.store(self._remote)
        self._n_bytes = self._remote.size
        self._report(State.DONE, is_due=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Alone with the file. On a file system that knows no locks nothing is lost: all write the same bytes."""
        path = hub_cache.lock_path(self._remote)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            while not self._try_lock(file):
                self._report(State.WAITING)
                if self._cancel.wait(_LOCK_INTERVAL_S):
                    raise _CancelledError
            yield

    @staticmethod
    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _check_unfinished(self, file: IO[bytes]) -> None:
        """Hash what an earlier run has left; too much of it is none."""
        n_left = os.fstat(file.fileno()).st_size
        if n_left > self._remote.size:
            file.truncate(0)
        while self._n_bytes < n_left and (chunk := file.read(CHUNK_BYTES)):
            self._take(chunk, State.CHECKING)

    def _fetch(self, file: IO[bytes]) -> None:
        """The rest, with new attempts as long as they bring something or patience lasts."""
        n_failed = 0
        while self._n_bytes < self._remote.size:
            before = self._n_bytes
            try:
                if not self._read_body(file):
                    return
                raise TransientError(f"the connection broke off {self._where()}")
            except TransientError as error:
                n_failed = 1 if self._n_bytes > before else n_failed + 1
                if n_failed >= self._patience.n_attempts:
                    raise TransientError(f"{error.message} ({self._where()})", AGAIN) from error
                self._report(State.RETRYING, is_due=True)
                if self._cancel.wait(self._patience.wait_s(n_failed, error)):
                    raise _CancelledError from None

    def _read_body(self, file: IO[bytes]) -> bool:
        """One request. Returns whether bytes are missing that another may bring."""
        source = as_hub_file(self._remote)
        with open_body(source, self._n_bytes, timeout_s=self._patience.timeout_s) as body:
            if body.size is not None and body.size != self._remote.size:
                name, expected = f"{source.repo}/{source.file}", self._remote.size
                raise DownloadError(
                    f"{name} has {body.size:,} bytes on the server, expected {expected:,}",
                    "run `specgen pairs verify`, or name another revision",
                )
            n_to_skip = self._n_bytes - body.start
            while self._n_bytes < self._remote.size:
                chunk = body.read()
                if not chunk:
                    return not body.is_beyond_end
                new = chunk[n_to_skip:][: self._remote.size - self._n_bytes]
                n_to_skip = max(0, n_to_skip - len(chunk))
                if new:
                    _write_at(file, new, self._n_bytes)
                    self._take(new, State.FETCHING)
        return False

    def _take(self, chunk: bytes, state: State) -> None:
        self._sha256.update(chunk)
        self._n_bytes += len(chunk)
        self._report(state)
        if self._cancel.is_set():
            raise _CancelledError

    def _require_right(self, path: Path) -> None:
        """The content is the one that was promised, or is removed.

        Raises:
            DownloadError: it is not.
        """
        remote, name = self._remote, f"{self._remote.repo}/{self._remote.file}"
        if self._n_bytes != remote.size:
            path.unlink(missing_ok=True)
            raise DownloadError(
                f"{name} has {self._n_bytes:,} bytes, expected {remote.size:,}; it was removed",
                "run the same command again: it starts afresh",
            )
        if self._sha256.hexdigest() != remote.sha256:
            path.unlink(missing_ok=True)
            raise DownloadError(
                f"{name} was damaged on its way: sha256 {self._sha256.hexdigest()}, expected {remote.sha256}; "
                "it was removed",
                "run the same command again: it starts afresh",
            )

    def _report(self, state: State, *, is_due: bool = False) -> None:
        now_s = time.monotonic()
        if is_due or now_s - self._last_report_s >= _REPORT_INTERVAL_S:
            self._last_report_s = now_s
            self._on_progress(Transfer(self._remote, state, self._n_bytes))

    def _where(self) -> str:
        return f"after {gigabytes(self._n_bytes)} of {gigabytes(self._remote.size)} of {self._remote.name}"


def _write_at(file: IO[bytes], data: bytes, offset: int) -> None:
    """All of `data`; the system may take less at a time."""
    view = memoryview(data)
    while view:
        n_written = os.pwrite(file.fileno(), view, offset)
        view, offset = view[n_written:], offset + n_written


def _n_unfinished(part: RemoteFile) -> int:
    path = hub_cache.unfinished_path(part)
    size = path.stat().st_size if path.is_file() else 0
    return size if size <= part.size else 0


@contextmanager
def _cache_errors(part: RemoteFile) -> Iterator[None]:
    """Around work in the cache's folder, whose own errors say only a number.

    Raises:
        DownloadError: in their place.
    """
    try:
        yield
    except OSError as error:
        blob = hub_cache.blob_path(part)
        reason = error.strerror or str(error)
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError | FileNotFoundError):
            raise DownloadError(f"{hub_cache.root()} cannot be written: {reason}", _ELSEWHERE) from error
        raise DownloadError(
            f"{part.name} cannot be stored in {blob.parent}: {reason}",
            "free some space and run the command again: what was fetched is kept; or set HF_HOME to another disk",
        ) from error
