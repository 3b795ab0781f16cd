"""Targets and sources for constructions."""

from __future__ import annotations

import torch

from untrained.construct.networks import NormFreeAttention
from untrained.random import draw


def target(d1: int, d2: int, heads: int, seed: int = 0) -> NormFreeAttention:
    """Weights of spectral norm 1, of width 8."""
    network = NormFreeAttention(d1, d2, heads=heads, key_width=8, value_width=8)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(draw(seed, f"target/{name}", tuple(weight.shape), "normal"))
            for part in weight.split(8, dim=1 if "output" in name else 0):
                part /= torch.linalg.matrix_norm(part, 2)
    return network


def source(d1: int, d2: int, heads: int, width: int, seed: int = 0) -> NormFreeAttention:
    """Weights as the theory draws them."""
    network = NormFreeAttention(d1, d2, heads=heads, key_width=width, value_width=width)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            bound = width**0.25 if name[:3] in ("que", "key") else 1.0
            weight.copy_(bound * draw(seed, f"source/{name}", tuple(weight.shape), "uniform"))
    return network


def pruned(network: NormFreeAttention, masks: dict[str, torch.Tensor]) -> NormFreeAttention:
    with torch.no_grad():
        for name, mask in masks.items():
            getattr(network, name).weight.mul_(mask)
    return network
