"""How is what is learned learned?

One loop for every arm of an experiment: a search, a control, a dense model. All of its choices
are in `Training`; its batches and learning rates are functions of the seed and the step, so a run
that was killed and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F

from untrained.apply import Applied
from untrained.checkpoint import load_checkpoint, save_checkpoint
from untrained.errors import RunError
from untrained.ranks import require_same_search
from untrained.tasks import TextTask


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of one run."""

    steps: int = 600
    """Optimiser steps."""

    batch: int = 32
    """Sequences per step."""

    lr: float = 4e-3
    """Peak learning rate of trained tensors."""

    scores_lr: float = 1e-2
    """Peak learning rate of scores."""

    warmup: int = 50
    """Steps of linear warm-up, before a cosine down to 0."""

    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of AdamW's two moments."""

    weight_decay: float = 0.0
    """AdamW's decay of trained tensors; scores have none."""

    clip: float = 1.0
    """Largest norm of the gradient of the model's parameters, effective weights included."""

    seed: int = 0
    """The seed of the batches."""

    log_every: int = 10
    """Steps between two entries of the history."""

    evaluate_every: int = 200
    """Steps between two validations."""

    evaluate_tokens: int = 32_768
    """Tokens of the validation split that these use, evenly spaced over it."""

    checkpoint_seconds: float = 15.0
    """Seconds between two checkpoints, where a path for them is given."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "warmup", "log_every", "evaluate_every", "evaluate_tokens"):
            low = 0 if name == "warmup" else 1
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value < 2**31:
                raise RunError(f"{name}={value!r}: {name} is a whole number, at least {low}")
        for name in ("lr", "scores_lr", "clip"):
            value = getattr(self, name)
            if not _is_number(value) or value <= 0:
                raise RunError(f"{name}={value!r}: {name} is a number above 0")
        for name in ("weight_decay", "checkpoint_seconds"):
            value = getattr(self, name)
            if not _is_number(value) or value < 0:
                raise RunError(f"{name}={value!r}: {name} is a number, at least 0")
        if len(self.betas) != 2 or not all(_is_number(b) and 0 <= b < 1 for b in self.betas):
            raise RunError(f"betas={self.betas!r}: betas are two numbers in [0, 1)")

    def rate(self, step: int) -> float:
        """The learning rate at a step (from 0), as a share of its peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        span = max(self.steps - self.warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * (step - self.warmup) / span))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass
class History:
    """What happened: entries of {step, loss, churn, seconds} and {step, bits_per_byte}."""

    steps: list[dict[str, float]] = field(default_factory=list)
    """`loss` in nats per token; `churn` is the share of kept weights replaced since the last
    entry; `seconds` is wall time since the start, over all resumptions."""

    validations: list[dict[str, float]] = field(default_factory=list)
    """`bits_per_byte` on the validation split."""


Watch = Callable[[int, History], None]
"""Called after each entry of the history, with the number of steps done."""


def train(
    applied: Applied,
    task: TextTask,
    training: Training,
    *,
    checkpoint: str | Path | None = None,
    identity: str = "",
    watch: Watch | None = None,
) -> History:
    """Train all that an applied model learns; over several processes if launched so.

    Args:
        applied: a model under a recipe.
        task: where batches and validations come from.
        training: the settings.
        checkpoint: a file to resume from and to write to.
        identity: what run this is; a checkpoint of another identity is refused.
        watch: called after each entry of the history.

    Raises:
        RunError: a loss that is not finite, or a checkpoint that does not fit.
        ApplyError: nothing is learned, or somebody else wrote to the weights.
    """
    _check_vocabulary(applied, task)
    path = None if checkpoint is None else Path(checkpoint)
    loop = _Loop(applied, task, training, path, identity)
    loop.resume()
    while loop.step < training.steps:
        loop.advance()
        if watch is not None and loop.logged():
            watch(loop.step, loop.history)
    return loop.history


def _check_vocabulary(applied: Applied, task: TextTask) -> None:
    """Every token needs a row of the embedding."""
    rows = getattr(getattr(applied.model, "config", None), "vocab_size", None)
    if rows is not None and rows < task.tokenizer.vocab_size:
        raise RunError(
            f"the model knows {rows} tokens and the text has {task.tokenizer.vocab_size}; make the "
            "model with vocab_size=task.tokenizer.vocab_size"
        )


