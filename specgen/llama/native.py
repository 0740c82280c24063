"""A `llama_sampler`, owned: applied to numpy arrays, freed with the last reference."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from specgen.llama import library
from specgen.types import FloatArray, IntArray

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


class NativeSampler:
    """One of llama.cpp's samplers, or a chain of them.

    Args:
        handle: `llama_sampler *`, owned from now on.
    """

    def __init__(self, handle: Any) -> None:
        self._lib = library.load()
        self._handle = handle

    @property
    def handle(self) -> Any:
        """`llama_sampler *`, for as long as this object lives."""
        return self._handle

    def apply(self, ids: IntArray, logits: FloatArray) -> tuple[IntArray, FloatArray]:
        """What the sampler makes of some candidates.

        Args:
            ids: (n,) int32.
            logits: (n,) float32, theirs; left alone.

        Returns:
            Ids and logits of the candidates that are left, in llama.cpp's order; new arrays.
        """
        candidates = np.zeros(ids.size, dtype=_CANDIDATE)
        candidates["id"] = ids
        candidates["logit"] = logits
        array = self._lib.llama_token_data_array(
            data=candidates.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data)),
            size=candidates.size,
            selected=-1,
            sorted=False,
        )
        self._lib.llama_sampler_apply(self._handle, ctypes.byref(array))
        # A sampler may have moved them: past the first ones, or to memory of its own.
        address = ctypes.cast(array.data, ctypes.c_void_p).value or 0
        buffer = (ctypes.c_byte * (array.size * _CANDIDATE.itemsize)).from_address(address)
        kept = np.frombuffer(buffer, dtype=_CANDIDATE)
        return kept["id"].copy(), kept["logit"].copy()

    def accept(self, token: int) -> None:
        """`token` was generated."""
        self._lib.llama_sampler_accept(self._handle, token)

    def reset(self) -> None:
        """As before the first token."""
        self._lib.llama_sampler_reset(self._handle)

    def clone(self) -> NativeSampler:
        """A copy with a state of its own."""
        return NativeSampler(self._lib.llama_sampler_clone(self._handle))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            self._lib.llama_sampler_free(handle)


def chain_of(handles: list[Any]) -> NativeSampler | None:
    """Samplers one after the other; None without any."""
    if not handles:
        return None
    lib = library.load()
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for handle in handles:
        lib.llama_sampler_chain_add(chain, handle)
    return NativeSampler(chain)
