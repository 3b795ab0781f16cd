#!/usr/bin/env python3
"""Write the table of the half normal that `untrained.random` interpolates in.

    python scripts/make_normal_table.py        # prints the SHA-256 that `random` holds

Knot c, for c = 0 .. 4096, is the quantile of |N(0, 1)| at c / 4096, in units of 2^-28, rounded to
the nearest integer. The last quantile is infinite: its knot is put where the second moment of the
interpolated law is 1. Fifty decimal digits, so that every machine writes the same bytes.

Letters: z a quantile, phi the normal density, a and b two neighbouring knots.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal, localcontext
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

CELLS, UNIT = 4096, 2**28
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
TABLE = Path(__file__).parent.parent / "src" / "untrained" / "data" / "half_normal.i32"


def half_normal_quantile(mass: Decimal) -> Decimal:
    """Where |N(0, 1)| has this mass below: Newton on phi(z) * series(z) = mass / 2."""
    z = Decimal(NormalDist().inv_cdf(float(mass) / 2 + 0.5))  # right to 15 digits; twice to 50
    for _ in range(2):
        phi = (-z * z / 2).exp() / (2 * PI).sqrt()
        z -= mass_over_density(z) - mass / 2 / phi
    return z


def mass_over_density(z: Decimal) -> Decimal:
    """The normal mass between 0 and z over phi(z): z + z^3/3 + z^5/(3*5) + ..., all positive."""
    total, term, odd = Decimal(0), z, 1
    while total + term != total:
        total, odd = total + term, odd + 2
        term *= z * z / odd
    return total


def last_knot(knots: list[int]) -> int:
    """The knot that brings the second moment to 1.

    Between a and b the law is uniform, of second moment (a^2 + ab + b^2) / 3.
    """
    done = sum(a * a + a * b + b * b for a, b in pairwise(knots))
    a, left = knots[-1], 3 * CELLS * UNIT**2 - done  # a^2 + ab + b^2 = left, solved for b
    return (math.isqrt(4 * left - 3 * a * a) - a) // 2


def make_table() -> bytes:
    """The 4097 knots, as little-endian 32-bit integers."""
    with localcontext() as context:
        context.prec = 50
        quantiles = [half_normal_quantile(Decimal(c) / CELLS) for c in range(CELLS)]
        knots = [int((z * UNIT).to_integral_value()) for z in quantiles]
    return b"".join(knot.to_bytes(4, "little") for knot in [*knots, last_knot(knots)])


def main() -> None:
    table = make_table()
    TABLE.write_bytes(table)
    print(hashlib.sha256(table).hexdigest(), TABLE.name)


if __name__ == "__main__":
    main()
