"""What `specgen doctor` looks at. Every check stands alone: one that fails becomes a problem, and the others go on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from specgen import __version__
from specgen.cli._options import allowed_cpus, physical_cores
from specgen.cli._placement import connect
from specgen.errors import SpecgenError
from specgen.llama.devices import DeviceInfo
from specgen.llama.memory import Ram, ram
from specgen.pairs.derived import cache_dir

SCHEMA_VERSION = 1
_GIB = 2**30
_ONLINE_S = 10
_HUB = "https://huggingface.co"
_LITTLE_DISK = 2 * _GIB
_X86 = ("x86_64", "AMD64")


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        facts: lines for people under their heads, in order.
        data: the same for programs.
        problems: each with its remedy.
    """

    facts: dict[str, list[str]] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The object of `doctor --json`; keys may be added, these keep their names."""
        problems = [{"problem": problem, "remedy": remedy} for problem, remedy in self.problems]
        return {"schema_version": SCHEMA_VERSION, **self.data, "problems": problems}


def examine(workers: Sequence[str], *, is_online: bool) -> Report:
    """Look at everything.

    Args:
        workers: addresses whose devices are shown too.
        is_online: whether to ask the hub for a sign of life.
    """
    report = Report()
    _versions(report)
    devices = _devices(report, workers)
    _processor(report, devices)
    _memory(report, ram())
    _cache(report)
    if is_online:
        _hub(report)
    return report


def _versions(report: Report) -> None:
    packages = {name: _version(name) for name in ("llama-cpp-python", "huggingface-hub", "numpy")}
    versions: dict[str, str | None] = {"specgen": __version__, "python": platform.python_version(), **packages}
    try:
        from specgen.llama import library

        versions["llama.cpp"] = library.versions()
        report.facts["llama.cpp"] = [library.versions()]
    except SpecgenError as error:
        versions["llama.cpp"] = None
        report.problems.append((error.message, error.hint))
    named = [f"{name} {version}" for name, version in versions.items() if version and name != "llama.cpp"]
    report.facts = {"versions": [", ".join(named)], **report.facts, "system": [f"{platform.platform()}, {sys.prefix}"]}
    report.data |= {"versions": versions, "platform": platform.platform(), "prefix": sys.prefix}


def _devices(report: Report, workers: Sequence[str]) -> list[DeviceInfo] | None:
    """The devices; None where the native library does not load."""
    if report.data["versions"]["llama.cpp"] is None:
        report.data |= {"backends": None, "devices": None}
        return None
    from specgen.llama import devices

    for address in workers:
        try:
            connect(address)
        except SpecgenError as error:
            report.problems.append((error.message, error.hint))
    found = devices.devices()
    backends = devices.backends()
    report.facts["backends"] = [", ".join(backends)]
    report.facts["devices"] = [
        f"{device.name}: {device.description}, {device.kind}"
        + (f", {_gib(device.free_bytes)} of {_gib(device.total_bytes)} free" if device.total_bytes else "")
        for device in found
    ]
    report.data |= {"backends": backends, "devices": [asdict(device) for device in found]}
    if _sees_nvidia() and not any(device.is_gpu and not device.is_remote for device in found):
        report.problems.append(
            (
                "an NVIDIA GPU is here, but this llama.cpp was built for the CPU only",
                "CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python "
                "llama-cpp-python",
            )
        )
    return found


def _processor(report: Report, devices: list[DeviceInfo] | None) -> None:
    n_cores, n_allowed = physical_cores(), allowed_cpus()
    report.facts["processor"] = [f"{n_cores} cores used, {n_allowed} of {os.cpu_count()} CPUs allowed"]
    report.data["processor"] = {"physical_cores": n_cores, "allowed_cpus": n_allowed, "cpus": os.cpu_count()}
    if devices is not None:
        from specgen.llama import library

        compiled = library.system_info()
        report.facts["compiled for"] = [compiled]
        report.data["system_info"] = compiled
        if platform.machine() in _X86 and "AVX2 = 1" not in compiled:
            report.problems.append(
                (
                    "llama.cpp was built without AVX2: CPU decoding is many times slower",
                    "build it on this machine: pip install --force-reinstall --no-cache-dir --no-binary "
                    "llama-cpp-python llama-cpp-python",
                )
            )
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > n_allowed:
        report.problems.append(
            (
                f"OMP_NUM_THREADS is {wanted}, but this process may use {n_allowed} CPUs",
                f"export OMP_NUM_THREADS={n_cores}, or unset it",
            )
        )
    load, *_ = os.getloadavg()
    if load > n_allowed:
        report.problems.append(
            (
                f"other programs keep the CPUs busy: load {load:.1f} on {n_allowed} CPUs",
                "wait for them, or use fewer --threads; speeds measured now mean little",
            )
        )


def _memory(report: Report, memory: Ram) -> None:
    report.facts["memory"] = [
        f"{_gib(memory.total_bytes)}; this process may use {_gib(memory.free_bytes)} more",
        *(f"{_gib(limit.free_bytes)}: {limit.name}" for limit in memory.limits),
    ]
    report.data["memory"] = asdict(memory)


def _cache(report: Report) -> None:
    folder = cache_dir()
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    above = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(above).free
    report.facts["cache"] = [f"{folder}: {_gib(n_bytes)} used, {_gib(free)} free on its disk"]
    report.data["cache"] = {"path": str(folder.absolute()), "used_bytes": n_bytes, "free_bytes": free}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        report.problems.append(
            (f"the cache {folder} cannot be written: {error.strerror}", "set SPECGEN_CACHE to a folder of yours")
        )
    if free < _LITTLE_DISK:
        report.problems.append(
            (f"only {_gib(free)} are free where the cache is", "free some space, or move SPECGEN_CACHE")
        )


def _hub(report: Report) -> None:
    address = os.environ.get("HF_ENDPOINT", _HUB)
    try:
        with urlopen(Request(address, method="HEAD"), timeout=_ONLINE_S):
            state = "answers"
    except HTTPError as error:  # it is there, whatever it says
        error.close()
        state = "answers"
    except (URLError, OSError, ValueError) as error:
        state = "cannot be reached"
        reason = getattr(error, "reason", error)
        report.problems.append(
            (f"{address} cannot be reached: {reason}", "check network, proxy (HTTPS_PROXY) and HF_ENDPOINT")
        )
    report.facts["hub"] = [f"{address} {state}"]
    report.data["hub"] = {"address": address, "state": state}


def _sees_nvidia() -> bool:
    """Whether a driver shows a GPU."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / _GIB:,.1f} GiB"
