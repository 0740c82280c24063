"""Imports run downward, and each foreign library has one home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "specgen"
LAYERS = ["choices", "types", "errors", "engine", "drafting", "llama", "pairs", "session", "bench", "cli"]
"""From the bottom up; a module may import its own layer and those before it."""
APART = {"llama": {"drafting"}, "drafting": {"llama"}}
HOMES = {
    "llama_cpp": {"llama"},
    "huggingface_hub": {"pairs"},
    "typer": {"cli"},
    "rich": {"cli"},
    "platformdirs": {"pairs"},
    "jsonschema": set(),  # for tests: a schema is checked there, not where a report is read
}
MEASURING = {"compare.py"}
"""Modules of bench that load models; saved reports must be readable where llama.cpp is not."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downward(path):
    own = layer(path)
    if own.startswith("__"):
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "specgen" and len(parts) > 1:
            assert LAYERS.index(parts[1]) <= LAYERS.index(own), f"{own} imports {name}"
            assert parts[1] not in APART.get(own, ()), f"{own} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_foreign_library_has_one_home(path):
    for name in imports(path):
        home = HOMES.get(name.split(".")[0])
        assert home is None or layer(path) in home, f"{layer(path)} imports {name}"


def test_only_the_output_module_writes_to_a_stream():
    for path in modules():
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert "print" not in calls, path


def test_saved_reports_are_read_without_models():
    for path in (PACKAGE / "bench").glob("*.py"):
        above = {name.split(".")[1] for name in imports(path) if name.startswith("specgen.")}
        assert path.name in MEASURING or not above & {"llama", "session", "pairs", "drafting"}, path
