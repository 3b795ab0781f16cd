"""Imports point downwards only, as docs/architecture.md says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "untrained"

LAYERS = [
    {"errors"},
    {"files", "laws", "random", "select", "masks"},
    {"states", "components", "tasks"},
    {"layouts"},
    {"recipe"},
    {"construct", "source", "engine"},
    {"optimizer"},
    {"report", "liveness", "apply"},
    {"ticket"},
    {"models", "generate", "export", "checkpoint", "ranks", "train", "trainer", "search"},
    {"progress", "folder", "find"},
    {"presets", "plots"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """The modules of this package that a file imports, by their first name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("untrained"):
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found & LEVEL.keys()


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_point_downwards(path: Path) -> None:
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if name == "data":
        return
    above = {other for other in imports_of(path) if LEVEL[other] > LEVEL[name]}
    assert not above, f"{name} imports from above: {above}"


def test_every_module_has_a_place() -> None:
    present = {p.name.removesuffix(".py") for p in SOURCE.iterdir() if not p.name.startswith("__p")}
    assert present - {"data", "py.typed"} == LEVEL.keys()


@pytest.mark.parametrize("library", ["transformers"])
def test_the_core_does_not_know_hugging_face(library: str) -> None:
    free = {"errors", "files", "laws", "random", "select", "masks", "states", "components"}
    free |= {"recipe", "source", "engine", "optimizer", "apply", "liveness", "report"}
    for name in free:
        text = (SOURCE / f"{name}.py").read_text(encoding="utf-8")
        assert f"from {library}" not in text, name
        assert f"import {library}" not in text, name
