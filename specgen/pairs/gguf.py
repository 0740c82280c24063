"""Reads the header of a GGUF file, here or behind a network, and trusts nothing that it says.

Owns the format and its limits. Every count and length is held against what the file can hold before anything is
allocated; arrays of texts stay in the bytes that were read, so a header costs little more than its own size.

Source: ggml/src/gguf.cpp and ggml/include/gguf.h of llama.cpp.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from specgen.errors import ModelLoadError, ModelNotFoundError
from specgen.pairs.sources import HubFile

FIRST_READ_BYTES = 1 << 20
_LARGEST_READ_BYTES = 1 << 24
_MAX_HEADER_BYTES = 3 << 24
"""The largest known header (Gemma 4) takes a third of this; with what is made of it, memory stays below 200 MB."""
_MAX_TEXT_BYTES = 1 << 23
"""Of keys, tensor names and single texts together: the part that is decoded at once."""
_MAX_ENTRIES = 1 << 16
"""Keys, or tensors: more than any model has."""
_MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
_MAX_NAME_BYTES = 64  # GGML_MAX_NAME

_TEXT, _ARRAY = 8, 9
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
"""numpy's name of every GGUF type of fixed size (enum gguf_type)."""

TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}
"""Name, weights per block and bytes per block of every ggml type (enum ggml_type)."""

_TOKENS = "tokenizer.ggml.tokens"


class ByteSource(Protocol):
    """Bytes that can be read in pieces."""

    @property
    def size(self) -> int | None:
        """How many there are, None where that is not known."""

    def read(self, start: int, n: int) -> bytes:
        """`n` bytes from `start` on, fewer at the end."""


class Texts(Sequence[bytes]):
    """An array of texts, cut out of the header's bytes when asked for; 4 bytes of memory per text beside those."""

    __slots__ = ("_data", "_ends", "_start")

    def __init__(self, data: bytearray, start: int, ends: array[int]) -> None:
        self._data, self._start, self._ends = data, start, ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start = self._ends[index - 1] if index else self._start
        return bytes(self._data[start + 8 : self._ends[index]])

    def __iter__(self) -> Iterator[bytes]:
        start = self._start
        for end in self._ends:
            yield bytes(self._data[start + 8 : end])
            start = end


