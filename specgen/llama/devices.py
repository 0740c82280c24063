"""The devices that llama.cpp can compute on, on this machine and, through its RPC, on others.

Binds the part of `ggml-backend.h` and `ggml-rpc.h` that llama-cpp-python leaves out; no other module does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from specgen.errors import BackendError, ConfigError
from specgen.llama import library


class DeviceKind(StrEnum):
    """What a device is, in the order of `enum ggml_backend_dev_type`."""

    CPU = "cpu"
    GPU = "gpu"
    INTEGRATED_GPU = "integrated gpu"
    ACCELERATOR = "accelerator"  # used together with the CPU, such as BLAS
    META = "several"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device; memory in bytes, as it was when asked.

    Attributes:
        name: llama.cpp's, such as CPU, CUDA0, RPC0.
        description: the product's name; of a remote device its host:port.
        kind: a remote device calls itself a GPU, whatever it is.
        free_bytes, total_bytes: 0 where the device does not say.
        backend: CPU, CUDA, Metal, RPC ...
    """

    name: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int
    backend: str

    @property
    def is_gpu(self) -> bool:
        """Whether layers can be offloaded to it."""
        return self.kind in (DeviceKind.GPU, DeviceKind.INTEGRATED_GPU)

    @property
    def is_remote(self) -> bool:
        """Whether it belongs to a worker."""
        return self.backend.startswith("RPC")


@cache
def _functions() -> ctypes.CDLL:
    ggml = library.ggml()
    handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    signatures = {
        "ggml_backend_dev_count": (size, []),
        "ggml_backend_dev_get": (handle, [size]),
        "ggml_backend_dev_name": (text, [handle]),
        "ggml_backend_dev_description": (text, [handle]),
        "ggml_backend_dev_type": (ctypes.c_int, [handle]),
        "ggml_backend_dev_memory": (None, [handle, ctypes.POINTER(size), ctypes.POINTER(size)]),
        "ggml_backend_dev_backend_reg": (handle, [handle]),
        "ggml_backend_reg_name": (text, [handle]),
        "ggml_backend_reg_count": (size, []),
        "ggml_backend_reg_get": (handle, [size]),
        "ggml_backend_register": (None, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml


def _rpc_functions() -> ctypes.CDLL:
    """The functions of `ggml-rpc.h`.

    Raises:
        BackendError: this llama.cpp was built without them.
    """
    ggml = _functions()
    try:
        add, start = ggml.ggml_backend_rpc_add_server, ggml.ggml_backend_rpc_start_server
    except AttributeError:
        raise BackendError(
            "this llama.cpp was built without RPC, so it knows no workers",
            "build it with RPC: CMAKE_ARGS=-DGGML_RPC=on pip install --force-reinstall --no-cache-dir "
            "--no-binary llama-cpp-python llama-cpp-python",
        ) from None
    add.restype, add.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    handles = ctypes.POINTER(ctypes.c_void_p)
    start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, handles]
    start.restype = None
    return ggml


def backends() -> list[str]:
    """The backends that the library was compiled with."""
    ggml = _functions()
    return [
        ggml.ggml_backend_reg_name(ggml.ggml_backend_reg_get(i)).decode() for i in range(ggml.ggml_backend_reg_count())
    ]


def devices() -> list[DeviceInfo]:
    """All devices, in llama.cpp's order."""
    return [_info(handle) for handle in _handles()]


def gpus() -> list[DeviceInfo]:
    """The devices that layers are offloaded to when nobody names any, in llama.cpp's order: remote ones come first."""
    found = [device for device in devices() if device.is_gpu]
    remote = [device for device in found if device.is_remote]
    local = [device for device in found if device.kind is DeviceKind.GPU and not device.is_remote]
    integrated = [device for device in found if device.kind is DeviceKind.INTEGRATED_GPU]
    return remote + (local or integrated)


def find(names: Sequence[str], flag: str) -> tuple[DeviceInfo, ...]:
    """The devices of these names, in this order, for `flag` of the command line.

    Raises:
        ConfigError: there is no such device.
    """
    known = {device.name.casefold(): device for device in devices()}
    for name in names:
        if name.casefold() not in known:
            here = ", ".join(device.name for device in known.values())
            raise ConfigError(f"{flag}: there is no device {name!r}", f"devices here: {here}")
    return tuple(known[name.casefold()] for name in dict.fromkeys(names))


def handles_of(names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p]:
    """`ggml_backend_dev_t` of these GPUs and a final NULL, as llama.cpp's parameters want them; CPU is no entry."""
    by_name = {_info(handle).name: handle for handle in _handles()}
    handles = [by_name[name] for name in names if name != "CPU"]
    return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)


def add_worker(endpoint: str) -> None:
    """Make the devices of a worker known as RPC0, RPC1 ...

    Args:
        endpoint: host:port of a worker that is known to listen: llama.cpp aborts where its answers make no sense.

    Raises:
        BackendError: no RPC in this build, or no worker there.
    """
    ggml = _rpc_functions()
    library.workers.append(endpoint)
    with library.collect_errors() as errors:
        registry = ggml.ggml_backend_rpc_add_server(os.fsencode(endpoint))
    if not registry:
        reason = f": {' '.join(errors[0].split())}" if errors else ""
        raise BackendError(
            f"no worker answers at {endpoint}{reason}", "start one there with specgen worker, of the same version"
        )
    ggml.ggml_backend_register(registry)


def serve(endpoint: str, names: Sequence[str], n_threads: int) -> None:
    """Serve devices to other machines; returns only when llama.cpp cannot listen.

    llama.cpp prints about connections to file descriptor 1.

    Raises:
        BackendError: no RPC in this build.
    """
    ggml = _rpc_functions()
    by_name = {_info(handle).name: handle for handle in _handles()}
    chosen = [by_name[name] for name in names]
    array = (ctypes.c_void_p * len(chosen))(*chosen)
    ggml.ggml_backend_rpc_start_server(os.fsencode(endpoint), None, n_threads, len(chosen), array)


def _handles() -> list[int]:
    ggml = _functions()
    return [ggml.ggml_backend_dev_get(i) for i in range(ggml.ggml_backend_dev_count())]


def _info(handle: int) -> DeviceInfo:
    ggml = _functions()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return DeviceInfo(
        name=ggml.ggml_backend_dev_name(handle).decode(),
        description=ggml.ggml_backend_dev_description(handle).decode().strip(),
        kind=tuple(DeviceKind)[ggml.ggml_backend_dev_type(handle)],
        free_bytes=free.value,
        total_bytes=total.value,
        backend=ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(handle)).decode(),
    )
