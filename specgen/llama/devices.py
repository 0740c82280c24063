"""The devices that llama.cpp can compute on. Binds the part of `ggml-backend.h` that llama-cpp-python leaves out."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from specgen.llama import library

_GPU_TYPES = (1, 2)  # GGML_BACKEND_DEVICE_TYPE_GPU, _IGPU


@dataclass(frozen=True, slots=True)
class Device:
    """One device; memory in bytes, as it was when asked."""

    name: str
    description: str
    is_gpu: bool
    free_bytes: int
    total_bytes: int


@cache
def _functions() -> ctypes.CDLL:
    ggml = library.ggml()
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    for function in (ggml.ggml_backend_dev_name, ggml.ggml_backend_dev_description):
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_char_p
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_type.restype = ctypes.c_int
    size = ctypes.POINTER(ctypes.c_size_t)
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, size, size]
    return ggml


def devices() -> list[Device]:
    """All devices, in llama.cpp's order; a GPU can be a remote one (RPC)."""
    ggml = _functions()
    found = []
    for i in range(ggml.ggml_backend_dev_count()):
        handle = ggml.ggml_backend_dev_get(i)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                name=ggml.ggml_backend_dev_name(handle).decode(),
                description=ggml.ggml_backend_dev_description(handle).decode().strip(),
                is_gpu=ggml.ggml_backend_dev_type(handle) in _GPU_TYPES,
                free_bytes=free.value,
                total_bytes=total.value,
            )
        )
    return found


def gpus() -> list[Device]:
    """The devices that layers are offloaded to."""
    return [device for device in devices() if device.is_gpu]
