"""One loop for every arm: what it learns, and that it can be stopped anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from models import tiny_gpt2
from untrained.apply import Applied, apply
from untrained.errors import ApplyError, RunError
from untrained.search import edge_popup
from untrained.tasks import TextTask, text
from untrained.train import History, Training, train

QUICK: dict[str, Any] = {"batch": 4, "warmup": 2, "log_every": 2, "evaluate_every": 6}


@pytest.fixture(scope="module")
def task(letters: Path) -> TextTask:
    return text(str(letters), length=12)


def searched(recipe: str = "supermask") -> Applied:
    return apply(tiny_gpt2(vocab_size=256), recipe, seed=3)


class Killed(Exception):  # noqa: N818
    pass


def run(task: TextTask, path: Path, recipe: str, *, killed_at: tuple[int, ...]) -> Applied:
    """A run that is killed at some steps and started again by the same command."""
    training = Training(steps=20, checkpoint_seconds=0.0, **QUICK)
    for stop in (*killed_at, None):
        applied = searched(recipe)

        def watch(step: int, _: History, stop: int | None = stop) -> None:
            if step == stop:
                raise Killed

        try:
            train(applied, task, training, checkpoint=path, identity="run", watch=watch)
        except Killed:
            applied.release()
    return applied


RECIPES = ["supermask", "mlp = masked(keep=0.3)", "query = frozen; value = masked(keep=0.5)", ""]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_killed_run_ends_with_the_same_bits(task: TextTask, tmp_path: Path, recipe: str) -> None:
    whole = run(task, tmp_path / "whole", recipe, killed_at=())
    parts = run(task, tmp_path / "parts", recipe, killed_at=(4, 6, 18))
    assert whole.masks == parts.masks
    assert all(torch.equal(t, parts.state_dict()[n]) for n, t in whole.state_dict().items())


def test_the_history_survives_a_kill(task: TextTask, tmp_path: Path) -> None:
    run(task, tmp_path / "run", "supermask", killed_at=(8,))
    applied = searched()
    training = Training(steps=20, checkpoint_seconds=0.0, **QUICK)
    history = train(applied, task, training, checkpoint=tmp_path / "run", identity="run")
    assert [entry["step"] for entry in history.steps] == list(range(2, 21, 2))
    assert [entry["step"] for entry in history.validations] == [6, 12, 18, 20]


def test_a_checkpoint_of_another_run_is_refused(task: TextTask, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(searched(), task, Training(steps=2, **QUICK), checkpoint=path, identity="one")
    with pytest.raises(RunError, match="a run with other settings"):
        train(searched(), task, Training(steps=2, **QUICK), checkpoint=path, identity="two")


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_refused(
    task: TextTask, tmp_path: Path, damage: bytes | None
) -> None:
    path = tmp_path / "run"
    train(searched(), task, Training(steps=2, **QUICK), checkpoint=path)
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    with pytest.raises(RunError, match="not a sound checkpoint.*delete it to start over"):
        train(searched(), task, Training(steps=2, **QUICK), checkpoint=path)


def test_the_rate_warms_up_and_comes_down() -> None:
    training = Training(steps=100, warmup=10)
    rates = [training.rate(step) for step in range(100)]
    assert rates[:2] == [0.1, 0.2]
    assert max(rates) == rates[9] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 1e-3


@pytest.mark.parametrize(
    "settings",
    [{"steps": 0}, {"batch": 0}, {"lr": 0.0}, {"scores_lr": float("nan")}, {"clip": -1.0}],
)
def test_settings_without_meaning_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=next(iter(settings))):
        Training(**settings)


def test_a_run_that_learns_nothing_is_refused(task: TextTask) -> None:
    with pytest.raises(ApplyError, match="nothing is learned"):
        train(searched("all = frozen"), task, Training(steps=1))


def test_edge_popup_needs_a_mask(task: TextTask) -> None:
    with pytest.raises(RunError, match="nothing is masked"):
        edge_popup(searched("mlp = frozen"), task, steps=1)


def test_edge_popup_names_its_settings(task: TextTask) -> None:
    with pytest.raises(RunError, match="unknown: epochs; the settings are steps, batch"):
        edge_popup(searched(), task, epochs=3)


def test_edge_popup_learns_masks_alone(task: TextTask) -> None:
    applied = searched()
    before = applied.masks
    history = edge_popup(applied, task, steps=60, **QUICK | {"log_every": 10})
    assert history.steps[-1]["loss"] < history.steps[0]["loss"] - 0.5
    assert applied.masks.kept == before.kept
    assert 0 < history.steps[0]["churn"] < 1
    applied.check_intact()


def test_the_loop_leaves_no_gradient_behind(task: TextTask) -> None:
    applied = searched("mlp = masked(keep=0.5)")
    train(applied, task, Training(steps=2, **QUICK))
    assert all(parameter.grad is None for parameter in applied.model.parameters())
