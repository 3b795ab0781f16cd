"""How far is the sum of a subset from its target, exactly?

The kernels compare integers; what is reported comes from the floats themselves: the exact
|target - sum|, rounded once.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from untrained.construct.subset_sum.kernels import Flags, Floats, Integers, compiled


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
