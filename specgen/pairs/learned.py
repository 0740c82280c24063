"""What was learned about a pair on this machine, kept between runs.

One small JSON file per machine, llama.cpp build, pair, placement and threads, in the user's cache. Human-readable,
safe to delete at any time, and never trusted: a file that cannot be read counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from specgen.engine.knowledge import Knowledge
from specgen.pairs.derived import cache_dir

_SCHEMA = 3

Key = Mapping[str, str]
"""What the knowledge is about; any difference makes it another pair."""


def machine() -> dict[str, str]:
    """The part of a key that names this machine."""
    return {"machine": platform.node(), "platform": platform.platform(), "cpus": str(os.cpu_count())}


def recall(key: Key) -> Knowledge:
    """What is known under a key; new knowledge where nothing is."""
    try:
        data = json.loads(_path(key).read_text(encoding="utf-8"))
        if data["schema"] == _SCHEMA and data["key"] == dict(key):
            return Knowledge.from_data(data["knowledge"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # missing, damaged, or of another version: learn again
    return Knowledge()


def remember(key: Key, knowledge: Knowledge) -> None:
    """Keep knowledge under a key. A cache that cannot be written is no error: the next run learns again."""
    path = _path(key)
    text = json.dumps({"schema": _SCHEMA, "key": dict(key), "knowledge": knowledge.as_data()}, indent=1)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)


def _path(key: Key) -> Path:
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir() / "learned" / f"{digest}.json"
