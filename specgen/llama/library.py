"""The native library: loading it, its log, and its last words.

llama-cpp-python prints llama.cpp's errors to stderr on its own; here they go to `logging` (logger `specgen.llama`), and
the code that called can read them back to say what went wrong.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from specgen.errors import BackendError

logger = logging.getLogger("specgen.llama")
logger.addHandler(logging.NullHandler())

_LOGGING_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}  # enum ggml_log_level
_CONTINUES = 5  # GGML_LOG_LEVEL_CONT: goes on with the line before

LogListener = Callable[[int, str], None]
"""Called with a `logging` level and one line, as llama.cpp writes it."""

_SOURCE_LINE = re.compile(r"^\S*/(?=[\w.-]+:\d+: )")
"""The folders of the source file that an abort names: those of the machine that built it."""

_listeners: list[LogListener] = []
_before_abort: list[Callable[[], None]] = []
workers: list[str] = []
"""Addresses of the RPC servers in use, to name when llama.cpp ends the process because one is lost."""


_SPIN_COUNT = "1000"
"""How often a thread looks before it sleeps at the end of each operation. libgomp's own count is milliseconds: beside
another program threads then wait for others that do not run, and decoding drops to a tenth. This is microseconds, long
enough for the others to arrive on an idle machine. Read by libgomp when it is loaded."""


@cache
def load() -> Any:
    """The module `llama_cpp.llama_cpp`, initialised once.

    Raises:
        BackendError: it is not installed, or its shared library does not load on this machine.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
    try:
        from llama_cpp import llama_cpp as lib
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise BackendError(
            f"llama.cpp's library cannot be loaded: {_one_line(str(error))}",
            "reinstall it: pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python",
        ) from error
    lib.llama_log_set(_log_callback(lib), ctypes.c_void_p(0))
    lib.llama_backend_init()
    lib._lib.ggml_set_abort_callback.argtypes = [ctypes.c_void_p]
    lib._lib.ggml_set_abort_callback(ctypes.cast(_abort_callback(), ctypes.c_void_p))
    return lib


def ggml() -> ctypes.CDLL:
    """The functions of ggml that llama-cpp-python does not bind, through the library that libllama itself linked.

    Opening libggml by its file name would load a second copy: a wheel has no symbolic links, so `libggml.so` and the
    `libggml.so.0` that libllama asks for are two files, with two sets of devices and callbacks.
    """
    library: ctypes.CDLL = load()._lib
    return library


def versions() -> str:
    """The versions of llama-cpp-python, llama.cpp and ggml, for people and bug reports."""
    lib = load()
    import llama_cpp

    base = ggml()
    for function in (base.ggml_version, base.ggml_commit):
        function.restype = ctypes.c_char_p
    llama = lib.llama_version().decode()
    return (
        f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {llama}, "
        f"ggml {base.ggml_version().decode()} ({base.ggml_commit().decode()})"
    )


def system_info() -> str:
    """What the library was compiled for, as llama.cpp prints it."""
    info: bytes = load().llama_print_system_info()
    return info.decode().strip(" |\n")


@contextmanager
def listen(listener: LogListener) -> Iterator[None]:
    """Hear llama.cpp's log for a while."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def collect_errors() -> Iterator[list[str]]:
    """The error lines that llama.cpp logs meanwhile."""
    errors: list[str] = []
    with listen(lambda level, line: errors.append(line) if level >= logging.ERROR else None):
        yield errors


def before_abort(action: Callable[[], None]) -> None:
    """Have `action` called before ggml aborts the process, to leave the terminal as it was."""
    _before_abort.append(action)


@cache
def _log_callback(lib: Any) -> Any:
    last_level = logging.INFO
    unfinished = ""

    def on_log(level: int, text: bytes, _user_data: object) -> None:
        nonlocal last_level, unfinished
        if level != _CONTINUES:
            last_level = _LOGGING_LEVELS.get(level, logging.DEBUG)
        *lines, unfinished = (unfinished + text.decode("utf-8", "replace")).split("\n")
        for line in filter(str.strip, lines):
            logger.log(last_level, "%s", line)
            for listener in tuple(_listeners):
                listener(last_level, line)

    return lib.llama_log_callback(on_log)


@cache
def _abort_callback() -> Any:
    """ggml is about to abort: a lost RPC server, a failed assertion. Nothing can be saved but the terminal."""

    def on_abort(message: bytes) -> None:
        for action in _before_abort:
            action()
        reason = _one_line((message or b"no reason given").decode("utf-8", "replace"))
        if "RPC" in reason:
            what = f"the worker at {' or '.join(workers)} is gone, has no memory left, or is no worker"
            hint = "look at its terminal and start it again with specgen worker, or run without --rpc"
        else:
            what, hint = f"llama.cpp stopped: {_SOURCE_LINE.sub('', reason)}", "run again with -v to see its log"
        os.write(2, f"error: {what}\nhint: {hint}\n".encode())
        os._exit(BackendError.exit_code)

    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(on_abort)


def _one_line(text: str) -> str:
    return " ".join(text.split())
