"""The models of the measurements, made on demand in specgen's cache.

All come from the one packaged file of the demo pair, or from random numbers: nothing is downloaded.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from specgen.llama.quantize import quantize
from specgen.pairs.derived import cache_dir, prepare
from specgen.pairs.registry import find_pair, load_registry
from tests.tiny_gguf import write_llama


def derived(quant: str) -> Path:
    """The demo pair's model at another precision."""
    return prepare(replace(find_pair("demo", load_registry()).target, quant=quant), lambda *_: None)


def shuffled(quant: str) -> Path:
    """The same with the rows of every matrix in its layers shuffled: same vocabulary and cost, worthless guesses."""
    source = derived(quant)
    path = source.with_name(f"{source.stem}-shuffled.gguf")
    if not path.exists():
        part = path.with_suffix(".part")
        shutil.copyfile(source, part)
        rng = np.random.default_rng(0)
        for tensor in GGUFReader(part, "r+").tensors:
            if tensor.name.startswith("blk.") and tensor.data.ndim > 1:
                tensor.data[:] = rng.permutation(tensor.data)
        part.replace(path)
    return path


def with_vocabulary(n_vocab: int) -> Path:
    """A random model of SmolLM2's size behind a vocabulary of `n_vocab` tokens, at 32 bits."""
    path = cache_dir() / "derived" / f"random-{n_vocab}-F32.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        write_llama(part, n_vocab=n_vocab, n_layer=30, n_embd=576, n_ctx_train=4096)
        part.replace(path)
    return path


def requantized(source: Path, quant: str) -> Path:
    """A file of `derived` or `with_vocabulary` at another precision."""
    path = source.with_name(source.name.replace("F32", quant))
    if not path.exists():
        quantize(source, path, quant)
    return path
