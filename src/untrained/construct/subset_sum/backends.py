"""Which other solvers can be asked, and how?

They serve as oracles, and for what is out of the exact search's reach. Each takes one instance at a
time, on one thread. `brute` and `cp-sat` see the same integers as the exact search, so what they
prove is proven; `highs` and `gurobi` work in floating point with tolerances of 1e-9 or so, and what
they find is never called optimal.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TypeAlias

import numpy as np

from untrained.construct.subset_sum.kernels import Flags, Floats, Integers, fix_rows
from untrained.errors import ConstructError

Answer: TypeAlias = tuple[Flags, bool]
"""The mask, and whether it is proven to be the best."""

_BRUTE_MOST = 22


def solve_with(
    backend: str,
    values: Floats,
    rows: Integers,
    targets: Floats,
    *,
    size: int | None,
    seconds: float | None,
) -> tuple[Flags, Flags, Floats]:
    """The masks, which are proven optimal, and the resolution."""
    n, count = values.shape[1], len(targets)
    mask = np.zeros((count, n), np.bool_)
    optimal, resolution = np.zeros(count, np.bool_), np.zeros(count)
    if backend in _ON_INTEGERS:
        q, t = np.empty((count, n), np.int64), np.empty(count, np.int64)
        fix_rows(values, rows, targets, -1 if size is None else size, q, t, resolution)
        for b in range(count):
            mask[b], optimal[b] = _ON_INTEGERS[backend](q[b], int(t[b]), seconds)
        return mask, optimal, resolution
    for b in range(count):
        mask[b] = _ON_FLOATS[backend](values[rows[b]], float(targets[b]), size, seconds)
    return mask, optimal, resolution


def _import(module: str, *, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConstructError(
            f"backend='{extra}' needs {module.split('.')[0]}, which is not installed: "
            f"pip install 'untrained[{extra}]', or leave backend= out"
        ) from None


def _brute(q: Integers, t: int, seconds: float | None) -> Answer:  # noqa: ARG001
    """Every sum at its mask; among equal errors, the first has the smallest mask."""
    n = len(q)
    if n > _BRUTE_MOST:
        raise ConstructError(
            f"backend='brute' takes at most {_BRUTE_MOST} items, not {n}; leave backend= out"
        )
    sums = np.zeros(1, np.int64)
    for x in q:
        sums = np.concatenate([sums, sums + x])
    best = int(np.abs(t - sums).argmin())
    return (best >> np.arange(n) & 1).astype(np.bool_), True


def _cp_sat(q: Integers, t: int, seconds: float | None) -> Answer:
    """OR-tools' solver over integers; it minimises the larger of t - sum and sum - t."""
    cp_model = _import("ortools.sat.python.cp_model", extra="cp-sat")
    model = cp_model.CpModel()
    keep = [model.new_bool_var(f"keep_{i}") for i in range(len(q))]
    error = model.new_int_var(0, abs(t) + int(np.abs(q).sum()), "error")
    total = sum(int(x) * k for x, k in zip(q, keep, strict=True))
    model.add(total + error >= t)
    model.add(total - error <= t)
    model.minimize(error)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _give_up("cp-sat", solver.status_name(status))
    return np.array([solver.value(k) for k in keep], np.bool_), status == cp_model.OPTIMAL


def _highs(values: Floats, target: float, size: int | None, seconds: float | None) -> Flags:
    """HiGHS through SciPy: n binary variables and the error, which is minimised."""
    optimize = _import("scipy.optimize", extra="highs")
    n = len(values)
    lines = np.zeros((3, n + 1))
    lines[0], lines[1] = np.append(values, 1), np.append(values, -1)
    lines[2, :n] = 1
    count = (0, n) if size is None else (size, size)
    found = optimize.milp(
        c=np.append(np.zeros(n), 1),
        integrality=np.append(np.ones(n), 0),
        bounds=optimize.Bounds(0, np.append(np.ones(n), np.inf)),
        constraints=optimize.LinearConstraint(
            lines, [target, -np.inf, count[0]], [np.inf, target, count[1]]
        ),
        options={"mip_rel_gap": 0.0} | ({} if seconds is None else {"time_limit": seconds}),
    )
    if found.x is None:
        _give_up("highs", found.message)
    return np.asarray(found.x[:n] > 0.5)


def _gurobi(values: Floats, target: float, size: int | None, seconds: float | None) -> Flags:
    """Gurobi with no gap, its tolerances at their smallest."""
    gurobipy = _import("gurobipy", extra="gurobi")
    with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as model:
        for name, value in (("MIPGap", 0), ("MIPGapAbs", 0), ("Threads", 1)):
            model.setParam(name, value)
        model.setParam("FeasibilityTol", 1e-9)
        model.setParam("IntFeasTol", 1e-9)
        if seconds is not None:
            model.setParam("TimeLimit", seconds)
        keep = model.addVars(len(values), vtype="B")
        error = model.addVar(obj=1)
        total = gurobipy.quicksum(float(x) * keep[i] for i, x in enumerate(values))
        model.addConstr(total + error >= target)
        model.addConstr(total - error <= target)
        if size is not None:
            model.addConstr(keep.sum() == size)
        model.optimize()
        if not model.SolCount:
            _give_up("gurobi", f"status {model.Status}")
        return np.array([keep[i].X > 0.5 for i in range(len(values))], np.bool_)


def _give_up(backend: str, status: str) -> None:
    raise ConstructError(
        f"backend='{backend}' found no subset at all ({status}); give it more seconds=, or leave "
        "backend= out"
    )


_ON_INTEGERS: dict[str, Callable[[Integers, int, float | None], Answer]] = {
    "brute": _brute,
    "cp-sat": _cp_sat,
}
_ON_FLOATS: dict[str, Callable[[Floats, float, int | None, float | None], Flags]] = {
    "highs": _highs,
    "gurobi": _gurobi,
}
NAMES = (*_ON_INTEGERS, *_ON_FLOATS)
