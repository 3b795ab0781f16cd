"""How many subset sums a second, beside Gurobi and CP-SAT on the same instances?

    python benchmarks/subset_sum.py [--turns 5] [--large]

Items are products of two uniform numbers, targets are uniform. Times are those of the process, of
all its threads, on one core; the others get one thread. Every solver is timed in turns, in one
process, on the same first instances (`subset_sum` on many more), and the best turn is taken. Errors
are those of the masks, exact; `error` is the largest ratio of theirs to ours. Gurobi runs with its
own tolerances, and with none (gap 0, tolerances 1e-9). A solver that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import untrained as ut

TIGHT = {"MIPGap": 0, "MIPGapAbs": 0, "FeasibilityTol": 1e-9, "IntFeasTol": 1e-9}
GOALS = {12: 1e6, 16: 5e5, 20: 1.5e5, 24: 4.5e4, 30: 5e3, 40: 150}  # instances a second
OTHERS = {10: 40, 15: 40, 20: 8, 24: 3}  # instances for the other solvers
LIMIT = 60  # seconds for each of these

Solver = Callable[[np.ndarray, np.ndarray], np.ndarray]


@cache
def environment() -> Any:
    import gurobipy

    return gurobipy.Env(params={"OutputFlag": 0, "Threads": 1, "TimeLimit": LIMIT})


def by_gurobi(parameters: dict[str, float]) -> Solver:
    """The error of every instance, found with these parameters."""

    def solve(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.array([one(*each) for each in zip(x.tolist(), t.tolist(), strict=True)])

    def one(items: list[float], target: float) -> float:
        import gurobipy

        with gurobipy.Model(env=environment()) as model:
            for name, value in parameters.items():
                model.setParam(name, value)
            keep = model.addVars(len(items), vtype="B")
            error = model.addVar(obj=1)
            total = gurobipy.quicksum(x * keep[i] for i, x in enumerate(items))
            model.addConstr(total + error >= target)
            model.addConstr(total - error <= target)
            model.optimize()
            return abs(target - sum(x for i, x in enumerate(items) if keep[i].X > 0.5))

    return solve


def ours(x: np.ndarray, t: np.ndarray, **settings: float) -> np.ndarray:
    return ut.subset_sum(x, t, threads=1, **settings).error  # type: ignore[arg-type]


def by_cp_sat(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return ut.subset_sum(x, t, backend="cp-sat", seconds=LIMIT).error


def solvers() -> dict[str, Solver]:
    """What is installed."""
    found: dict[str, Solver] = {}
    if importlib.util.find_spec("gurobipy"):
        found |= {"Gurobi": by_gurobi({}), "Gurobi, tight": by_gurobi(TIGHT)}
    if importlib.util.find_spec("ortools"):
        found["CP-SAT"] = by_cp_sat
    return found


def instances(n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.uniform(-1, 1, (2, count, n)).prod(axis=0), rng.uniform(-1, 1, count)


@dataclass
class Time:
    """The best time of an instance, and the errors."""

    seconds: float
    error: np.ndarray


def best(solve: Solver, x: np.ndarray, t: np.ndarray, before: Time | None = None) -> Time:
    """One more turn."""
    start = time.process_time()
    error = solve(x, t)
    seconds = (time.process_time() - start) / len(t)
    return Time(min(seconds, before.seconds) if before else seconds, error)


def compare(n: int, turns: int) -> None:
    """One line for every other solver."""
    few = OTHERS[n]
    x, t = instances(n, max(few, int(1e6 / 2 ** (n / 2))))
    mine, others = best(ours, x, t), dict[str, Time]()
    for turn in range(turns):
        mine = best(ours, x, t, mine)
        for name, solve in solvers().items():
            if turn == 0 or others[name].seconds * few < 1:  # the slow ones once
                others[name] = best(solve, x[:few], t[:few], others.get(name))
    for name, other in others.items():
        worst = float((other.error / np.maximum(mine.error[:few], 1e-300)).max())
        print(
            f"{n:4} {few:4}  {name:14} {other.seconds * 1e3:10.2f} ms {mine.seconds * 1e6:9.2f} us "
            f"{other.seconds / mine.seconds:10.0f}x {worst:10.3g}"
        )


def rates(sizes: list[int], turns: int) -> None:
    for n in sizes:
        x, t = instances(n, max(1, min(100_000, int(3e6 / 2 ** (n / 2)))))
        best(ours, x[:1], t[:1])
        mine = best(ours, x, t)
        for _ in range(turns - 1 if n < 50 else 0):
            mine = best(ours, x, t, mine)
        goal = f"{GOALS[n]:>10.0f}" if n in GOALS else f"{'':10}"
        print(
            f"{n:4} {len(t):7} {mine.seconds * 1e6:12.2f} us {1 / mine.seconds:12.1f}/s "
            f"{goal} {np.median(mine.error):10.2g}"
        )


def tolerances(turns: int) -> None:
    x, t = instances(40, 500)
    for tolerance in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10):

        def solve(x: np.ndarray, t: np.ndarray, near: float = tolerance) -> np.ndarray:
            return ours(x, t, tolerance=near)

        mine = best(solve, x, t)
        for _ in range(turns):
            mine = best(solve, x, t, mine)
        met = float((mine.error <= tolerance).mean())
        print(f"{tolerance:8.0e} {mine.seconds * 1e6:12.2f} us {met:8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="of which the best counts (5)")
    parser.add_argument("--large", action="store_true", help="52 and 56 items too (seconds each)")
    options = parser.parse_args()
    ours(*instances(8, 1), tolerance=0.1)  # compiles
    print("\n   n many  beside              theirs         ours          times      error")
    for n in OTHERS:
        compare(n, options.turns)
    print("\n   n    many    an instance                       goal/s  median error")
    rates([8, 10, 12, 14, 16, 20, 24, 28, 30, 32, 36, 40, 44, 48], options.turns)
    if options.large:
        rates([52, 56], 1)
    print("\ntolerance   an instance of 40 items    met")
    tolerances(options.turns)
    x, t = instances(20, 409_600)
    whole = best(ours, x, t)
    print(f"\nd = 64, n = 20, 100 sources: {whole.seconds * len(t):.2f} s (goal 2.5)")


if __name__ == "__main__":
    main()
