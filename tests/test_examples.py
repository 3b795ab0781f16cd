"""Every example in a file, in the README and in the docs runs as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(command: list[str], folder: Path) -> None:
    """Run a program in a folder, and require that it ends well."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    run([sys.executable, "-W", "error", str(path)], tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_under_thirty_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 30


def blocks(path: Path, language: str) -> list[str]:
    """The fenced code blocks of a page."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    program = "\n".join(blocks(ROOT / "README.md", "python"))
    assert program
    run([sys.executable, "-c", program.replace("steps=2_000", "steps=20")], tmp_path)


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    """Those after `find`, on a ticket of the quick preset instead of the demo's."""
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    commands = [line.split("#")[0].strip() for line in lines if "untrained" in line]
    assert len(commands) >= 5
    for command in commands:
        quick = command.replace(".venv/bin/python", f'"{sys.executable}"')
        quick = quick.replace("--preset demo", "--preset quick")
        run(["bash", "-c", quick], tmp_path)


@pytest.mark.parametrize("page", ["frameworks.md", "adding-a-model.md"])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", "\n".join(blocks(ROOT / "docs" / page, "python"))], tmp_path)


def test_every_row_of_the_frameworks_page_is_a_test() -> None:
    page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/test_*.py"))
    rows = [line for line in page.splitlines() if line.startswith("|") and "---" not in line]
    named = [re.search(r"`(test_\w+)` \|$", row) for row in rows if "| test |" not in row]
    assert len(named) > 30
    for row in named:
        assert row is not None
        assert f"def {row[1]}(" in tests, row[1]
