"""What a person sees: a bar on a terminal, lines in a log, nothing where nobody looks."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from untrained.progress import Screen
from untrained.train import History


def shown(*, terminal: bool, steps: range) -> str:
    """What one arm prints, a step's entry at a time."""
    file = io.StringIO()
    screen = Screen(Console(file=file, force_terminal=terminal, width=80))
    history = History()
    with screen.training("found", 100) as watch:
        for step in steps:
            history.steps.append({"step": step, "loss": 2.5, "churn": 0.01, "seconds": 1.0})
            watch(step, history)
    return file.getvalue()


def test_a_terminal_shows_loss_and_churn_in_one_line() -> None:
    text = shown(terminal=True, steps=range(1, 101))
    assert "100/100 loss 2.500" in text
    assert "churn 1.00%" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_that_takes_no_step_shows_no_bar(terminal: bool) -> None:
    assert "found" not in shown(terminal=terminal, steps=range(0))


def test_a_log_gets_about_ten_lines() -> None:
    lines = shown(terminal=False, steps=range(1, 101)).splitlines()
    assert 9 <= len(lines) <= 11
    assert lines[-1].startswith("found  step 100/100  loss 2.500")


def test_a_silent_screen_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Screen.silent().say("hello")
    assert capsys.readouterr() == ("", "")
