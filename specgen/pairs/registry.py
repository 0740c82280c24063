"""`models.toml`: the pairs that specgen knows by name."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgen.errors import ConfigError
from specgen.pairs.sources import PackagedModel

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft, by name."""

    id: str
    description: str
    license: str
    target: PackagedModel
    draft: PackagedModel


def load_registry(path: Path | None = None) -> dict[str, Pair]:
    """The pairs of `path`, or of the file that specgen ships, by id.

    Raises:
        ConfigError: the file is not valid; names it and the key.
    """
    path = path or _shipped_file()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}", "correct the line that it names") from error
    if table.get("schema") != SCHEMA:
        raise ConfigError(f"{path}: schema is {table.get('schema')!r}, this specgen reads {SCHEMA}", "update specgen")
    pairs = [_pair(path, entry) for entry in table.get("pair", [])]
    return {pair.id: pair for pair in pairs}


def find_pair(name: str, registry: dict[str, Pair]) -> Pair:
    """The pair called `name`.

    Raises:
        ConfigError: there is none; suggests names that look like it.
    """
    if name in registry:
        return registry[name]
    close = difflib.get_close_matches(name, registry, n=3, cutoff=0.5)
    known = ", ".join(registry)
    meant = f"did you mean {' or '.join(close)}?" if close else f"known pairs: {known}"
    raise ConfigError(f"no pair is called {name!r}", f"{meant} (a model file goes after --target; quote a prompt)")


def _shipped_file() -> Path:
    """In a wheel beside this package's modules; in a checkout at its top."""
    package = Path(__file__).parent.parent
    installed = package / "models.toml"
    return installed if installed.exists() else package.parent / "models.toml"


def _pair(path: Path, entry: dict[str, Any]) -> Pair:
    name = entry.get("id", "a pair without id")

    def model(role: str) -> PackagedModel:
        fields = _table(path, name, entry, role)
        return PackagedModel(**_strings(path, f"{name}.{role}", fields, tuple(PackagedModel.__dataclass_fields__)))

    texts = {key: value for key, value in entry.items() if key not in ("target", "draft")}
    return Pair(
        **_strings(path, name, texts, ("id", "description", "license")), target=model("target"), draft=model("draft")
    )


def _table(path: Path, name: str, entry: dict[str, Any], role: str) -> dict[str, Any]:
    fields = entry.get(role)
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: {name} has no [pair.{role}] table", "add it; README.md shows an entry")
    return fields


def _strings(path: Path, where: str, fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """Exactly the keys `names`, all of them texts."""
    for key in fields:
        if key not in names:
            raise ConfigError(f"{path}: {where}: unknown key {key!r}", f"allowed keys: {', '.join(names)}")
    for key in names:
        if not isinstance(fields.get(key), str):
            raise ConfigError(f"{path}: {where}: {key} must be a text", f"needed keys: {', '.join(names)}")
    return fields
