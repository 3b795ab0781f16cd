"""How fast are random values drawn beside torch's? Millions of values a second, one thread.

    python benchmarks/drawing.py [--size 10000000]

Every routine is timed in turns, in one process, and the best of all turns is taken; so the ratios
can be trusted further than the rates. Torch's values depend on device, size and version; ours
on seed, name and index alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from untrained.random import draw, words

TURNS = 5

Routine = Callable[[int], object]


def of_law(law: str) -> Routine:
    """Draw a whole vector by a law."""
    return lambda n: draw(0, "benchmark", (n,), law)


ROUTINES: dict[str, Routine] = {
    "torch.rand": torch.rand,
    "torch.randn": torch.randn,
    "words": lambda n: words(0, "benchmark", 0, n),
    "uniform": of_law("uniform"),
    "normal": of_law("normal"),
    "signed_constant": of_law("signed_constant"),
    "ones": of_law("ones"),
    "uniform, rows": lambda n: draw(0, "a", (n // 500, 1000), "uniform", index=slice(0, n // 1000)),
    "uniform, columns": lambda n: draw(
        0, "a", (n // 500, 1000), "uniform", index=(slice(None), slice(0, 500))
    ),
}


def best_times(n: int) -> dict[str, float]:
    """Seconds of each routine for n values: the best of several turns, taken in rotation."""
    times = dict.fromkeys(ROUTINES, float("inf"))
    for _ in range(TURNS):
        for name, routine in ROUTINES.items():
            start = time.perf_counter()
            routine(n)
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=10**7, help="how many values (10000000)")
    n = parser.parse_args().size
    torch.set_num_threads(1)
    times = best_times(n)
    print(f"{f'{n:.0e} values':18} {'M values/s':>10} {'/ rand':>8} {'/ randn':>8}")
    for name, seconds in times.items():
        ratios = (times[other] / seconds for other in ("torch.rand", "torch.randn"))
        print(f"{name:18} {n / seconds / 1e6:10.0f}", *(f"{ratio:8.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
