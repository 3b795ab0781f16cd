"""What should a selection give? Brute force in plain Python: sort by (-score, index).

Slow and obvious on purpose. Nothing here knows of bits, partitions, strides or pools.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor


def ranked(values: list[float], by: str) -> list[int]:
    """All indices, best first."""
    score = abs if by == "magnitude" else float
    return sorted(range(len(values)), key=lambda i: (-score(values[i]), i))


def top_mask(scores: Tensor, kept: int, by: str = "magnitude") -> Tensor:
    """The mask of the `kept` best, contiguous."""
    return pooled_masks({"scores": scores}, kept, by)["scores"]


def pooled_masks(scores: Mapping[str, Tensor], kept: int, by: str) -> dict[str, Tensor]:
    """The masks of the `kept` best of all tensors, joined row by row in order."""
    joined = [value for tensor in scores.values() for value in entries(tensor)]
    best = set(ranked(joined, by)[:kept])
    masks, start = {}, 0
    for name, tensor in scores.items():
        flags = [start + i in best for i in range(tensor.numel())]
        masks[name] = torch.tensor(flags).reshape(tuple(tensor.shape))
        start += tensor.numel()
    return masks


def entries(tensor: Tensor) -> list[float]:
    """The entries row by row, told by their places, not by their storage."""
    if tensor.dim() == 0:
        return [tensor.item()]
    return [value for row in tensor.unbind() for value in entries(row)]


def pack(mask: Tensor) -> bytes:
    """Bit i % 8 of byte i // 8 is entry i."""
    packed = bytearray(-(-mask.numel() // 8))
    for i, on in enumerate(entries(mask)):
        packed[i // 8] |= bool(on) << i % 8
    return bytes(packed)


def erk_quotas(shapes: Mapping[str, tuple[int, ...]], budget: int) -> dict[str, float]:
    """Counts in proportion to sum(shape), within 1 and the size, by bisecting the proportion."""
    low, high = 0.0, float(max(math.prod(shape) for shape in shapes.values()))

    def quotas(level: float) -> dict[str, float]:
        return {
            name: min(max(level * (sum(shape) or 1), 1.0), float(math.prod(shape)))
            for name, shape in shapes.items()
        }

    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(quotas(middle).values()) <= budget else (low, middle)
    return quotas(low)


def rounded(keep: float, n: int) -> int:
    """round(keep * n), half to even, at least 1, of the product as a float."""
    product = Fraction(float(keep) * n)
    below = math.floor(product)
    rest = product - below
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1)
    return max(1, below + up)
