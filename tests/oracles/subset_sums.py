"""Subset sums by other means: Python integers and rationals, no fixed point, no machine code.

Both return the smallest (error, mask), exactly: a double is an integer over a power of two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction


def brute_force(values: Sequence[float], target: float, size: int | None = None) -> int:
    """The best mask of all."""
    numbers, wanted, _ = as_integers(values, target)
    sums = all_sums(numbers)
    masks = (m for m in range(len(sums)) if size is None or m.bit_count() == size)
    return min(masks, key=lambda mask: (abs(wanted - sums[mask]), mask))


def meet_in_the_middle(values: Sequence[float], target: float) -> int:
    """The same, by sorting the sums of one half and looking up every sum of the other."""
    numbers, wanted, _ = as_integers(values, target)
    low = len(numbers) // 2
    smallest: dict[int, int] = {}
    for mask, total in enumerate(all_sums(numbers[:low])):
        smallest.setdefault(total, mask)
    ordered = sorted(smallest)
    best: tuple[int, int] | None = None
    for mask, total in enumerate(all_sums(numbers[low:])):
        at = bisect_left(ordered, wanted - total)
        for near in ordered[max(at - 1, 0) : at + 1]:
            found = abs(wanted - total - near), mask << low | smallest[near]
            best = found if best is None else min(best, found)
    assert best is not None
    return best[1]


def error(values: Sequence[float], target: float, mask: int) -> Fraction:
    """|target - sum|, exactly."""
    kept = (Fraction(x) for i, x in enumerate(values) if mask >> i & 1)
    return abs(Fraction(target) - sum(kept, Fraction(0)))


def all_sums(numbers: Sequence[int]) -> list[int]:
    """The sum of every mask."""
    sums = [0]
    for x in numbers:
        sums += [total + x for total in sums]
    return sums


def as_integers(values: Sequence[float], target: float) -> tuple[list[int], int, int]:
    """Items and target as multiples of one unit, and what 1 is in it."""
    every = [Fraction(x) for x in (*values, target)]
    unit = max(x.denominator for x in every)  # all denominators are powers of two
    *numbers, wanted = (int(x * unit) for x in every)
    return numbers, wanted, unit