class _Loop:
    """The state of a run between two steps."""

    def __init__(
        self,
        applied: Applied,
        task: TextTask,
        training: Training,
        checkpoint: Path | None,
        identity: str,
    ) -> None:
        self.applied, self.task, self.training = applied, task, training
        self.checkpoint, self.identity = checkpoint, identity
        self.optimizer = applied.optimizer(
            torch.optim.AdamW,
            lr=training.lr,
            scores_lr=training.scores_lr,
            betas=training.betas,
            weight_decay=training.weight_decay,
            fused=True,
        )
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare_model(applied.model)
        require_same_search(applied)
        if training.batch % self.accelerator.num_processes:
            raise RunError(
                f"batch={training.batch} does not divide over {self.accelerator.num_processes} "
                "processes"
            )
        self.history = History()
        self.step = 0
        self.earlier = 0.0
        self.started = self.saved = time.monotonic()
        self.losses: list[Tensor] = []
        self.masks = self._masks()

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if self.checkpoint is None:
            return
        progress = load_checkpoint(
            self.checkpoint, self.applied, self.optimizer, identity=self.identity
        )
        if progress is not None:
            self.step = progress["step"]
            self.earlier = progress["seconds"]
            self.history = History(**progress["history"])
            self.masks = self._masks()

    def advance(self) -> None:
        """One optimiser step, and what is due after it."""
        training = self.training
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * training.rate(self.step)
        inputs, targets = map(
            self._share, self.task.batch(self.step, size=training.batch, seed=training.seed)
        )
        self.model.train()
        logits = self.model(input_ids=inputs).logits  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.model.parameters(), training.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())
        self.step += 1
        self._log()
        self._validate()
        self._save()

    def _share(self, whole: Tensor) -> Tensor:
        """This process's sequences of a batch."""
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        share: Tensor = whole.chunk(world)[rank].to(self.accelerator.device)
        return share

    def logged(self) -> bool:
        """Whether the last step made an entry in the history."""
        return self.step % self.training.log_every == 0 or self.step == self.training.steps

    def _log(self) -> None:
        if not self.logged():
            return
        mean = torch.stack(self.losses).mean()
        loss = float(self.accelerator.reduce(mean, reduction="mean"))
        if not math.isfinite(loss):
            raise RunError(
                f"the loss is {loss} at step {self.step}; lower lr ({self.training.lr:g}) "
                f"or scores_lr ({self.training.scores_lr:g})"
            )
        self.losses.clear()
        before, self.masks = self.masks, self._masks()
        kept = sum(int(mask.sum()) for mask in before)
        gone = sum(int((old & ~new).sum()) for old, new in zip(before, self.masks, strict=True))
        churn = gone / kept if kept else 0.0
        self.history.steps.append(
            {"step": self.step, "loss": loss, "churn": churn, "seconds": self._seconds()}
        )

    def _validate(self) -> None:
        last = self.step == self.training.steps
        if self.step % self.training.evaluate_every == 0 or last:
            score = self.task.evaluate(
                self.applied.model, "valid", tokens=self.training.evaluate_tokens
            )
            self.history.validations.append(
                {"step": self.step, "bits_per_byte": score.bits_per_byte}
            )

    def _save(self) -> None:
        # Only where the history has just been brought up to date: what lies between two entries
        # (a sum of losses, the masks at the last entry) then never has to be saved.
        due = time.monotonic() - self.saved >= self.training.checkpoint_seconds
        last = self.step == self.training.steps
        if self.checkpoint is None or not self.logged() or not (due or last):
            return
        if not self.accelerator.is_main_process:
            return
        progress: dict[str, Any] = {
            "step": self.step,
            "seconds": self._seconds(),
            "history": asdict(self.history),
        }
        save_checkpoint(
            self.checkpoint,
            self.applied,
            self.optimizer,
            identity=self.identity,
            progress=progress,
        )
        self.saved = time.monotonic()

    def _seconds(self) -> float:
        return round(self.earlier + time.monotonic() - self.started, 3)

    def _masks(self) -> list[Tensor]:
        """The masks in force; each push makes new ones, so no copy is needed."""
        return [part.mask for part in self.applied.engine.masked if part.mask is not None]
