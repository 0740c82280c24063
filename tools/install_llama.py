"""Install llama-cpp-python into the running environment, built for this machine, and check what was built.

    python tools/install_llama.py

pip's own wheel cache ignores CMAKE_ARGS, so a cached wheel may lack a backend that was asked for, and llama.cpp
compiles for the processor it is built on. So the wheel is built here, kept under a name made of all that went into it,
and looked at after it is installed. CUDA is built in where a working NVIDIA driver and nvcc are both there; Metal is
llama.cpp's own default on macOS. CMAKE_ARGS adds to the arguments, and overrides them where both name a setting.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.3.36"
WANTED = {"-DGGML_RPC": "on", "-DLLAVA_BUILD": "off"}  # llava is for images
CHECK = """
import json
from llama_cpp import llama_cpp as lib
lib.llama_log_set(lib.llama_log_callback(lambda *_: None), None)
info = lib.llama_print_system_info().decode()
print(json.dumps({"rpc": bool(lib.llama_supports_rpc()), "gpu": bool(lib.llama_supports_gpu_offload()), "info": info}))
"""


def has_cuda() -> bool:
    """A driver that answers, and a compiler; either alone is of no use."""
    if not shutil.which("nvcc") or not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def cmake_args() -> list[str]:
    """Our settings, with the user's CMAKE_ARGS last so that they win."""
    settings = dict(WANTED)
    if has_cuda():
        settings["-DGGML_CUDA"] = "on"
    own = [f"{name}={value}" for name, value in settings.items()]
    return own + shlex.split(os.environ.get("CMAKE_ARGS", ""))


def processor() -> str:
    """What decides which instructions the build may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def cached_wheel(args: list[str]) -> Path:
    """The folder of the wheel that these arguments make on this machine."""
    parts = [VERSION, *args, platform.platform(), processor()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "specgen" / "wheels" / f"llama-cpp-python-{VERSION}-{key}"


def pip(*words: str, **env: str) -> None:
    """Run pip of this environment."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True, env={**os.environ, **env}
    )


def built() -> dict[str, object] | None:
    """What the installed build can do, or None without one."""
    found = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=False)
    return json.loads(found.stdout) if found.returncode == 0 else None


def build(folder: Path, args: list[str]) -> None:
    """Build the wheel into `folder`, whole or not at all."""
    print(f"building llama-cpp-python {VERSION} with {' '.join(args)} (some minutes)", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        requirement = f"llama-cpp-python=={VERSION}"
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        options = ["--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python", "--wheel-dir", scratch]
        pip("wheel", "--quiet", *options, requirement, CMAKE_ARGS=" ".join(args), CMAKE_BUILD_PARALLEL_LEVEL=jobs)
        with contextlib.suppress(OSError):  # another build was faster
            Path(scratch).rename(folder)
        Path(scratch).mkdir(exist_ok=True)


def main() -> None:
    """Install, check, and say what is there."""
    args = cmake_args()
    marker = Path(sys.prefix, "llama-build.txt")
    if marker.exists() and marker.read_text(encoding="utf-8") == " ".join(args) and built():
        return
    folder = cached_wheel(args)
    if not list(folder.glob("*.whl")):
        build(folder, args)
    pip("install", "--quiet", "--force-reinstall", "--no-deps", str(next(folder.glob("*.whl"))))
    pip("install", "--quiet", f"llama-cpp-python=={VERSION}")  # what it needs
    can = built()
    if can is None:
        sys.exit("the build does not load; see `python -c 'import llama_cpp'`")
    if "-DGGML_RPC=on" in args and not can["rpc"]:
        sys.exit("the build lacks RPC support although it was asked for")
    if "-DGGML_CUDA=on" in args and not can["gpu"]:
        sys.exit("the build lacks CUDA although it was asked for")
    marker.write_text(" ".join(args), encoding="utf-8")
    print(f"llama-cpp-python {VERSION}: {can['info']}")


if __name__ == "__main__":
    main()
