"""Fixtures that several folders need."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tiny_gguf

os.environ.setdefault("GOMP_SPINCOUNT", "0")
"""OpenMP's threads sleep instead of spinning: a machine that does something else too would be many times slower."""

DRAFT_NOISE = 0.05
"""A draft with so much noise agrees with its target two times in three."""
QUIET, QUIETER = 0.4, 0.1
"""A draft of another architecture agrees with its target now and then when both are little more than embeddings."""


@dataclass(frozen=True)
class TinyModels:
    """Paths of model files; a `_draft` resembles its target, `lfm2_draft` is of architecture llama."""

    llama: Path
    llama_draft: Path
    gemma3: Path
    gemma3_draft: Path
    mamba: Path
    jamba: Path
    lfm2: Path
    lfm2_draft: Path
    bert: Path
    t5_encoder: Path
    no_tokenizer: Path


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory) -> TinyModels:
    """One tiny model of each kind; llama carries the ChatML template, gemma3 none."""
    folder = tmp_path_factory.mktemp("models")
    chat = {"chat_template": tiny_gguf.CHATML}
    return TinyModels(
        llama=tiny_gguf.write_llama(folder / "llama.gguf", **chat),
        llama_draft=tiny_gguf.write_llama(folder / "llama-draft.gguf", noise=DRAFT_NOISE, **chat),
        gemma3=tiny_gguf.write_gemma3(folder / "gemma3.gguf"),
        gemma3_draft=tiny_gguf.write_gemma3(folder / "gemma3-draft.gguf", noise=DRAFT_NOISE),
        mamba=tiny_gguf.write_mamba(folder / "mamba.gguf"),
        jamba=tiny_gguf.write_jamba(folder / "jamba.gguf"),
        lfm2=tiny_gguf.write_lfm2(folder / "lfm2.gguf", loudness=QUIET),
        lfm2_draft=tiny_gguf.write_llama(folder / "lfm2-draft.gguf", loudness=QUIETER),
        bert=tiny_gguf.write_bert(folder / "bert.gguf"),
        t5_encoder=tiny_gguf.write_t5_encoder(folder / "t5-encoder.gguf"),
        no_tokenizer=tiny_gguf.write_llama(folder / "no-tokenizer.gguf", tokenizer=tiny_gguf.NO_TOKENIZER),
    )
