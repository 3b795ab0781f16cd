"""Tickets are written whole or not at all, and the same ticket gives the same bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tickets import saved, search
from untrained.errors import TicketError
from untrained.ticket import Ticket


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own, since the root user may write anywhere else."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_same_ticket_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (saved(tmp_path / name) for name in ("a", "b"))
    assert one == two
    Ticket.load(tmp_path / "a").save(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == one


def test_names_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    path = tmp_path / "a b é 票.ticket"
    saved(path)
    assert Ticket.load(str(path)).verify()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_saving_over_an_older_ticket_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "x.ticket"
    saved(path, seed=0)
    saved(path, seed=1)
    assert Ticket.load(path).seed == 1


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_ticket(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.ticket"
    old = saved(path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(TicketError, match=r"x\.ticket: Input/output error.*unchanged"):
            Ticket.of(search(seed=1)).save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_save_leaves_the_old_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.ticket"
    old = saved(path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Ticket.of(search(seed=1)).save(path)
    assert path.read_bytes() == old


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=16k") as folder:
        old = saved(folder / "x.ticket")
        with pytest.raises(TicketError, match=r"No space left on device.*unchanged"):
            Ticket.of(search("all = trained")).save(folder / "x.ticket")
        assert [p.name for p in folder.iterdir()] == ["x.ticket"]
        assert (folder / "x.ticket").read_bytes() == old


def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "still", "ro") as folder,
        pytest.raises(TicketError, match="Read-only file system"),
    ):
        saved(folder / "x.ticket")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TicketError, match="No such file or directory"):
        saved(tmp_path / "none" / "x.ticket")


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.ticket"
    for metadata in ({"list": [1]}, {"number": float("inf")}, {"half": "\ud800"}):
        ticket = Ticket.of(search(), metadata=metadata)  # type: ignore[arg-type]
        with pytest.raises(TicketError):
            ticket.save(path)
    assert not list(tmp_path.iterdir())


# --- the probe ------------------------------------------------------------------------------------


def test_other_logits_are_told_with_their_difference(tmp_path: Path) -> None:
    applied, probe = search(), tmp_path / "probe"
    ticket = Ticket.of(applied)
    ticket.write_probe(search(seed=1).model, probe)
    with pytest.raises(TicketError, match=r"logits differ by up to .* same build of torch"):
        ticket.verify(logits=probe)


def test_writing_a_probe_leaves_the_model_in_its_mode(tmp_path: Path) -> None:
    model = search().model.train()
    model.transformer.drop.eval()
    Ticket.write_probe(model, tmp_path / "probe")
    assert model.training
    assert not model.transformer.drop.training


@pytest.mark.parametrize("shape", [(1, 4), (1, 99)])
def test_inputs_that_the_model_does_not_take_are_an_error(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    ids = torch.full(shape, 99)
    with pytest.raises(TicketError, match="does not take inputs"):
        Ticket.write_probe(search().model, tmp_path / "probe", input_ids=ids)


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"\xff" * 8 + b"{}"])
def test_a_damaged_probe_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "probe").write_bytes(data)
    with pytest.raises(TicketError, match="is no probe"):
        Ticket.of(search()).verify(logits=tmp_path / "probe")


def test_a_missing_probe_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TicketError, match=r"cannot read .*none"):
        Ticket.of(search()).verify(logits=tmp_path / "none")
