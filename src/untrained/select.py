"""Which weights do the scores keep?

The weights of largest score, exactly as many as asked for. Among equal scores the weight of lower
index is kept, where the index counts row by row over the logical shape, however the tensor is
stored. So a mask is a function of the scores alone: never of strides, threads or library versions.

Everything here happens on integers. The bits of a float without its sign, read as an integer,
rank like its magnitude; with the sign put back, like its value. Integers are partitioned twice as
fast as floats, tell denormals apart even where the processor flushes them to zero, and show a NaN
as a number beyond infinity.

Source: edge-popup, arXiv 1911.13299, with magnitude scores as in 2109.03939; the `erk` budget is
that of RigL, arXiv 1911.11134, section 3.

Letters: n entries of a tensor, K kept, s scores, W weights, E = W * mask.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from untrained.errors import MaskError

By: TypeAlias = Literal["magnitude", "value"]
"""What ranks a weight: the magnitude of its score, or the score itself."""

Scope: TypeAlias = Literal["tensor", "layer", "global", "erk"]
"""Where the share kept is held: see `select`."""

Integers: TypeAlias = NDArray[np.signedinteger[Any]]

_INTEGER = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""The integers as wide as the floats whose bits they read."""

_INFINITY = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F80_0000,
    torch.float64: 0x7FF0_0000_0000_0000,
}
"""The bits of infinity; above them begin the NaNs."""


def kept_count(keep: float, n: int) -> int:
    """How many of n weights a share of `keep` keeps: round(keep * n), half to even, at least 1.

    Args:
        keep: the share kept, in (0, 1].
        n: the number of weights, at least 1.

    Raises:
        MaskError: no such share, or nothing to keep.
    """
    if not isinstance(keep, Real) or isinstance(keep, bool) or not 0 < keep <= 1:
        raise MaskError(
            f"keep={keep!r}: keep is the share of the weights KEPT, a number in (0, 1]; "
            "to remove 30 %, write keep=0.7"
        )
    if n < 1:
        raise MaskError(f"a tensor of {n} entries has none to keep; leave it out")
    return max(1, round(float(keep) * n))


def top_mask(scores: Tensor, kept: int, *, by: By = "magnitude", name: str = "scores") -> Tensor:
    """Keep the `kept` weights of largest score, among equal ones those of lower index.

    Args:
        scores: any floating tensor, stored in any way; never changed.
        kept: how many to keep, 1 to n.
        by: rank by |score| (`magnitude`) or by score (`value`).
        name: what errors call the tensor.

    Returns:
        A new bool tensor with exactly `kept` ones, in the shape, layout and device of the scores.

    Raises:
        MaskError: scores that are not floats, hold a NaN or hold nothing; a `kept` out of range.
    """
    _check_scores({name: scores})
    return _top({name: scores}, kept, by=by)[name]


def select(
    scores: Mapping[str, Tensor],
    keep: float,
    *,
    scope: Scope = "tensor",
    by: By = "magnitude",
    layer: Mapping[str, int | None] | None = None,
) -> dict[str, Tensor]:
    """Keep a share of the weights of several tensors.

    Args:
        scores: name -> scores; tensors that are ranked together must be of one dtype.
        keep: the share kept, in (0, 1].
        scope: where the share is held. `tensor`: in each tensor. `layer`: over the tensors of each
            layer together. `global`: over all together. `erk`: over all, where each tensor has
            a share of its own, by `erk_counts`. Tensors ranked together count as one, joined in
            the order of the mapping; one of them may come out empty.
        by: rank by |score| (`magnitude`) or by score (`value`).
        layer: name -> layer, for scope `layer`; a tensor of layer None is a layer of its own.

    Returns:
        name -> bool tensor, in the order, shapes, layouts and devices of the scores.

    Raises:
        MaskError: what `kept_count`, `top_mask` and `erk_counts` refuse; an unknown scope; a tensor
            whose layer is not told.
    """
    _check_scores(scores)
    if scope == "erk":
        kept = erk_counts({name: tuple(s.shape) for name, s in scores.items()}, keep)
        return {name: top_mask(s, kept[name], by=by, name=name) for name, s in scores.items()}
    masks: dict[str, Tensor] = {}
    for names in _pools(scores, scope, layer):
        pool = {name: scores[name] for name in names}
        masks |= _top(pool, kept_count(keep, sum(s.numel() for s in pool.values())), by=by)
    return {name: masks[name] for name in scores}