Value = bool | int | float | str | NDArray[Any] | Texts


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix of weights: its name, ggml's name of its type, its shape with the row length first, its size."""

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself.

    Attributes:
        metadata: every key; arrays of texts are `Texts`, of numbers numpy's.
        tensors: of all shards of a split model that was read from a path.
        architecture: llama.cpp's name of it, empty where the file is no model.
        name: what to call it in messages.
    """

    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    architecture: str
    name: str

    def integer(self, key: str, default: int = 0) -> int:
        """A whole number, not negative.

        Raises:
            ModelLoadError: it is something else.
        """
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < min(default, 0):
            raise _damaged(self.name, f"{key} is no whole number")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A text.

        Raises:
            ModelLoadError: it is something else.
        """
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise _damaged(self.name, f"{key} is no text")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no.

        Raises:
            ModelLoadError: it is something else.
        """
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise _damaged(self.name, f"{key} is neither true nor false")
        return value


@dataclass(frozen=True, slots=True)
class Sketch:
    """What stands before the list of tokens: enough to rule most pairs out, read in a millisecond."""

    tokenizer: str
    n_tokens: int


def read_header(source: ByteSource, name: str = "the file") -> Header:
    """The header, by as few and as short reads as it allows: 1 MiB, and as much again until it is whole.

    Args:
        source: the file's bytes.
        name: what to call it in messages.

    Raises:
        ModelLoadError: no GGUF, of another byte order or version, damaged, or cut short.
        SpecgenError: whatever the source raises.
    """
    reader = _Reader(source, name)
    n_tensors, n_keys = reader.begin()
    metadata: dict[str, Value] = {}
    for _ in range(n_keys):
        key = reader.key(metadata)
        metadata[key] = reader.value(key)
    tensors = reader.tensors(n_tensors, metadata.get("general.alignment", 32))
    header = Header(metadata, tensors, "", name)
    return Header(metadata, tensors, header.text("general.architecture"), name)


def read_file_header(path: Path) -> Header:
    """The header of a file on this machine, of a split model with the tensors of all its shards.

    Raises:
        ModelNotFoundError: it is not there, or one of its shards is not.
        ModelLoadError: it cannot be read, is no GGUF, is damaged, or not the first shard.
    """
    shards = HubFile("", path.name).shards
    if path.name != shards[0]:
        raise ModelLoadError(f"{path} is a later part of a split model", f"give its first part, {shards[0]}")
    first, *rest = (_read_file(path.with_name(shard)) for shard in shards)
    tensors = tuple(tensor for header in (first, *rest) for tensor in header.tensors)
    return Header(first.metadata, tensors, first.architecture, first.name)


def read_sketch(path: Path) -> Sketch | None:
    """The kind and size of a file's vocabulary; None where the usual place does not say.

    Raises:
        ModelNotFoundError, ModelLoadError: as `read_file_header`.
    """
    with _FileSource(path) as source:
        reader = _Reader(source, path.name)
        _, n_keys = reader.begin()
        metadata: dict[str, Value] = {}
        for _ in range(n_keys):
            key = reader.key(metadata)
            if key == _TOKENS:
                tokenizer = metadata.get("tokenizer.ggml.model")
                n_tokens = reader.n_texts()
                return Sketch(tokenizer, n_tokens) if isinstance(tokenizer, str) and n_tokens is not None else None
            metadata[key] = reader.value(key)
    return None


def _read_file(path: Path) -> Header:
    with _FileSource(path) as source:
        return read_header(source, path.name)


class _FileSource:
    """A file on this machine as bytes that can be read in pieces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise ModelNotFoundError(f"no such file: {path}", "check the path") from None
        except IsADirectoryError:
            raise ModelLoadError(f"{path} is a directory, not a GGUF file", "give the .gguf file itself") from None
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None
        if not self._file.seekable():
            self._file.close()
            raise ModelLoadError(f"{path} is no regular file", "give a .gguf file")
        self.size: int | None = path.stat().st_size

    def read(self, start: int, n: int) -> bytes:
        try:
            self._file.seek(start)
            return self._file.read(n)
        except OSError as error:
            raise ModelLoadError(f"{self._path} cannot be read: {error.strerror}", "check the disk") from None

    def __enter__(self) -> _FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Reader:
    """A cursor in the bytes of a header, which are fetched as it moves."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self._source, self._name = source, name
        self._data = bytearray()
        self._at = 0
        self._n_text_bytes = 0

    def begin(self) -> tuple[int, int]:
        """Magic bytes and version; gives the numbers of tensors and of keys."""
        self._fetch(4, cut=False)
        magic = bytes(self._data[:4])
        if not magic:
            raise ModelLoadError(
                f"{self._name} is empty", "download it again; a broken download leaves files like this"
            )
        if magic != b"GGUF":
            raise ModelLoadError(
                f"{self._name} is not a GGUF file: it starts with {magic!r}, not b'GGUF'",
                "give a .gguf file; convert other formats with llama.cpp's convert_hf_to_gguf.py",
            )
        self._at = 4
        version = self._number("<u4")
        if version and version & 0xFFFF == 0:
            raise ModelLoadError(
                f"{self._name} is a GGUF file for big-endian machines",
                f"convert a copy of it: gguf-convert-endian {self._name} little",
            )
        if version not in (2, 3):
            raise ModelLoadError(
                f"{self._name} is a GGUF file of version {version}; versions 2 and 3 can be read",
                "download or convert the model anew",
            )
        n_tensors, n_keys = self._number("<u8"), self._number("<u8")
        if max(n_tensors, n_keys) > _MAX_ENTRIES:
            raise self._damage(f"it claims {n_tensors:,} tensors and {n_keys:,} keys")
        return n_tensors, n_keys

    def key(self, known: Mapping[str, Value]) -> str:
        """The next key."""
        key = self._text()
        if not key or key in known:
            raise self._damage("a key is empty" if not key else f"key {_short(key)} stands there twice")
        return key

    def value(self, key: str) -> Value:
        """The value of `key`."""
        kind = self._number("<u4")
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            raise self._damage(f"key {_short(key)} has type {kind}, which does not exist")
        number: bool | int | float = self._number(_NUMBERS[kind])
        return number

    def n_texts(self) -> int | None:
        """The length of an array of texts that begins here, None where something else does."""
        if self._number("<u4") != _ARRAY or self._number("<u4") != _TEXT:
            return None
        return int(self._number("<u8"))

    def tensors(self, n: int, alignment: Value) -> tuple[Tensor, ...]:
        """The table of tensors, checked against the size of the file."""
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._damage("general.alignment is no power of two")
        found: dict[str, Tensor] = {}
        data_end = 0
        for _ in range(n):
            tensor, offset = self._tensor()
            if tensor.name in found:
                raise self._damage(f"tensor {_short(tensor.name)} stands there twice")
            found[tensor.name] = tensor
            data_end = max(data_end, offset + tensor.n_bytes)
        size = self._source.size
        needed = -(-self._at // alignment) * alignment + data_end if n else self._at
        if size is not None and size < needed:
            raise self._cut(f"{size:,} bytes, where its header needs {needed:,}")
        return tuple(found.values())

    def _tensor(self) -> tuple[Tensor, int]:
        name = self._text(_MAX_NAME_BYTES)
        n_dimensions = self._number("<u4")
        if n_dimensions > _MAX_DIMENSIONS:
            raise self._damage(f"tensor {_short(name)} has {n_dimensions:,} dimensions")
        shape = tuple(self._number("<u8") for _ in range(n_dimensions))
        kind = self._number("<u4")
        if kind not in TYPES:
            raise ModelLoadError(
                f"{self._name}: tensor {_short(name)} has type {kind}, which this specgen does not know",
                "update specgen, or use another quantisation of the model",
            )
        type_name, block, block_bytes = TYPES[kind]
        n_weights = 1
        for length in shape:
            n_weights *= length
        if n_weights >= 1 << 63 or (shape[0] if shape else 1) % block:
            raise self._damage(f"tensor {_short(name)} has the impossible shape {shape}")
        return Tensor(name, type_name, shape, n_weights // block * block_bytes), self._number("<u8")

    def _array(self, key: str) -> Value:
        kind, n = self._number("<u4"), self._number("<u8")
        if kind == _TEXT:
            self._require(8 * n)
            return self._texts(n)
        if kind not in _NUMBERS:
            raise self._damage(f"key {_short(key)} is an array of type {kind}, which cannot be")
        dtype = np.dtype(_NUMBERS[kind])
        data = self._take(n * dtype.itemsize)
        return np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype)

    def _texts(self, n: int) -> Texts:
        start, ends = self._at, array("I")
        length_at, add = struct.Struct("<Q").unpack_from, ends.append
        at, n_read = start, len(self._data)
        for _ in range(n):
            if at + 8 > n_read:
                n_read = self._fetch(at + 8)
            at += 8 + length_at(self._data, at)[0]
            if at > n_read:
                n_read = self._fetch(at)
            add(at)
        self._at = at
        return Texts(self._data, start, ends)

    def _text(self, most: int = _MAX_TEXT_BYTES) -> str:
        n = self._number("<u8")
        self._n_text_bytes += n
        if n > most or self._n_text_bytes > _MAX_TEXT_BYTES:
            raise self._damage(f"it claims a text of {n:,} bytes")
        return self._take(n).decode("utf-8", "replace")

    def _number(self, dtype: str) -> Any:
        return np.frombuffer(self._take(np.dtype(dtype).itemsize), dtype)[0].item() if dtype != "?" else self._bool()

    def _bool(self) -> bool:
        return self._take(1) != b"\0"

    def _take(self, n: int) -> bytes:
        self._require(n)
        start, self._at = self._at, self._at + n
        self._fetch(self._at)
        with memoryview(self._data) as data:  # a slice of the bytearray itself would be a second copy
            return bytes(data[start : self._at])

    def _require(self, n: int) -> None:
        """Refuse a length that the rest of the file cannot hold, before anything is read."""
        size = self._source.size
        if size is not None and self._at + n > size:
            raise self._cut(f"{size:,} bytes, where its header goes on")
        if self._at + n > _MAX_HEADER_BYTES:
            raise self._damage(f"its header would take more than {_MAX_HEADER_BYTES >> 20} MiB")

    def _fetch(self, end: int, *, cut: bool = True) -> int:
        """Have the bytes up to `end`; gives how many there are."""
        if end > len(self._data):
            self._require(end - self._at) if cut else None
        while end > len(self._data):
            n = min(max(FIRST_READ_BYTES, len(self._data)), _LARGEST_READ_BYTES, _MAX_HEADER_BYTES - len(self._data))
            piece = self._source.read(len(self._data), n)
            if not piece:
                if not cut:
                    break
                raise self._cut(f"{len(self._data):,} bytes, where its header goes on")
            self._data += piece
        return len(self._data)

    def _cut(self, how: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self._name} is cut short or damaged: it has {how}", "download it again and compare its size or sha256"
        )

    def _damage(self, how: str) -> ModelLoadError:
        return _damaged(self._name, how)


def _damaged(name: str, how: str) -> ModelLoadError:
    return ModelLoadError(f"{name} has a damaged header: {how}", "download it again and compare its size or sha256")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
