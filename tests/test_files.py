"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from untrained.errors import RunError, TicketError
from untrained.files import make_folder, write_atomic


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a b.bin"
    for data in (b"one", b"two"):
        write_atomic(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error_of_the_callers_kind(tmp_path: Path) -> None:
    with pytest.raises(TicketError, match=r"cannot write .*No such file"):
        write_atomic(tmp_path / "none" / "x", b"", error=TicketError)


def test_a_folder_in_the_way_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(RunError, match="is not an ordinary file, so it is not replaced"):
        write_atomic(tmp_path / "x", b"data")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(RunError, match="cannot make the folder"):
        make_folder(tmp_path / "x" / "y")
