"""What does a person see while a run works, and at its end?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from untrained.train import History, Watch

ARMS: dict[str, str] = {
    "untrained": "the random weights, nothing pruned",
    "random": "a random mask of the same keep",
    "shuffled": "the found mask, shuffled in each tensor",
    "redrawn": "the found mask over other random weights",
    "unigram": "entropy of the text, unigram counts",
    "bigram": "entropy of the text, bigram counts",
    "embeddings": "embeddings trained over a random mask",
    "found": "the ticket",
    "dense": "the same model, trained",
}
"""Every row of the table of results, from what knows least to what knows most."""


class Screen:
    """Where a run says what happens: a terminal, a log, or nowhere."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @classmethod
    def silent(cls) -> Screen:
        return cls(Console(quiet=True))

    def say(self, text: str) -> None:
        """Print text as it is."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def training(self, name: str, steps: int) -> Iterator[Watch]:
        """Show the progress of one arm: a bar on a terminal, ten lines in a log."""
        if not self.console.is_terminal:
            yield _lines(self, name, steps)
            return
        columns = (
            TextColumn("{task.description:10}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self.console) as bars:

            def watch(step: int, history: History) -> None:
                # Not before: a run that was finished earlier takes no step, and shows no bar.
                if not bars.task_ids:
                    bars.add_task(name, total=steps, numbers="")
                bars.update(bars.task_ids[0], completed=step, numbers=_numbers(history))

            yield watch

    def results(self, results: dict[str, Any]) -> None:
        """The table of all arms, how much of the gap is closed, and the sample."""
        self.console.print(_table(results))
        for line in _conclusions(results):
            self.say(line)
        self.say(f"\nsample:\n{results['sample']}")


def _lines(screen: Screen, name: str, steps: int) -> Watch:
    started, first = time.monotonic(), [0]

    def watch(step: int, history: History) -> None:
        if not first[0]:
            first[0] = step
        share = (step - first[0]) / max(steps - first[0], 1)
        left = (time.monotonic() - started) * (1 - share) / share if share else 0.0
        before = (len(history.steps) >= 2 and history.steps[-2]["step"]) or 0
        if step == steps or step * 10 // steps != int(before) * 10 // steps:
            screen.say(f"{name}  step {step}/{steps}  {_numbers(history)}  {left:.0f} s left")

    return watch


def _numbers(history: History) -> str:
    """The last loss, bits per byte and churn."""
    last = history.steps[-1]
    parts = [f"loss {last['loss']:.3f}"]
    if history.validations:
        parts.append(f"valid {history.validations[-1]['bits_per_byte']:.3f} bits/byte")
    if last["churn"]:
        parts.append(f"churn {last['churn']:.2%}")
    return "  ".join(parts)


def how_found(results: dict[str, Any]) -> str:
    """What the ticket's recipe learned, in two words."""
    if not results["masked"]:
        return "trained weights"
    return "masks and trained weights" if results["trained"] else "masks alone"


def _table(results: dict[str, Any]) -> Table:
    rows = results["arms"] | results["baselines"]
    table = Table(title="bits per byte (lower is better)", title_justify="left")
    table.add_column("arm")
    table.add_column("what it is", overflow="fold")
    for column in ("valid", "test", "nats/token"):
        table.add_column(column, justify="right")
    for name, meaning in ARMS.items():
        if name in rows:
            bits, nats = rows[name]["bits_per_byte"], rows[name]["nats_per_token"]
            numbers = (f"{bits['valid']:.3f}", f"{bits['test']:.3f}", f"{nats['test']:.3f}")
            found = name == "found"
            what = f"{how_found(results)}: {meaning}" if found else meaning
            table.add_row(name, what, *numbers, style="bold" if found else None)
    return table


def _conclusions(results: dict[str, Any]) -> Iterator[str]:
    arms = results["arms"]
    for name in ("embeddings", "dense"):
        if name in arms:
            lr, tried = arms[name]["lr"], len(arms[name]["tried"])
            how = f"the best of {tried} on validation" if tried > 1 else "the one tried"
            yield f"{name}: learning rate {lr:g}, {how}"
    if results["gap_closed"] is not None:
        yield (
            f"{how_found(results)} close {results['gap_closed']:.0%} of the gap from bigram "
            "entropy to the dense model (test; one seed is not a claim)"
        )
    if not results["masked"]:
        yield "nothing is masked: the controls that change or fix masks have no meaning here"
    if len(arms) == 1:
        yield "no controls were measured: these numbers alone support no claim"
