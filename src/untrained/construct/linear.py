"""Which masks make the product of two random matrices equal to a given matrix?

Hidden unit t adds a[r, t] * b[c, t] to entry (r, c) of the product. The mask of b is a block
pattern, known beforehand: the units are cut into C groups and those of group c serve column c only.
The mask of a is then free, and every entry of the target is one subset-sum problem over the n' =
n // C products of its group; no two problems share a bit.

Source: arXiv 2511.04217, Lemmas 4 and 7. Letters: n hidden units, R rows, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from untrained.construct.subset_sum import subset_sum
from untrained.construct.subset_sum.kernels import Flags, Floats, Integers
from untrained.errors import ConstructError


@dataclass(frozen=True, eq=False)
class Product:
    """Two masked factors whose product is near a target."""

    free: Flags
    """(R, n): the mask that was solved for."""

    block: Flags
    """(C, n): the block pattern."""

    target: Floats
    """(R, C): what the product should be."""

    made: Floats
    """(R, C): the product of the masked factors, summed in float64."""

    error: Floats
    """(R, C): |target - product|, exact until it is rounded, once."""

    reach: Floats
    """(R, C): the largest |entry| of the target's sign that the products can add up to."""

    optimal: Flags
    """(R, C): proven that no other free mask comes nearer."""

    @property
    def unreachable(self) -> Flags:
        """(R, C): entries beyond the reach of their products; only more units help."""
        return np.asarray(np.abs(self.target) > self.reach)


def groups(n: int, columns: int) -> Integers:
    """(C, n'): the units of every column. Those left over belong to none and are pruned.

    Raises:
        ConstructError: fewer units than columns.
    """
    each = n // columns
    if each == 0:
        raise ConstructError(
            f"{n} hidden units cannot serve {columns} columns; the width is at least {columns}"
        )
    return np.arange(columns * each).reshape(columns, each)


def product(free: Floats, block: Floats, target: Floats, *, depth: int | None = None) -> Product:
    """Prune two random factors until their product is near a target.

    Args:
        free: (R, n), the factor whose mask is solved for.
        block: (C, n), the factor under the block pattern.
        target: (R, C).
        depth: as for `subset_sum`: search at most so many products of an entry exactly.

    Raises:
        ConstructError: shapes that do not fit, fewer units than columns, numbers that are not
            finite, or more products than can be searched exactly.
    """
    check_factors(free, block, target)
    served = groups(free.shape[1], len(block))  # (C, n')
    terms = free[:, served] * np.take_along_axis(block, served, axis=1)  # (R, C, n')
    found = subset_sum(terms, target, depth=depth)
    mask, pattern = np.zeros(free.shape, bool), np.zeros(block.shape, bool)
    mask[:, served] = found.mask
    np.put_along_axis(pattern, served, True, axis=1)
    signed = np.where(target[..., None] < 0, -terms, terms)
    return Product(
        free=mask,
        block=pattern,
        target=target,
        made=np.where(found.mask, terms, 0.0).sum(-1),
        error=found.error,
        reach=signed.clip(min=0).sum(-1),
        optimal=found.optimal,
    )


def check_factors(free: Floats, block: Floats, target: Floats) -> None:
    """Require (R, n), (C, n) and (R, C).

    Raises:
        ConstructError: other shapes.
    """
    shapes = free.shape, block.shape, target.shape
    fits = all(len(shape) == 2 for shape in shapes) and free.shape[1] == block.shape[1]
    if not fits or target.shape != (len(free), len(block)):
        raise ConstructError(
            f"factors of shapes {free.shape} and {block.shape} and a target of {target.shape} do "
            "not fit; they are (R, n), (C, n) and (R, C)"
        )
