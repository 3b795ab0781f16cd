"""Edge-popup: learn a score per weight, keep the weights of the highest scores.

Forward, the weight is W * mask; backward, the mask passes the gradient straight through, so a
score moves by dL/dE * W (times the sign of the score where |score| ranks), for pruned weights too.
What the scores become is the recipe's business (`keep`, `by`, `scope`).

Source: Ramanujan et al., "What's Hidden in a Randomly Weighted Neural Network?" (1911.13299).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from untrained.apply import Applied
from untrained.errors import RunError
from untrained.tasks import TextTask
from untrained.train import History, Training, Watch, train


def edge_popup(
    applied: Applied,
    task: TextTask,
    *,
    checkpoint: str | Path | None = None,
    identity: str = "",
    watch: Watch | None = None,
    **settings: Any,
) -> History:
    """Search for masks, by gradient descent on the scores.

    Args:
        applied: a model under a recipe with a masked component.
        task: where batches and validations come from.
        checkpoint: a file to resume from and to write to.
        identity: what run this is; a checkpoint of another identity is refused.
        watch: called after each entry of the history.
        settings: those of `Training`, such as `steps=2_000`.

    Raises:
        RunError: the recipe masks nothing, or an unknown setting.
    """
    if not applied.engine.masked:
        raise RunError(f"nothing is masked under {applied.recipe}; there is no mask to find")
    known = Training.__dataclass_fields__
    if unknown := settings.keys() - known:
        raise RunError(
            f"unknown: {', '.join(sorted(unknown))}; the settings are {', '.join(known)}"
        )
    training = Training(**settings)
    return train(applied, task, training, checkpoint=checkpoint, identity=identity, watch=watch)