def erk_counts(shapes: Mapping[str, tuple[int, ...]], keep: float) -> dict[str, int]:
    """Share out a budget so that small tensors keep a larger part of themselves.

    A tensor's share is proportional to sum(shape) / prod(shape), so its count is proportional to
    sum(shape), at least 1 and at most its size; what a full tensor cannot take goes to the others.
    Counts are made whole by largest remainder, among equal ones in the order of the mapping.

    Args:
        shapes: name -> shape.
        keep: the share kept over all, in (0, 1].

    Returns:
        name -> count; together exactly kept_count(keep, total).

    Raises:
        MaskError: no such share; a tensor without entries; a budget below one weight a tensor.
    """
    if not shapes:
        return {}
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    for name, size in sizes.items():
        _check_size(name, size)
    budget = kept_count(keep, sum(sizes.values()))
    if budget < len(sizes):
        raise MaskError(
            f"keep={keep} of {sum(sizes.values())} weights is {budget}, fewer than one for each of "
            f"{len(sizes)} tensors; raise keep, or use scope='global'"
        )
    quotas = _fill({name: sum(shape) or 1 for name, shape in shapes.items()}, sizes, budget)
    counts = {name: math.floor(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: counts[name] - quotas[name])
    for name in by_remainder[: budget - sum(counts.values())]:
        counts[name] += 1
    return counts


def score_gradient(
    scores: Tensor, weights: Tensor, grad: Tensor, *, by: By = "magnitude"
) -> Tensor:
    """The gradient of the scores, from the gradient of the effective weights.

    The mask is passed straight through. Backward, for kept and pruned weights alike, it counts as
    |s| (`magnitude`: grad * W * sign(s)) or as s (`value`: grad * W).

    Args:
        scores, weights, grad: s, W and the gradient of E, of one shape.
        by: what ranked the scores.

    Returns:
        A new tensor of the scores' shape and dtype.

    Raises:
        MaskError: shapes that differ.
    """
    _check_by(by)
    _check_shapes(scores=scores, weights=weights, grad=grad)
    product = grad * weights
    if by == "magnitude":
        product = product.mul_(scores.sign())
    return product.to(scores.dtype)


def effective_weight(scores: Tensor, weights: Tensor, kept: int, *, by: By = "magnitude") -> Tensor:
    """W * mask(s), differentiable: the scores receive `score_gradient`, W its masked gradient.

    Args:
        scores, weights: s and W, of one shape.
        kept: how many weights to keep.
        by: what ranks the scores.

    Raises:
        MaskError: what `top_mask` refuses, or shapes that differ.
    """
    _check_shapes(scores=scores, weights=weights)
    effective: Tensor = _Effective.apply(  # type: ignore[no-untyped-call]
        scores, weights, top_mask(scores, kept, by=by), by
    )
    return effective


class _Effective(torch.autograd.Function):
    """W * mask forward, straight through backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, mask: Tensor, by: By) -> Tensor:
        ctx.save_for_backward(scores, weights, mask)
        ctx.by = by
        return weights * mask

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        scores, weights, mask = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            score_gradient(scores, weights, grad, by=ctx.by) if wanted[0] else None,
            grad * mask if wanted[1] else None,
            None,
            None,
        )


# --- ranking --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Member:
    """One tensor of those that are ranked together; its arrays are flat, in the mask's order."""

    mask: Tensor
    """The result, laid out like the scores."""

    bits: Integers
    """The scores' bits."""

    keys: Integers
    """Integers that rank like the scores; a part of the pool's one buffer."""

    chosen: NDArray[np.bool_]
    """The mask's own memory."""


def _top(scores: Mapping[str, Tensor], kept: int, *, by: By) -> dict[str, Tensor]:
    """Rank several tensors, joined in order. Takes one integer a score besides the masks."""
    _check_by(by)
    dtype = _common_dtype(scores)
    total = sum(tensor.numel() for tensor in scores.values())
    _check_kept(kept, total, ", ".join(scores))
    # Two-byte keys would be smaller, but partition several times slower than four-byte ones.
    keys: Integers = np.empty(total, dtype=f"i{max(dtype.itemsize, 4)}")
    pool = dict(zip(scores, _members(scores.values(), keys), strict=True))

    _write_keys(pool.values(), by)
    rank = total - int(kept)
    keys.partition(rank)
    threshold = keys[rank]
    if _beyond(_INFINITY[dtype], keys, rank):
        raise MaskError(_describe_nan(scores))

    _write_keys(pool.values(), by)
    surplus = -int(kept)  # becomes the number of entries at the threshold that are too many
    for member in pool.values():
        np.greater_equal(member.keys, threshold, out=member.chosen)
        surplus += int(np.count_nonzero(member.chosen))
    for member in reversed(pool.values()):
        if surplus > 0:
            surplus -= _drop_last_ties(member, threshold, surplus)
    return {name: member.mask.to(scores[name].device) for name, member in pool.items()}


def _members(tensors: Iterable[Tensor], keys: Integers) -> Iterator[_Member]:
    """Lay out an empty mask for each tensor, and share out the buffer of keys."""
    start = 0
    for tensor in tensors:
        scores = tensor.detach().cpu().resolve_neg()
        mask = torch.empty_like(scores, dtype=torch.bool)
        order = _storage_order(mask)
        bits = scores.view(_INTEGER[scores.dtype]).permute(order).reshape(-1).numpy()
        chosen = mask.permute(order).view(-1).numpy()
        yield _Member(mask, bits, keys[start : start + bits.size], chosen)
        start += bits.size


def _storage_order(dense: Tensor) -> list[int]:
    """The dimensions of a dense tensor from the slowest to the fastest in storage."""
    return sorted(range(dense.dim()), key=dense.stride, reverse=True)


def _write_keys(members: Iterable[_Member], by: By) -> None:
    """Fill the keys of every member from its bits, with -0.0 equal to 0.0."""
    for member in members:
        magnitude = np.iinfo(member.bits.dtype).max  # all bits but the sign
        np.bitwise_and(member.bits, magnitude, out=member.keys)
        if by == "value":
            for block in _blocks(member.bits.size):
                _put_sign(member.keys[block], member.bits[block])


def _put_sign(keys: Integers, bits: Integers) -> None:
    """Negate the keys of negative scores, in place."""
    sign = bits >> (bits.itemsize * 8 - 1)  # 0, or -1 where negative
    np.bitwise_xor(keys, sign, out=keys)
    np.subtract(keys, sign, out=keys)


def _blocks(size: int, *, length: int = 1 << 15) -> list[slice]:
    """Slices of a flat array, each small enough to stay in the processor's cache."""
    return [slice(start, start + length) for start in range(0, size, length)]


def _beyond(infinity: int, keys: Integers, rank: int) -> bool:
    """Whether keys partitioned at `rank` hold a NaN: it would lie at one of the two ends."""
    return bool(keys[rank:].max() > infinity or keys[: rank + 1].min() < -infinity)


def _drop_last_ties(member: _Member, threshold: np.signedinteger[Any], surplus: int) -> int:
    """Unset the `surplus` last entries at the threshold, or all there are; returns how many."""
    ties = torch.empty_like(member.mask)
    flat = ties.permute(_storage_order(ties)).view(-1).numpy()
    np.equal(member.keys, threshold, out=flat)
    found = int(np.count_nonzero(flat))
    ties = ties.contiguous()
    if found > surplus:
        logical = ties.view(-1).numpy()
        logical[: _last(logical, surplus)] = False
    member.mask.logical_xor_(ties)
    return min(found, surplus)


def _last(flags: NDArray[np.bool_], count: int) -> int:
    """Where the last `count` ones of `flags` begin; it must hold as many."""
    for block in reversed(_blocks(flags.size)):
        found = int(np.count_nonzero(flags[block]))
        if found >= count:
            return int(block.start + np.flatnonzero(flags[block])[found - count])
        count -= found
    raise AssertionError("fewer ones than counted")


# --- budgets --------------------------------------------------------------------------------------


def _pools(
    names: Iterable[str], scope: str, layer: Mapping[str, int | None] | None
) -> list[list[str]]:
    """The names that are ranked together, in order."""
    if scope not in ("tensor", "layer", "global"):
        raise MaskError(f"scope={scope!r}: scope is one of tensor, layer, global, erk")
    pools: dict[Hashable, list[str]] = {}
    for name in names:
        pool: Hashable = name if scope == "tensor" else scope
        if scope == "layer":
            if layer is None or name not in layer:
                raise MaskError(
                    f"scope='layer', but the layer of {name} is not told; pass "
                    "layer={name: number, or None for a layer of its own}"
                )
            pool = name if layer[name] is None else layer[name]
        pools.setdefault(pool, []).append(name)
    return list(pools.values())


def _fill(weights: Mapping[str, int], sizes: Mapping[str, int], budget: int) -> dict[str, Fraction]:
    """Quotas min(max(level * weight, 1), size), at the level where they add up to the budget."""

    def quota(name: str, level: Fraction) -> Fraction:
        return min(max(level * weights[name], Fraction(1)), Fraction(sizes[name]))

    def total(level: Fraction) -> Fraction:
        return sum((quota(name, level) for name in sizes), Fraction(0))

    # Between two levels at which some tensor leaves its floor or reaches its size, all is linear.
    levels = sorted({Fraction(bound, weights[n]) for n in sizes for bound in (1, sizes[n])})
    below = levels[bisect_right(levels, Fraction(budget), key=total) - 1]
    slope = sum(w for n, w in weights.items() if 1 <= below * w < sizes[n])
    level = below + (budget - total(below)) / slope if slope else below
    return {name: quota(name, level) for name in sizes}


# --- what is refused ------------------------------------------------------------------------------


def _check_by(by: str) -> None:
    if by not in ("magnitude", "value"):
        raise MaskError(f"by={by!r}: weights are ranked by magnitude or by value")


def _check_size(name: str, size: int) -> None:
    if size < 1:
        raise MaskError(f"{name} has no entries, so none can be kept; leave it out")


def _check_scores(scores: Mapping[str, Tensor]) -> None:
    """Require non-empty dense floating tensors."""
    for name, tensor in scores.items():
        if not isinstance(tensor, Tensor):
            raise MaskError(f"{name} is a {type(tensor).__name__}; scores are a torch.Tensor")
        if tensor.dtype not in _INTEGER or tensor.layout != torch.strided:
            raise MaskError(
                f"{name} is {tensor.dtype}, {tensor.layout}; scores are dense float32 (float16, "
                "bfloat16 and float64 can be ranked too): convert them with .to(torch.float32)"
            )
        _check_size(name, tensor.numel())


def _check_kept(kept: int, total: int, name: str) -> None:
    if not isinstance(kept, Integral) or isinstance(kept, bool) or not 1 <= kept <= total:
        raise MaskError(
            f"kept={kept!r} of {name}: kept is a whole number from 1 to its {total} entries; "
            "kept_count(keep, n) makes one from a share"
        )


def _check_shapes(**tensors: Tensor) -> None:
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in tensors.items())
        raise MaskError(f"these must have one shape: {shapes}")


def _common_dtype(scores: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype of tensors that are ranked together."""
    first, *others = {tensor.dtype: name for name, tensor in scores.items()}.items()
    for dtype, name in others:
        raise MaskError(
            f"{first[1]} is {first[0]} and {name} is {dtype}; scores that are ranked together must "
            "be of one dtype: convert them with .to(torch.float32)"
        )
    return first[0]


def _describe_nan(scores: Mapping[str, Tensor]) -> str:
    """Name the first tensor that holds a NaN, and say how many."""
    for name, tensor in scores.items():
        if count := int(tensor.isnan().sum()):
            return (
                f"{name} holds NaN ({count} of {tensor.numel()} scores), which has no rank; look "
                "for the step that made it: a loss that overflowed, or a learning rate too large"
            )
    raise AssertionError("a key beyond infinity, but no NaN")
