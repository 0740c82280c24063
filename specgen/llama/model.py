"""A GGUF file as a loaded model."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from specgen.errors import ModelLoadError, ModelNotFoundError
from specgen.llama import library
from specgen.llama.devices import gpus, handles_of
from specgen.llama.vocabulary import LlamaVocabulary
from specgen.types import ANYWHERE, Placement

_SIGNS_OF_A_CUT = ("corrupted or incomplete", "failed to read", "failed to seek", "file size", "invalid ggml type")

Progress = Callable[[float], bool]
"""Called with a fraction from 0 to 1; False stops the loading."""


class LoadCancelledError(Exception):
    """The progress callback said stop; not a user error."""


class LlamaModel:
    """Weights and vocabulary. Close it, or use it as a context manager; contexts made from it must be closed before.

    Args:
        path: a GGUF file, the first shard of a split model.
        placement: where the layers go.
        on_progress: told how far loading is.

    Raises:
        ModelNotFoundError: no such file.
        ModelLoadError: not a GGUF, truncated, of an unknown architecture, or not enough memory.
        LoadCancelledError: `on_progress` returned False.
    """

    def __init__(
        self,
        path: Path,
        placement: Placement = ANYWHERE,
        on_progress: Progress = lambda _: True,
    ) -> None:
        check_gguf(path)
        lib = library.load()
        self._lib = lib
        self.path = path
        self.placement = placement
        start_s = time.perf_counter()
        is_cancelled = False

        def progress(fraction: float, _user_data: object) -> bool:
            nonlocal is_cancelled
            is_cancelled = not on_progress(fraction)
            return not is_cancelled

        params = lib.llama_model_default_params()
        params.n_gpu_layers = placement.n_gpu_layers
        if placement.devices:
            handles = handles_of(placement.devices)
            params.devices = ctypes.addressof(handles)
        if placement.tensor_split:
            parts = (ctypes.c_float * lib.llama_max_devices())(*placement.tensor_split)
            params.tensor_split = parts
        params.progress_callback = lib.llama_progress_callback(progress)
        with library.collect_errors() as errors:
            self._handle: Any = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            if is_cancelled:
                raise LoadCancelledError
            raise _load_error(path, errors)
        self.load_s = time.perf_counter() - start_s
        self.vocabulary = LlamaVocabulary(lib.llama_model_get_vocab(self._handle), path.name)

    @property
    def handle(self) -> Any:
        """`llama_model *`."""
        return self._handle

    @property
    def n_ctx_train(self) -> int:
        """The context length that the model was trained for."""
        n: int = self._lib.llama_model_n_ctx_train(self._handle)
        return n

    @property
    def n_layers(self) -> int:
        """Transformer blocks."""
        n: int = self._lib.llama_model_n_layer(self._handle)
        return n

    @property
    def n_swa(self) -> int:
        """The width of the sliding window; 0 without one."""
        n: int = self._lib.llama_model_n_swa(self._handle)
        return n

    @property
    def is_recurrent(self) -> bool:
        """Whether the memory is a state that cannot be cut (Mamba, RWKV)."""
        return bool(self._lib.llama_model_is_recurrent(self._handle))

    @property
    def is_hybrid(self) -> bool:
        """Whether part of the memory is such a state."""
        return bool(self._lib.llama_model_is_hybrid(self._handle))

    @property
    def has_decoder(self) -> bool:
        """Whether it can generate at all: encoders and embedding models cannot."""
        return bool(self._lib.llama_model_has_decoder(self._handle))

    @property
    def is_all_f32(self) -> bool:
        """Whether the weights are 32-bit floats."""
        return int(self._lib.llama_model_ftype(self._handle)) == 0

    @property
    def description(self) -> str:
        """Architecture, size class and quantisation, as llama.cpp says it."""
        buffer = ctypes.create_string_buffer(256)
        self._lib.llama_model_desc(self._handle, buffer, len(buffer))
        return buffer.value.decode()

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that the file carries."""
        template: bytes | None = self._lib.llama_model_chat_template(self._handle, None)
        return template.decode() if template else None

    @property
    def device_names(self) -> tuple[str, ...]:
        """Where its layers are."""
        if self.placement.is_on_cpu:
            return ("CPU",)
        return self.placement.devices or tuple(gpu.name for gpu in gpus()) or ("CPU",)

    @property
    def is_on_local_gpu(self) -> bool:
        """Whether some layers are on a GPU of this machine; what a worker computes on, it does not tell."""
        local = {gpu.name for gpu in gpus() if not gpu.is_remote}
        return not local.isdisjoint(self.device_names)

    def close(self) -> None:
        """Free the weights."""
        if self._handle:
            self._lib.llama_model_free(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_gguf(path: Path) -> None:
    """Refuse what cannot be a GGUF file, before llama.cpp tries.

    Raises:
        ModelNotFoundError: nothing there.
        ModelLoadError: a directory, unreadable, empty, or without GGUF's magic bytes.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"no such file: {path}", "check the path; `specgen run demo` needs no file of yours"
        ) from None
    except IsADirectoryError:
        raise ModelLoadError(f"{path} is a directory, not a GGUF file", _hint_for_directory(path)) from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None
    if not magic:
        raise ModelLoadError(f"{path} is empty", "download it again; a broken download leaves files like this")
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'",
            "give a .gguf file; convert other formats with llama.cpp's convert_hf_to_gguf.py",
        )


def _hint_for_directory(path: Path) -> str:
    inside = sorted(path.glob("*.gguf"))
    return f"perhaps {inside[0]}" if inside else "give the .gguf file itself"


def _load_error(path: Path, errors: list[str]) -> ModelLoadError:
    """llama.cpp's own words, with the remedy that goes with them."""
    reasons = [line.split(": ", 1)[1].removeprefix("error loading model: ") for line in errors if ": " in line]
    specific = [reason for reason in reasons if "failed to load model" not in reason]
    text = " ".join((specific or reasons or ["llama.cpp gave no reason"])[0].split())
    if any(sign in text for sign in _SIGNS_OF_A_CUT):
        hint = "the file is cut short or damaged: download it again and compare its size or sha256"
    elif "unknown model architecture" in text:
        hint = "this llama.cpp does not know the model: update llama-cpp-python, or use another model"
    elif "alloc" in text or "memory" in text:
        hint = "not enough memory: use a smaller quantisation, or fewer --gpu-layers"
    else:
        hint = "run again with -v for llama.cpp's log"
    return ModelLoadError(f"{path} cannot be loaded: {text}", hint)
