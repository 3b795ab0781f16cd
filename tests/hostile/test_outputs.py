"""What a run may write over, and what it may delete: its own files, and no others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from test_find import TINY
from untrained.cli import main
from untrained.errors import RunError
from untrained.files import write_atomic
from untrained.find import Settings, find
from untrained.ticket import Ticket


@pytest.fixture(autouse=True)
def _no_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifying is tested elsewhere, and takes seconds."""
    monkeypatch.setattr("untrained.find.verify_in_fresh_process", lambda *_: "")


@pytest.fixture(scope="module")
def short(letters: Path) -> Settings:
    training = replace(TINY.training, steps=4)
    return replace(TINY, data=str(letters), training=training, controls=False)


def command(letters: Path, output: Path, *more: str) -> int:
    usual = ["--data", str(letters), "--model", "1x16x2", "--length", "16", "--no-controls"]
    return main(["find", "--quick", "--steps", "2", "-o", str(output), *usual, *more])


def test_a_file_that_is_no_ticket_is_not_written_over(short: Settings, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(RunError, match=r"thesis.txt exists and is no ticket"):
        find(short, thesis)
    assert thesis.read_text() == "years of work"


def test_a_pipe_or_device_is_not_replaced(short: Settings, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RunError, match="is not an ordinary file, so it is not replaced"):
        find(short, pipe)
    with pytest.raises(RunError, match="is not an ordinary file"):
        write_atomic(pipe, b"")
    assert pipe.is_fifo()


def test_a_link_to_a_ticket_is_followed(short: Settings, tmp_path: Path) -> None:
    find(short, tmp_path / "real.ticket")
    (tmp_path / "link.ticket").symlink_to("real.ticket")
    find(replace(short, seed=1), tmp_path / "link.ticket")
    assert (tmp_path / "link.ticket").is_symlink()
    assert Ticket.load(tmp_path / "real.ticket").seed == 1


def test_fresh_deletes_a_runs_own_files_only(short: Settings, tmp_path: Path) -> None:
    output = tmp_path / "a.ticket"
    find(short, output)
    find(replace(short, seed=1), output, fresh=True)
    chapter = tmp_path / "a.ticket.run" / "chapter.tex"
    chapter.write_text("years of work")
    with pytest.raises(RunError, match=r"chapter.tex was not written by a run, so nothing in"):
        find(short, output, fresh=True)
    assert chapter.read_text() == "years of work"
    assert (chapter.parent / "settings.json").exists()


def test_wrong_settings_delete_nothing(letters: Path, short: Settings, tmp_path: Path) -> None:
    output = tmp_path / "a.ticket"
    find(short, output)
    assert command(letters, output, "--fresh", "--steps", "0") == 1
    assert (tmp_path / "a.ticket.run" / "found.json").exists()


@pytest.mark.parametrize("wrong", [["--tokenizer", "foo"], ["--model", "5x5"], ["--tokens", "-1"]])
def test_a_typo_does_not_claim_the_output(letters: Path, tmp_path: Path, wrong: list[str]) -> None:
    assert command(letters, tmp_path / "x", *wrong) == 1
    assert command(letters, tmp_path / "x") == 0


def test_a_wrong_learning_rate_of_a_control_is_refused_before_the_search(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["find", "--quick", "-o", str(tmp_path / "x"), "--dense-lr", "nan"]) == 1
    assert "dense_lrs=(nan,): learning rates are numbers above 0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_decides_no_training_may_change(short: Settings, tmp_path: Path) -> None:
    output = tmp_path / "a.ticket"
    first = find(short, output)
    again = find(replace(short, prompt="free ", tokens=256), output)
    assert again["sample"].startswith("free ")
    assert again["arms"]["found"]["history"] == first["arms"]["found"]["history"]
    assert again["arms"]["found"]["bits_per_byte"] != first["arms"]["found"]["bits_per_byte"]


def test_a_damaged_result_is_measured_again_or_said(short: Settings, tmp_path: Path) -> None:
    output = tmp_path / "a.ticket"
    first = find(short, output)
    held = tmp_path / "a.ticket.run" / "found.json"
    for damage in ("{}", '{"identity": 3}'):
        held.write_text(damage)
        assert find(short, output)["arms"] == first["arms"]
    for damage in ("[]", "not json"):
        held.write_text(damage)
        with pytest.raises(RunError, match="delete it to measure it again"):
            find(short, output)


@pytest.mark.parametrize("recipe", ["frozen_qk", "dense", "", "all = trained"])
def test_without_a_mask_there_are_no_controls_of_masks(
    short: Settings, tmp_path: Path, recipe: str
) -> None:
    results = find(replace(short, recipe=recipe, controls=True), tmp_path / "a.ticket")
    assert results["arms"].keys() == {"found", "untrained", "dense"}
    assert results["masked"] == 0


@pytest.mark.parametrize(
    "config",
    [
        '{"model_type": "gpt2", "n_layer": "x"}',
        '{"model_type": "gpt2", "n_embd": 15, "n_head": 2}',
        '{"model_type": "gpt2", "activation_function": "nope"}',
    ],
)
def test_a_configuration_that_makes_no_model_is_one_line(
    letters: Path, tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text(config)
    arguments: list[Any] = ["--data", letters, "--model", tmp_path / "c.json"]
    assert main(["find", "--quick", "-o", str(tmp_path / "x"), *map(str, arguments)]) == 1
    assert "makes no GPT-2" in capsys.readouterr().err


def test_a_batch_beyond_memory_is_one_line(
    letters: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(letters, tmp_path / "x", "--batch", "99999999999") == 1
    assert "batch is a whole number" in capsys.readouterr().err
