"""How do floating-point items become integers, and how is a subset's error measured afterwards?

An instance's items and target are multiplied by one power of two, chosen such that the magnitudes
of all items add up to less than 2^60, and rounded to int64. Sums of integers do not depend on their
order, so the answer depends on neither threads nor algorithm. Most items are exact multiples of the
unit; where one is not, the order of two subsets can be wrong by less than the *resolution*, n + 1
units, or about 1e-16 of the sum of all magnitudes for every item.

To keep exactly k of n items, a number M larger than any two errors' difference is added to every
item, and k M to the target: any subset of another size is then worse than all of this one.

The error that is reported comes from the floats themselves: the exact |target - sum|, rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from untrained.construct.subset_sum.kernels import (
    FEW,
    Int,
    Integers,
    Space,
    compiled,
    search,
    try_all,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_BITS = 60


@compiled
def _powers(power: Int) -> tuple[float, float]:
    """Two factors whose product is 2^power, which may be too large for one."""
    first = min(power, 1000)
    return math.ldexp(1.0, first), math.ldexp(1.0, power - first)


@compiled
def fix(values: Floats, target: float, size: Int, q: Integers) -> tuple[Int, float, Int]:
    """Write the items as integers; returns the target's, the resolution, and the unit's -log2."""
    n = len(values)
    largest = 0.0
    for i in range(n):
        largest = max(largest, abs(values[i]))
    top = math.frexp(largest)[1]
    total = np.int64(0)  # in units of 2^(top - 32), each rounded up
    f, g = _powers(32 - top)
    for i in range(n):
        total += np.int64(abs(values[i]) * f * g) + 1
    power = _BITS + 32 - top
    limit = 2.0 ** (_BITS + 1)
    while total > 0:
        total >>= 1
        power -= 1
    if size >= 0:
        room = 4 * n + 4
        while room > 0:
            room >>= 1
            power -= 1
            limit /= 2
    rounded = False
    magnitude = np.int64(0)
    f, g = _powers(power)
    for i in range(n):
        x = values[i] * f * g
        q[i] = np.int64(np.rint(x))
        magnitude += abs(q[i])
        rounded |= q[i] != x or (x == 0 and values[i] != 0)
    y = target * f * g
    t = np.int64(np.rint(min(max(y, -limit), limit)))  # beyond it, only the side counts
    rounded |= (abs(y) < limit and t != y) or (y == 0 and target != 0)
    if size >= 0:
        raised = 2 * (abs(t) + magnitude) + 1
        for i in range(n):
            q[i] += raised
        t += size * raised
    return t, (math.ldexp(n + 1.0, -power) if rounded else 0.0), power


@compiled
def fix_rows(
    values: Floats, rows: Integers, targets: Floats, size: Int, q: Integers, t: Integers,
    resolution: Floats,
) -> None:  # fmt: skip
    """Fix instances: targets[b] with the items of row rows[b]."""
    for b in range(len(targets)):
        t[b], resolution[b], _ = fix(values[rows[b]], targets[b], size, q[b])


@compiled
def solve_rows(
    values: Floats, rows: Integers, targets: Floats, tolerance: Floats, size: Int, depth: Int,
    order: Integers, mask: Flags, optimal: Flags, resolution: Floats,
    scratch: Integers, space: Space,
) -> None:  # fmt: skip
    """Solve instances: exactly, or with a `depth` below n or a tolerance >= 0 by `_climb`."""
    n = values.shape[1]
    q, some = scratch[0], scratch[1]  # (n,)
    sums = space.a
    for b in range(len(targets)):
        t, resolution[b], power = fix(values[rows[b]], targets[b], size, q)
        # Half a unit for every rounding, so that the error of the floats is within it too.
        f, g = _powers(power)
        within = np.int64(max(min(tolerance[b] * f * g, 2.0**61) - (n + 2), 0.0))
        k = n
        if n <= FEW:  # as `_climb` would, with less ado
            _, kept = try_all(q, n, t, sums)
            for i in range(n):
                mask[b, i] = kept >> i & 1
            optimal[b] = True
            continue
        if (depth < n or tolerance[b] >= 0) and size < 0:
            k = _first_step(q, order[rows[b]], min(depth, n), within)
        ordered = order[rows[b] if k < n else 0]
        optimal[b] = _climb(q, t, size, k, depth, within, ordered, some, mask[b], space)


@compiled
def _climb(
    q: Integers, t: Int, size: Int, k: Int, depth: Int, within: Int, order: Integers,
    some: Integers, mask: Flags, space: Space,
) -> bool:  # fmt: skip
    """Search the k smallest items exactly after a greedy choice of the others, for growing k.

    Stops at an error `within`, or at k = depth; a k of n is the exact search. Returns whether no
    subset can be better.
    """
    n = len(q)
    best = np.int64(-1)
    while True:
        items, goal = q, t
        if k < n:
            items, goal = some, _choose_large(q, t, k, order, some, mask, False)
        error, kept = search(items, k, goal, size, space)
        if k >= n:
            for i in range(n):
                mask[i] = kept >> i & 1
            return True
        if best < 0 or error < best:
            best = error
            _choose_large(q, t, k, order, some, mask, True)
            for i in range(k):
                mask[order[i]] = kept >> i & 1
        if best <= within or k >= depth:
            return bool(best == 0)
        k = min(k + 3, depth, n)


@compiled
def _choose_large(
    q: Integers, t: Int, k: Int, order: Integers, small: Integers, mask: Flags, write: bool
) -> Int:
    """Keep large items while that brings the rest to the middle of what the k smallest reach.

    Returns what is left for these; writes them to `small`, and with `write` the choice to `mask`.
    """
    middle = np.int64(0)
    for i in range(k):
        small[i] = q[order[i]]
        middle += small[i]
    middle //= 2
    left = t - middle
    for i in range(len(q) - 1, k - 1, -1):
        x = q[order[i]]
        kept = abs(left - x) < abs(left)
        if kept:
            left -= x
        if write:
            mask[order[i]] = kept
    return left + middle


@compiled
def _first_step(q: Integers, order: Integers, depth: Int, within: Int) -> Int:
    """How many of the smallest items should have a few subsets within the tolerance."""
    squares = reach = 0.0
    for k in range(depth):
        expected = math.log2(2.0 * within + 1) + k - math.log2(math.sqrt(1.6 * squares) + 1)
        if k >= 4 and expected >= 2 and reach >= abs(float(q[order[k]])):
            return k
        squares += float(q[order[k]]) ** 2
        reach += abs(float(q[order[k]]))
    return depth


@compiled
def _measure_rows(
    values: Floats, rows: Integers, targets: Floats, mask: Flags, error: Floats, sure: Flags
) -> None:
    """|target - sum| with the roundings of every step added up; `sure` if none was lost."""
    for b in range(len(targets)):
        high, low = targets[b], 0.0
        exact = True
        for i in range(values.shape[1]):
            if mask[b, i]:
                x = -values[rows[b], i]
                total = high + x
                back = total - high
                lost = (high - (total - back)) + (x - back)
                high = total
                total = low + lost
                back = total - low
                exact &= (low - (total - back)) + (lost - back) == 0
                low = total
        error[b] = abs(high + low)
        sure[b] = exact


def measure(values: Floats, rows: Integers, targets: Floats, mask: Flags) -> Floats:
    """The exact |target - sum of the kept items| of every instance, rounded once."""
    error = np.empty(len(targets))
    sure = np.empty(len(targets), np.bool_)
    _measure_rows(values, rows, targets, mask, error, sure)
    for b in np.flatnonzero(~sure).tolist():
        error[b] = float(exact_error(values[rows[b]], targets[b], mask[b]))
    return error


def exact_error(values: Floats, target: float, mask: Flags) -> Fraction:
    """|target - sum of the kept items| without any rounding."""
    total = sum(map(Fraction, values[mask].tolist()), Fraction(0))
    return abs(Fraction(float(target)) - total)
