"""The command line: every verb, its help, and what a user's mistake looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from untrained.cli import main
from untrained.find import find
from untrained.presets import PRESETS

VERBS = ["find", "show", "verify", "generate", "export"]


@pytest.fixture(scope="module")
def ticket(letters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dataclasses import replace

    from test_find import TINY

    path = tmp_path_factory.mktemp("tickets") / "my ticket"
    find(replace(TINY, data=str(letters), controls=False), path)
    return path


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(*([verb] if verb else []), "--help")
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert f"examples:\n  untrained {verb}" in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_show_says_bytes_by_part(ticket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", ticket) == 0
    printed = capsys.readouterr().out
    for word in ("masks", "trained", "tokenizer", "bits per weight", "fp32", "bf16"):
        assert word in printed


def test_verify_compares_checksums_and_logits(
    ticket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = ticket.with_name(ticket.name + ".run") / "probe.safetensors"
    assert run("verify", ticket) == 0
    assert run("verify", ticket, "--logits", probe) == 0
    assert "logits" in capsys.readouterr().out


def test_generate_gives_the_same_text_for_the_same_seed(
    ticket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for seed in (1, 1, 2):
        assert run("generate", ticket, "-p", "the ", "--tokens", "40", "--seed", str(seed)) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the ")


def test_export_gives_a_folder_that_hugging_face_loads_to_the_same_logits(
    ticket: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from untrained.ticket import Ticket

    folder = tmp_path / "plain gpt2"
    assert run("export", ticket, folder) == 0
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)("the union", return_tensors="pt")["input_ids"]
    assert tokens.tolist() == [list(b"the union")]
    with torch.inference_mode():
        expected = Ticket.load(ticket).model()(input_ids=tokens).logits
        assert torch.equal(plain(input_ids=tokens).logits, expected)


def test_export_does_not_write_over_anything(
    ticket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    assert run("export", ticket, tmp_path) == 1
    assert "not an empty folder" in capsys.readouterr().err


MISTAKES = {
    "no such ticket": ["show", "nowhere.ticket"],
    "a folder as a ticket": ["verify", "."],
    "an unknown recipe": ["find", "-o", "x/t", "--recipe", "query = asleep"],
    "a recipe that masks nothing there": ["find", "-o", "x/t", "--recipe", "cross = frozen"],
    "an unknown model": ["find", "-o", "x/t", "--model", "gpt9"],
    "no such text": ["find", "-o", "x/t", "--data", "nowhere.txt"],
    "an unknown tokenizer": ["find", "-o", "x/t", "--tokenizer", "words"],
    "no steps": ["find", "-o", "x/t", "--steps", "0"],
    "a negative seed": ["find", "-o", "x/t", "--seed", "-1"],
    "a length below 1": ["find", "-o", "x/t", "--length", "0"],
    "a learning rate that is no number": ["find", "-o", "x/t", "--scores-lr", "nan"],
    "an output that is a folder": ["find", "--quick", "-o", "."],
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_line_and_exit_code_1(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("untrained: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["find"],
        ["find", "-o", "t", "--step", "3"],
        ["find", "-o", "t", "--dense-lr", "a,b"],
        ["find", "-o", "t", "--no-controls", "--dense-lr", "1e-3"],
        ["generate", "t", "--tokens", "many"],
    ],
)
def test_wrong_arguments_are_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "--help" in capsys.readouterr().err


def test_presets_are_named_on_the_command_line() -> None:
    from untrained.cli import PRESET_NAMES

    assert tuple(PRESETS) == PRESET_NAMES


def test_a_reader_that_has_gone_is_no_traceback(ticket: Path) -> None:
    command = f'"{sys.executable}" -m untrained show "{ticket}" | true'
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, check=False
    )
    assert "Traceback" not in done.stderr
