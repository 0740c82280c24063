from __future__ import annotations

import pytest

from specgen.engine.acceptance import Acceptance
from specgen.engine.knowledge import Knowledge
from specgen.pairs.learned import recall, remember

KEY = {"target": "a.gguf", "threads": "2"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECGEN_CACHE", str(tmp_path))
    return tmp_path


def learned() -> Knowledge:
    knowledge = Knowledge()
    knowledge.cost.add_verify(10, 1, 0.5)
    knowledge.cost.add_step("model", 0.1)
    knowledge.acceptance["model"] = Acceptance()
    knowledge.acceptance["model"].observe([0.9, 0.8], 1)
    return knowledge


def test_what_was_learned_comes_back():
    remember(KEY, learned())
    assert recall(KEY).as_data() == learned().as_data()


def test_another_key_is_another_pair():
    remember(KEY, learned())
    assert recall({**KEY, "threads": "4"}).cost.verify == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 99, "key": {}}', "\x00\xff"])
def test_a_damaged_file_counts_as_none(cache, text):
    remember(KEY, learned())
    (path,) = cache.rglob("*.json")
    path.write_text(text, encoding="latin-1")
    assert recall(KEY).cost.verify == {}


def test_a_cache_that_cannot_be_written_is_no_error(cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setenv("SPECGEN_CACHE", str(cache / "file"))
    remember(KEY, learned())
    assert recall(KEY).cost.verify == {}
