"""How does a stock Hugging Face `Trainer` search?

    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    Trainer(applied.model, args, optimizers=(optimizer, None), callbacks=[SearchCallback(applied)])

The optimiser's hooks do the search itself. The callback watches what they cannot see: settings
under which it would go wrong, ranks that search for different things, and `load_best_model_at_end`,
which takes the best weights back and knows nothing of the latents beside them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState, TrainingArguments

from untrained.apply import Applied
from untrained.errors import ApplyError
from untrained.optimizer import saved_latents, searches
from untrained.ranks import require_same_search

_OPTIMIZER = "optimizer.pt"
_OF_THE_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")


class SearchCallback(TrainerCallback):  # type: ignore[misc]
    """Keeps a search and a stock `Trainer` together."""

    def __init__(self, applied: Applied) -> None:
        """
        Args:
            applied: the search, whose `model` and `optimizer(...)` the Trainer was given.
        """
        self.applied = applied

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any
    ) -> None:
        """Refuse what would not search.

        Raises:
            ApplyError: fp16, a sharded model, an optimiser that does not hold the scores, or ranks
                with different recipes, seeds or masks.
        """
        if args.fp16:
            raise ApplyError(
                "fp16=True: the Trainer unscales gradients before the scores have any; use bf16"
            )
        if args.fsdp or args.deepspeed:
            raise ApplyError(
                "FSDP and DeepSpeed replace the weights by shards, which no mask fits; use plain "
                "data parallelism: a search needs little more memory than the dense model"
            )
        if not searches(kwargs["optimizer"], self.applied.engine):
            raise ApplyError(
                "the Trainer's optimiser does not hold the scores; give it "
                "optimizers=(applied.optimizer(torch.optim.AdamW, lr=...), None)"
            )
        if state.global_step and not kwargs["optimizer"].state:
            raise ApplyError(
                f"resumed at step {state.global_step} without the optimiser's state, so without "
                "its scores: the checkpoint lacks optimizer.pt or scheduler.pt"
            )
        for name in _ignored(args):
            warnings.warn(
                f"{name}={getattr(args, name)} has no effect: the Trainer was given an optimiser; "
                "say it to applied.optimizer(...)",
                stacklevel=2,
            )
        self.applied.check_intact()
        require_same_search(self.applied)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any
    ) -> None:
        """Take back the latents of the best step, after the Trainer took back its weights.

        Raises:
            ApplyError: the best checkpoint holds no latents.
        """
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            path = Path(state.best_model_checkpoint) / _OPTIMIZER
            if not path.is_file():
                raise ApplyError(
                    f"{path} does not exist, so the scores of the best step are lost and its "
                    "weights alone are no ticket; train with save_only_model=False"
                )
            held = torch.load(path, map_location="cpu", weights_only=True)
            self.applied.engine.load(saved_latents(held, self.applied.identity))
        self.applied.check_intact()


def _ignored(args: TrainingArguments) -> Iterator[str]:
    """The arguments that somebody set, and that a Trainer with an optimiser does not look at."""
    usual = {field.name: field.default for field in fields(args)}
    return (name for name in _OF_THE_OPTIMIZER if getattr(args, name) != usual[name])
