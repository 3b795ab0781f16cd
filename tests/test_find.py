"""The main job, small: what it writes, and that a kill at any moment loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from untrained.errors import RunError
from untrained.find import Settings, find
from untrained.plots import plot_find
from untrained.ticket import Ticket
from untrained.train import Training

TINY = Settings(
    model="1x16x2",
    length=16,
    training=Training(
        steps=30, batch=4, warmup=3, evaluate_every=10, evaluate_tokens=256, checkpoint_seconds=0.0
    ),
    tokens=512,
    prompt="the union ",
)


@pytest.fixture(scope="module")
def settings(letters: Path) -> Settings:
    return replace(TINY, data=str(letters))


@pytest.fixture(scope="module")
def done(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    output = tmp_path_factory.mktemp("a run") / "tiny.ticket"
    return output, find(settings, output)


def test_every_control_is_measured_on_both_held_out_splits(
    done: tuple[Path, dict[str, Any]],
) -> None:
    _, results = done
    names = {"found", "untrained", "random", "shuffled", "redrawn", "embeddings", "dense"}
    assert results["arms"].keys() == names
    assert results["baselines"].keys() == {"unigram", "bigram"}
    for row in (results["arms"] | results["baselines"]).values():
        assert row["bits_per_byte"].keys() == {"valid", "test"}


def test_the_results_are_in_the_folder_too(done: tuple[Path, dict[str, Any]]) -> None:
    output, results = done
    folder = output.with_name(output.name + ".run")
    held = json.loads((folder / "results.json").read_text())
    assert held["arms"]["found"]["bits_per_byte"] == results["arms"]["found"]["bits_per_byte"]
    assert held["versions"]["torch"]


def test_the_ticket_is_the_found_model(done: tuple[Path, dict[str, Any]]) -> None:
    output, results = done
    ticket = Ticket.load(output)
    ticket.verify(logits=output.with_name(output.name + ".run") / "probe.safetensors")
    assert str(ticket.recipe) == results["settings"]["recipe"]


def test_the_sample_goes_on_from_the_prompt(done: tuple[Path, dict[str, Any]]) -> None:
    assert done[1]["sample"].startswith("the union ")


def test_the_curves_are_drawn(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    plot_find(done[1], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_command_again_measures_nothing_anew(
    done: tuple[Path, dict[str, Any]], settings: Settings
) -> None:
    output, results = done
    before = output.read_bytes()
    again = find(settings, output)
    assert again["arms"] == results["arms"]
    assert output.read_bytes() == before


def test_other_settings_on_the_same_output_are_refused(
    done: tuple[Path, dict[str, Any]], settings: Settings
) -> None:
    with pytest.raises(RunError, match=r"a run of other settings \(seed: 0 there\).*--fresh"):
        find(replace(settings, seed=1), done[0])


def test_a_result_that_was_damaged_is_noticed(settings: Settings, tmp_path: Path) -> None:
    quick = replace(settings, controls=False)
    find(quick, tmp_path / "t")
    (tmp_path / "t.run" / "found.json").write_text("{")
    with pytest.raises(RunError, match=r"found.json is damaged.*delete it"):
        find(quick, tmp_path / "t")


def test_a_run_without_controls_says_so(settings: Settings, tmp_path: Path) -> None:
    results = find(replace(settings, controls=False), tmp_path / "t")
    assert results["arms"].keys() == {"found"}
    assert results["gap_closed"] is None


def test_the_best_of_several_rates_counts(settings: Settings, tmp_path: Path) -> None:
    results = find(replace(settings, dense_lrs=(1e-5, 1e-2)), tmp_path / "t")
    dense = results["arms"]["dense"]
    assert dense["tried"].keys() == {"1e-05", "0.01"}
    assert dense["bits_per_byte"]["valid"] == min(dense["tried"].values())


def test_two_processes_on_one_output_are_refused(settings: Settings, tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "t.run").mkdir()
    with (tmp_path / "t.run" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is writing"):
            find(settings, tmp_path / "t")


def test_a_run_killed_at_random_moments_ends_with_the_same_mask(
    done: tuple[Path, dict[str, Any]], letters: Path, tmp_path: Path
) -> None:
    """kill -9, three times, then the same command once more: the same ticket, bit for bit."""
    output = tmp_path / "tiny.ticket"
    program = (
        "import sys; from dataclasses import replace; from pathlib import Path;"
        "from test_find import TINY; from untrained.find import find;"
        "find(replace(TINY, data=sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(letters), str(output)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    moments = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        wait_for(tmp_path / "tiny.ticket.run" / "settings.json", process)
        time.sleep(moments.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, check=True)
    assert output.read_bytes() == done[0].read_bytes()
    results = json.loads((tmp_path / "tiny.ticket.run" / "results.json").read_text())
    for name, arm in results["arms"].items():
        assert arm["bits_per_byte"] == done[1]["arms"][name]["bits_per_byte"], name


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the run has begun, or ended."""
    for _ in range(600):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.05)
