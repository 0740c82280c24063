"""llama.cpp's quantiser: one GGUF file into another precision."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from specgen.errors import BackendError, ModelLoadError
from specgen.llama import library
from specgen.llama.model import check_gguf

FTYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q8_0": 7,
    "Q6_K": 18,
    "Q5_K_M": 17,
    "Q4_K_M": 15,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q3_K_M": 12,
    "Q2_K": 10,
}
"""`enum llama_ftype` by the name that users know; the names that llama.cpp's own quantise program takes."""

_TENSOR_LINE = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]")


def quantize(source: Path, target: Path, ftype: str, on_progress: Callable[[float], None] = lambda _: None) -> None:
    """Write `source` at another precision to `target`, whole or not at all.

    Args:
        source: any GGUF file; weights that are quantised already are expanded first.
        target: its folder must exist; an older file there is replaced.
        ftype: a key of FTYPES.
        on_progress: told the fraction of tensors that are done.

    Raises:
        ModelLoadError: the source is no GGUF.
        BackendError: llama.cpp failed, or the disk is full.
    """
    check_gguf(source)
    lib = library.load()
    params = lib.llama_model_quantize_default_params()
    params.ftype = FTYPES[ftype]
    params.allow_requantize = True

    def on_log(_level: int, line: str) -> None:
        if found := _TENSOR_LINE.match(line):
            on_progress(int(found[1]) / int(found[2]))

    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(descriptor)
    part = Path(name)
    try:
        with library.listen(on_log), library.collect_errors() as errors:
            status = lib.llama_model_quantize(os.fsencode(source), os.fsencode(name), ctypes.byref(params))
        if status != 0:
            raise BackendError(
                f"{source.name} cannot be written as {ftype}: {' '.join(errors) or status}", "check disk space"
            )
        part.replace(target)
    except ModelLoadError:
        raise
    finally:
        part.unlink(missing_ok=True)
