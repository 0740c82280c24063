"""llama.cpp's own programs, built from the very source that llama-cpp-python was built from.

    python bench/peers.py [PROGRAM ...]

puts them into bench/build/bin, where llama.cpp's CMake puts programs; without names, all that the benchmarks know.
Compiled as ours is (Release, native, OpenMP), so the kernels are the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

BUILD = Path(__file__).parent / "build"
SPECULATIVE_SIMPLE = "llama-speculative-simple"
LOOKUP = "llama-lookup"
SERVER = "llama-server"
BENCH = "llama-bench"
PROGRAMS = (SPECULATIVE_SIMPLE, LOOKUP, SERVER, BENCH)

_SETTINGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
}


def peer(program: str) -> Path:
    """The path of a program, built now if it is not there."""
    return peers([program])[program]


def peers(programs: list[str]) -> dict[str, Path]:
    """The paths of programs; those that are missing are built in one go."""
    paths = {program: BUILD / "bin" / program for program in programs}
    missing = [program for program, path in paths.items() if not path.exists()]
    if missing:
        _build(missing)
    return paths


def _build(programs: list[str]) -> None:
    print(f"building {', '.join(programs)} (some minutes, once)", file=sys.stderr, flush=True)
    source = _source()
    log = BUILD / "build.log"
    configure = [f"-D{name}={value}" for name, value in _SETTINGS.items()]
    with log.open("w") as out:
        for command in (
            ["cmake", "-S", str(source), "-B", str(BUILD), *configure],
            ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1), "--target", *programs],
        ):
            if subprocess.run(command, stdout=out, stderr=out, check=False).returncode:
                sys.exit(f"building {', '.join(programs)} failed; see {log}")


def _source() -> Path:
    """llama.cpp's tree out of the pinned source distribution."""
    name = f"llama_cpp_python-{version('llama-cpp-python')}"
    tree = BUILD / name / "vendor" / "llama.cpp"
    if not tree.exists():
        BUILD.mkdir(exist_ok=True)
        requirement = name.replace("_python-", "_python==")
        words = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(BUILD), requirement]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        with tarfile.open(BUILD / f"{name}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return tree


if __name__ == "__main__":
    for path in peers(sys.argv[1:] or list(PROGRAMS)).values():
        print(path)
