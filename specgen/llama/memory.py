"""How much memory of this machine the process may use, and what limits it.

Asks the operating system only, so it works where the native library does not load.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

_UNLIMITED = 2**60
"""cgroup v1 says "no limit" with a number near 2**63."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One thing that limits memory.

    Attributes:
        name: in words, as it follows "limited by".
        free_bytes: what it leaves to this process; never negative.
        counts_mappings: whether a mapped file counts from the start. Where it does not, its pages are cache: they may
            fill what is free, and can be dropped and read again.
    """

    name: str
    free_bytes: int
    counts_mappings: bool = False


@dataclass(frozen=True, slots=True)
class Ram:
    """The machine's memory, and all that limits this process's share.

    Attributes:
        total_bytes: of the machine.
        limits: at least one, the tightest first.
    """

    total_bytes: int
    limits: tuple[MemoryLimit, ...]

    @property
    def free_bytes(self) -> int:
        """What the tightest limit leaves."""
        return self.limits[0].free_bytes


@dataclass(frozen=True, slots=True)
class _CgroupFiles:
    """Names of the files, and of the lines of memory.stat that count what can be dropped."""

    limit: str
    used: str
    cache_keys: tuple[str, ...]


_VERSION_1 = _CgroupFiles(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)
_VERSION_2 = _CgroupFiles("memory.max", "memory.current", ("active_file", "inactive_file"))


def ram(cgroup_root: Path = CGROUP_ROOT, own_cgroups: Path = OWN_CGROUPS) -> Ram:
    """Memory as it is now.

    Args:
        cgroup_root: where control groups are mounted.
        own_cgroups: the file that says which of them this process is in.
    """
    memory = psutil.virtual_memory()
    limits = [
        MemoryLimit("what the machine has free", memory.available),
        *_process_limits(),
        *_cgroup_limits(cgroup_root, own_cgroups),
    ]
    return Ram(memory.total, tuple(sorted(limits, key=lambda limit: limit.free_bytes)))


def _process_limits() -> Iterator[MemoryLimit]:
    """What `ulimit` allows beyond what the process has already."""
    used = psutil.Process().memory_info()
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield MemoryLimit(f"ulimit -v {soft // 1024}", max(0, soft - used.vms), counts_mappings=True)
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY and hasattr(used, "data"):  # Linux
        yield MemoryLimit(f"ulimit -d {soft // 1024}", max(0, soft - used.data))


def _cgroup_limits(root: Path, own_cgroups: Path) -> Iterator[MemoryLimit]:
    """The limits of this process's control groups, version 1 and 2, and of all groups around them."""
    try:
        lines = own_cgroups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            mount, files = root / "unified" if (root / "unified").is_dir() else root, _VERSION_2
        elif "memory" in controllers.split(","):
            mount, files = root / "memory", _VERSION_1
        else:
            continue
        for folder in _with_parents(mount, path):
            with suppress(OSError, ValueError):  # no limit here: the file is missing or says "max"
                yield from _cgroup_limit(folder, files)


def _with_parents(mount: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it; in a container the mount itself is the group, whatever its path."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for n in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:n])


def _cgroup_limit(folder: Path, files: _CgroupFiles) -> Iterator[MemoryLimit]:
    limit = int((folder / files.limit).read_text())
    if limit >= _UNLIMITED:
        return
    used = int((folder / files.used).read_text())
    cache = 0
    with suppress(OSError):
        for line in (folder / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            cache += int(value) if key in files.cache_keys else 0
    free = max(0, limit - max(0, used - cache))
    yield MemoryLimit(f"the control group's limit of {limit / 2**20:,.0f} MiB ({folder / files.limit})", free)
