"""What several tests start from."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = ("the", "union", "of", "these", "states", "is", "strong", "and", "its", "people", "free")


def prose(document: int, words: int = 120) -> str:
    """Made-up English of a few words, different for every document."""
    return " ".join(WORDS[(i * i + document * 7 + i // 3) % len(WORDS)] for i in range(words))


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of forty short text files, in a path with a space."""
    folder = tmp_path_factory.mktemp("some letters")
    for document in range(40):
        (folder / f"{document:03}.txt").write_text(prose(document) + ".\n", encoding="utf-8")
    return folder
