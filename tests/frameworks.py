"""One small task for every training framework, and what it should come to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models import T, V, tiny_gpt2
from untrained.apply import Applied, apply

RECIPE = "query,key,mlp = masked(keep=0.5); value = frozen"
"""Masked, frozen and trained parts, two of them in one fused tensor."""


def sentences(count: int = 16) -> list[dict[str, Tensor]]:
    """Sequences in which each token follows from the last."""
    starts = torch.arange(count)[:, None]
    tokens = (starts * 5 + torch.arange(T)[None] * 7) % V
    return [{"input_ids": row, "labels": row} for row in tokens]


def batch(step: int, size: int = 4) -> dict[str, Tensor]:
    """The batch of a step."""
    rows = sentences()
    return {
        name: torch.stack([rows[(step * size + i) % len(rows)][name] for i in range(size)])
        for name in ("input_ids", "labels")
    }


def search(**model: Any) -> Applied:
    """A fresh search, always the same."""
    return apply(tiny_gpt2(**model), RECIPE, seed=7)


def plain_loop(
    applied: Applied,
    *,
    steps: int = 6,
    accumulate: int = 1,
    clip: float | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> torch.optim.Optimizer:
    """The loop that every framework has to equal."""
    optimizer = optimizer or applied.optimizer(torch.optim.AdamW, lr=1e-2)
    for step in range(steps):
        for part in range(accumulate):
            inputs = batch(step * accumulate + part)
            (applied.model(**inputs).loss / accumulate).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(applied.model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def step(applied: Applied, optimizer: torch.optim.Optimizer, inputs: dict[str, Tensor]) -> float:
    """One step on one batch; returns the loss before it."""
    loss = applied.model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def same(first: Applied, second: Applied) -> bool:
    """Whether two searches have learned the same, to the bit."""
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
