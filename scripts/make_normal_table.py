#!/usr/bin/env python3
"""Write the table of the half normal that `untrained.random` interpolates in.

Knot c of 0..4096 is the quantile of |N(0, 1)| at c/4096, in units of 1/2^21, rounded to an integer.
The last quantile would be infinite: its knot is set so that the second moment of the interpolated
law is 1. Prints the table's SHA-256, which `random.py` holds.
"""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

CELLS, UNIT = 4096, 2**21
TABLE = Path(__file__).parent.parent / "src" / "untrained" / "data" / "half_normal.i32"


def main() -> None:
    quantile = NormalDist().inv_cdf
    knots = [round(quantile(0.5 + c / (2 * CELLS)) * UNIT) for c in range(CELLS)]
    # Between knots a and b the law is uniform: its second moment is (a^2 + ab + b^2) / 3.
    done = sum(a * a + a * b + b * b for a, b in pairwise(knots))
    a, left = knots[-1], 3 * CELLS * UNIT**2 - done
    knots.append(round((-a + math.sqrt(4 * left - 3 * a * a)) / 2))
    data = b"".join(knot.to_bytes(4, "little") for knot in knots)
    TABLE.write_bytes(data)
    print(hashlib.sha256(data).hexdigest(), f"cut at {knots[-1] / UNIT:.3f} sd")


if __name__ == "__main__":
    main()
