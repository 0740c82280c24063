"""llama.cpp's own programs, built from the very source that llama-cpp-python was built from.

    python bench/peers.py [PROGRAM ...]

puts them into bench/build/bin, where llama.cpp's CMake puts programs. Compiled as ours is (Release, native, OpenMP), so
the kernels are the same.
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


def peer(program: str) -> Path:
    """The path of a program, built now if it is not there."""
    path = BUILD / "bin" / program
    if not path.exists():
        _build(program)
    return path


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


def _build(program: str) -> None:
    print(f"building {program} (some minutes, once)", file=sys.stderr, flush=True)
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHARED_LIBS": "OFF",
        "LLAMA_CURL": "OFF",
        "LLAMA_OPENSSL": "OFF",
        "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_UI": "OFF",
    }
    configure = [f"-D{name}={value}" for name, value in settings.items()]
    log = BUILD / f"{program}.log"
    with log.open("w") as out:
        for command in (
            ["cmake", "-S", str(_source()), "-B", str(BUILD), *configure],
            ["cmake", "--build", str(BUILD), "--target", program, "--parallel", str(os.cpu_count() or 1)],
        ):
            if subprocess.run(command, stdout=out, stderr=out, check=False).returncode:
                sys.exit(f"building {program} failed; see {log}")


if __name__ == "__main__":
    for name in sys.argv[1:] or [SPECULATIVE_SIMPLE]:
        print(peer(name))
