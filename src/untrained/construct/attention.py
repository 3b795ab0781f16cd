"""Which masks make a random attention equal to any given one?

Attention computes with two products a head: A = W_Q W_K^T / sqrt(key width), which gives the
logits, and D = W_V W_O, which gives what is mixed. The source has both as products of random
factors already, so each is pruned as in `linear`. The source's W_Q and W_K are drawn from
U[-n^(1/4), n^(1/4)], which cancels its own 1/sqrt(n): every entry of A is a subset sum of products
of two U[-1, 1].

Source: arXiv 2511.04217, Theorems 3 and 9 and section 4. Letters: H heads, d1 inputs, d2 outputs,
n units a head of the source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from untrained.construct.linear import Product, product
from untrained.construct.networks import NormFreeAttention
from untrained.construct.subset_sum.kernels import Flags, Floats
from untrained.errors import ConstructError

Grouping: TypeAlias = Literal["first", "second", "best"]


@dataclass(frozen=True, eq=False)
class HeadMasks:
    """The masks of one head, and how near they come."""

    logits: Product
    """W_Q W_K^T, before the division by sqrt(n); target and error are scaled by sqrt(n) too."""

    values: Product
    """W_V W_O."""

    query: Flags
    """(d1, n)"""

    key: Flags
    """(d1, n)"""

    value: Flags
    """(d1, n)"""

    output: Flags
    """(d2, n)"""


def attention_masks(
    source: NormFreeAttention,
    logits: Floats,
    values: Floats,
    *,
    group_logits: Grouping = "second",
    group_values: Grouping = "first",
    depth: int | None = None,
) -> list[HeadMasks]:
    """Solve for the masks of every head.

    Args:
        source: the random attention that is pruned.
        logits: (H, d1, d1), the target's A = W_Q W_K^T / sqrt(key width).
        values: (H, d1, d2), the target's D = W_V W_O.
        group_logits: the block pattern lies on W_Q (`first`), on W_K (`second`, as in the paper),
            or on whichever leaves the smaller largest error (`best`, at twice the time).
        group_values: the same for W_V (`first`, as in the paper) and W_O (`second`).
        depth: as for `subset_sum`.

    Raises:
        ConstructError: a source of other heads, inputs or outputs than the target, or too narrow.
    """
    _check_fit(source, logits, values)
    query, key, value, output = factors(source)  # (H, d, n)
    scale = math.sqrt(source.key_width)
    heads = []
    for h in range(source.heads):
        a, qk = _paired(query[h], key[h], logits[h] * scale, group_logits, depth)
        d, vo = _paired(value[h], output[h], values[h], group_values, depth)
        heads.append(HeadMasks(a, d, query=qk[0], key=qk[1], value=vo[0], output=vo[1]))
    return heads


def factors(source: NormFreeAttention) -> tuple[Floats, Floats, Floats, Floats]:
    """The four weights of every head in float64: (H, d1, n) three times, and (H, d2, n)."""

    def heads(weight: Tensor) -> Floats:
        units, columns = weight.shape
        rows = weight.detach().double().reshape(source.heads, units // source.heads, columns)
        return np.asarray(rows.mT.cpu().numpy())

    query, key, value = source.query, source.key, source.value
    return (
        heads(query.weight),
        heads(key.weight),
        heads(value.weight),
        heads(source.output.weight.T),
    )


def wear(masks: list[HeadMasks]) -> dict[str, Tensor]:
    """The masks of all heads as the source's modules hold their weights: (out, in), bool."""

    def rows(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(head, name).T for head in masks]))

    return {
        "query": rows("query"),
        "key": rows("key"),
        "value": rows("value"),
        "output": rows("output").T.contiguous(),
    }


def _paired(
    first: Floats, second: Floats, target: Floats, grouping: Grouping, depth: int | None
) -> tuple[Product, tuple[Flags, Flags]]:
    """Prune first @ second.T, and give the masks of first and second."""
    if grouping == "second":
        found = product(first, second, target, depth=depth)
        return found, (found.free, found.block)
    if grouping == "first":
        found = product(second, first, target.T, depth=depth)
        return found, (found.block, found.free)
    if grouping != "best":
        raise ConstructError(f"grouping {grouping!r} is one of first, second, best")
    both = [_paired(first, second, target, way, depth) for way in ("first", "second")]
    return min(both, key=lambda one: float(one[0].error.max(initial=0.0)))


def _check_fit(source: NormFreeAttention, logits: Floats, values: Floats) -> None:
    inputs, outputs = source.query.in_features, source.output.out_features
    H = source.heads
    wanted = {"logits": (H, inputs, inputs), "values": (H, inputs, outputs)}
    for (name, shape), given in zip(wanted.items(), (logits, values), strict=True):
        if given.shape != shape:
            raise ConstructError(
                f"the target's {name} are {given.shape} and the source's {shape} (heads, d1, "
                f"{'d1' if name == 'logits' else 'd2'}); make the source of the target's shape"
            )
