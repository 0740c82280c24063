"""A fake Hub, and specgen's view of the world bent towards it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from specgen.pairs.patience import Patience
from tests.cli.command import Specgen
from tests.fake_hub import FakeHub

QUICK = Patience(n_attempts=3, first_wait_s=0.01, longest_wait_s=0.02, timeout_s=0.4)
REPO = "owner/model-GGUF"
FILE = "model-Q4_K_M.gguf"
DATA = random.Random(0).randbytes(1_200_000)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def home(tmp_path, monkeypatch, hub) -> Path:
    """An empty home folder with the Hub's cache in it, for code of this process."""
    for name in ("HF_TOKEN", "LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECGEN_CACHE", str(tmp_path / "specgen"))
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path


@pytest.fixture
def specgen(tmp_path, hub) -> Specgen:
    """The command, in an empty home folder, with the fake Hub for the real one."""
    command = Specgen(tmp_path)
    for name in ("HF_TOKEN", "LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        command._environment.pop(name, None)
    command._environment |= {
        "HOME": str(tmp_path),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": hub.endpoint,
        "NO_PROXY": "*",
    }
    return command
