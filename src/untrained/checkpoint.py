"""What must be on disk so that a killed run ends with the same bits as one that was not?

The latents, the optimiser's state, the step and the history; everything else (random weights,
batches, learning rates) is a function of the seed and the step. One safetensors file, no pickle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from untrained.apply import Applied
from untrained.errors import RunError
from untrained.files import write_atomic

_STATE = "optimizer/"
_LATENT = "latent/"


def save_checkpoint(
    path: Path,
    applied: Applied,
    optimizer: torch.optim.Optimizer,
    *,
    identity: str,
    progress: dict[str, Any],
) -> None:
    """Write all that a run needs to go on.

    Args:
        path: the file; replaced whole or not at all.
        applied: the search.
        optimizer: its optimiser.
        identity: what run this is; only a run of the same identity may resume from it.
        progress: the step and the history, as JSON values.

    Raises:
        RunError: the file cannot be written.
    """
    tensors = {_LATENT + name: value for name, value in applied.state_dict().items()}
    for name, latent in applied.latents().items():
        for key, value in optimizer.state.get(latent, {}).items():
            tensors[f"{_STATE}{name}/{key}"] = torch.as_tensor(value)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"identity": identity, "progress": json.dumps(progress)}
    write_atomic(path, safetensors.torch.save(held, metadata))


def load_checkpoint(
    path: Path, applied: Applied, optimizer: torch.optim.Optimizer, *, identity: str
) -> dict[str, Any] | None:
    """Take a run up again; returns the progress, or None if there is no checkpoint.

    Raises:
        RunError: the file is damaged or belongs to another run.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        progress: dict[str, Any] = json.loads(metadata["progress"])
    except (SafetensorError, OSError, KeyError, ValueError) as reason:
        raise RunError(
            f"{path} is not a sound checkpoint ({reason}); delete it to start over"
        ) from None
    if metadata.get("identity") != identity:
        raise RunError(
            f"{path} belongs to a run with other settings ({metadata.get('identity', 'none')[:12]} "
            f"instead of {identity[:12]}); use another output, or delete it"
        )
    cut = len(_LATENT)
    applied.load_state_dict({n[cut:]: t for n, t in tensors.items() if n.startswith(_LATENT)})
    _restore(optimizer, applied.latents(), tensors)
    return progress


def _restore(
    optimizer: torch.optim.Optimizer, latents: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    optimizer.state.clear()
    for name, latent in latents.items():
        prefix = f"{_STATE}{name}/"
        state = {
            key.removeprefix(prefix): value.to(latent.device) if value.dim() else value
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
        if state:
            optimizer.state[latent] = state
