"""Which subset of these numbers has the sum closest to that target?

`subset_sum` answers exactly, for many instances at once: `kernels` finds the best subset of
integers, `measure` tells its error, `backends` asks other solvers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from untrained.construct.subset_sum import backends
from untrained.construct.subset_sum.kernels import (
    MOST,
    Flags,
    Floats,
    Integers,
    bytes_needed,
    make_space,
    solve_rows,
)
from untrained.construct.subset_sum.measure import measure
from untrained.construct.subset_sum.result import SubsetSums
from untrained.errors import ConstructError

_DEPTH = 48
"""How deep a tolerance is searched for where the whole cannot be: about 0.1 s an instance."""

_CHUNK = 4096  # instances that one thread solves at a time


def subset_sum(
    values: ArrayLike | Tensor,
    target: ArrayLike | Tensor,
    *,
    tolerance: ArrayLike | None = None,
    size: int | None = None,
    depth: int | None = None,
    seconds: float | None = None,
    backend: str | None = None,
    threads: int | None = None,
    max_bytes: int = 2**28,
) -> SubsetSums:
    """Find the subsets whose sums are closest to the targets; exactly, unless told otherwise.

    Of all subsets with the smallest error the one with the smallest mask is taken, the mask read as
    an integer whose bit i is item i, and errors compared in the solver's unit (`resolution`). So
    the answer is one, whatever the threads.

    Time doubles with every second item: 3 microseconds for 20 items, 5 ms for 40, 10 seconds for
    60. Memory is at most 34 MB a thread. Beyond 62 items, or to be quicker, give `tolerance`,
    `depth` or `seconds`; then the larger items are chosen greedily and the smallest exactly.

    Args:
        values: (..., n), numbers that float64 holds exactly (float32 and integers too).
        target: (...), broadcast against the instances of `values`.
        tolerance: an error that is small enough, for all or (...) for each; the search goes deeper
            until it is reached. That it is not reached is an answer, not an error.
        size: keep exactly so many items. The solver's unit is coarser, by 3 to 8 bits.
        depth: search at most so many items exactly, the smallest; the answer is the same each time.
        seconds: go deeper while the time suffices, by an estimate before every round; the one
            setting under which the answer depends on the machine. Another backend's limit for
            each instance.
        backend: None, or another solver: brute, cp-sat, highs, gurobi.
        threads: how many; as many as there are processors unless given. Not for a backend.
        max_bytes: the memory that the search may take beside its input and result; fewer threads
            run where that is enough.

    Returns:
        Masks, errors, what is proven, and `check()`.

    Raises:
        ConstructError: numbers that are not finite or overflow when added, shapes that do not fit,
            more items than can be searched, a missing solver, settings that exclude each other.
    """
    job = _Job.of(values, target, tolerance=tolerance, size=size)
    if backend is not None:
        _check_backend(backend, tolerance=tolerance, depth=depth)
        mask, optimal, resolution = backends.solve_with(
            backend, job.values, job.rows, job.targets, size=size, seconds=_limit(seconds)
        )
        return job.result(mask, optimal, resolution)
    eased = tolerance is not None or depth is not None or seconds is not None
    top = _top(job.n, eased=eased, depth=depth, size=size)
    if seconds is not None and depth is None:
        top = min(job.n, MOST)
    threads = _threads(threads, top, max_bytes)
    if seconds is None:
        return job.result(*_solve(job, top, threads))
    return job.result(*_solve_in_time(job, top, threads, _limit(seconds) or 0.0))


@dataclass(frozen=True, eq=False)
class _Job:
    """Instances, flat: targets[b] with the items of values[rows[b]]."""

    given: Floats
    values: Floats
    rows: Integers
    targets: Floats
    tolerance: Floats
    shape: tuple[int, ...]
    size: int | None

    @property
    def n(self) -> int:
        return int(self.values.shape[1])

    @classmethod
    def of(cls, values: object, target: object, *, tolerance: object, size: int | None) -> _Job:
        items, wanted = _floats(values, "values"), _floats(target, "target")
        near = _floats(-1.0 if tolerance is None else tolerance, "tolerance")
        if tolerance is not None and not (near >= 0).all():
            raise ConstructError(f"tolerance={tolerance!r}: an error that is accepted is >= 0")
        if items.ndim == 0:
            raise ConstructError("values is a single number; it has to be (..., n)")
        n = items.shape[-1]
        if size is not None and (not _whole(size) or not 0 <= size <= n):
            raise ConstructError(f"size={size!r}: a whole number from 0 to the {n} items")
        shape = _common_shape(items.shape[:-1], wanted.shape, near.shape)
        numbers = np.arange(math.prod(items.shape[:-1])).reshape(items.shape[:-1])
        # All are copies: the kernels are compiled again for arrays that cannot be written.
        flat = np.ascontiguousarray(items.reshape(len(numbers.reshape(-1)), n))
        job = cls(
            given=items,
            values=flat,
            rows=np.broadcast_to(numbers, shape).flatten(),
            targets=np.broadcast_to(wanted, shape).flatten(),
            tolerance=np.broadcast_to(near, shape).flatten(),
            shape=shape,
            size=size,
        )
        job.check_range()
        return job

    def check_range(self) -> None:
        """Require that no sum can overflow."""
        with np.errstate(over="ignore"):
            items = self.n * max(self.values.max(initial=0), -self.values.min(initial=0))
            if np.isfinite(items + np.abs(self.targets).max(initial=0)):
                return
            sums = np.abs(self.values).sum(axis=1)[self.rows] + np.abs(self.targets)
        for b in np.flatnonzero(~np.isfinite(sums)).tolist():
            at = tuple(map(int, np.unravel_index(b, self.shape)))
            raise ConstructError(
                f"instance {at}: its values and target add up to more than float64 can hold; "
                "divide all of them by a power of two"
            )

    def part(self, which: Integers | slice) -> tuple[Integers, Floats, Floats]:
        return self.rows[which], self.targets[which], self.tolerance[which]

    def result(self, mask: Flags, optimal: Flags, resolution: Floats) -> SubsetSums:
        error = measure(self.values, self.rows, self.targets, mask)
        return SubsetSums(
            mask=mask.reshape(*self.shape, self.n),
            error=error.reshape(self.shape),
            optimal=optimal.reshape(self.shape),
            resolution=resolution.reshape(self.shape),
            size=self.size,
            values=self.given,
            target=self.targets.reshape(self.shape),
        )


def _solve(
    job: _Job, depth: int, threads: int, which: Integers | None = None
) -> tuple[Flags, Flags, Floats]:
    """Solve all instances, or some, to one depth; every chunk writes to its own place."""
    rows, targets, tolerance = job.part(slice(None) if which is None else which)
    count, n = len(targets), job.n
    mask, optimal = np.empty((count, n), np.bool_), np.empty(count, np.bool_)
    resolution = np.empty(count)
    order = np.empty((1, n), np.int64)  # is not read
    if depth < n or (tolerance >= 0).any():
        order = np.argsort(np.abs(job.values), axis=1, kind="stable")

    def solve(part: slice) -> None:
        solve_rows(
            job.values, rows[part], targets[part], tolerance[part],
            -1 if job.size is None else job.size, depth, order,
            mask[part], optimal[part], resolution[part], np.empty((2, n), np.int64),
            make_space(min(depth, n)),
        )  # fmt: skip

    parts = list(_parts(count, threads))
    if threads == 1 or len(parts) <= 1:
        for part in parts:
            solve(part)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(solve, parts):
                pass
    return mask, optimal, resolution


def _solve_in_time(
    job: _Job, top: int, threads: int, seconds: float
) -> tuple[Flags, Flags, Floats]:
    """Go deeper by steps of four items, while the next step should end in time."""
    _solve(job, min(8, top), 1, np.arange(min(1, len(job.targets))))  # to compile takes no part
    start = time.monotonic()
    depth = min(16, top) if job.size is None else top
    mask, optimal, resolution = _solve(job, depth, threads)
    spent = time.monotonic() - start
    while depth < top:
        error = measure(job.values, job.rows, job.targets, mask)
        open_ = np.flatnonzero(~optimal & (error > job.tolerance))
        step_start = time.monotonic()
        if not open_.size or step_start - start + 4 * spent > seconds:
            break
        depth = min(depth + 4, top)
        next_mask, next_optimal, _ = _solve(job, depth, threads, open_)
        next_error = measure(job.values, job.rows[open_], job.targets[open_], next_mask)
        better = next_optimal | (next_error < error[open_])
        mask[open_[better]] = next_mask[better]
        optimal[open_] = next_optimal
        spent = time.monotonic() - step_start
    return mask, optimal, resolution


def _parts(count: int, threads: int) -> Iterator[slice]:
    length = min(_CHUNK, max(1, -(-count // (4 * threads))))
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


# --- what is refused ------------------------------------------------------------------------------


def _floats(numbers: Any, name: str) -> Floats:
    """The numbers as float64; refused if that would change them."""
    if isinstance(numbers, Tensor):
        numbers = numbers.detach().cpu()
        numbers = (numbers.double() if numbers.is_floating_point() else numbers).numpy()
    try:
        array = np.asarray(numbers)
    except ValueError as error:
        raise ConstructError(f"{name} is no array: {error}") from None
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise ConstructError(f"{name} is {array.dtype}; float64 or float32 is expected")
    floats = array.astype(np.float64)
    if array.dtype.kind in "iu" and not (np.abs(floats) <= 2.0**53).all():
        raise ConstructError(f"{name} holds integers above 2^53, which float64 does not hold")
    finite = np.isfinite(floats)
    if finite.all():
        return floats
    at = tuple(np.argwhere(~finite)[0].tolist())
    instance = at[:-1] if name == "values" else at
    raise ConstructError(
        f"instance {instance}: {name} holds {floats[at]}; every number has to be finite"
    )


def _common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        values, target, tolerance = shapes
        raise ConstructError(
            f"values has instances {values}, target {target} and tolerance {tolerance}, which do "
            "not broadcast; target has the shape of values without its last axis"
        ) from None


def _top(n: int, *, eased: bool, depth: int | None, size: int | None) -> int:
    """How many items are searched at most."""
    if depth is not None and (not _whole(depth) or not 1 <= depth <= MOST):
        raise ConstructError(f"depth={depth!r}: a whole number from 1 to {MOST}")
    if n <= MOST and (depth is None or depth >= n):
        return n
    if size is not None:
        raise ConstructError(
            f"size={size} of {n} items is searched exactly, which is possible up to {MOST} items "
            "and without a smaller depth=; use fewer items, or backend='cp-sat' with seconds="
        )
    if not eased:
        raise ConstructError(
            f"an exact search takes at most {MOST} items, and these are {n}; give tolerance= (any "
            "subset within it), depth= (search so many of the smallest items), seconds=, or a "
            "backend= with seconds="
        )
    return _DEPTH if depth is None else int(depth)


def _threads(threads: int | None, top: int, max_bytes: int) -> int:
    """How many threads there is memory for."""
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        threads = len(affinity(0)) if affinity else os.cpu_count() or 1
    if not _whole(threads) or threads < 1:
        raise ConstructError(f"threads={threads!r}: a whole number, at least 1")
    if not _whole(max_bytes):
        raise ConstructError(f"max_bytes={max_bytes!r}: a whole number of bytes")
    need = bytes_needed(top)
    if need > max_bytes:
        raise ConstructError(
            f"to search {top} items takes {need} bytes, and max_bytes is {max_bytes}; raise it, or "
            "give depth= (search so many of the smallest items)"
        )
    return min(int(threads), max_bytes // need)


def _check_backend(backend: str, *, tolerance: object, depth: object) -> None:
    if backend not in backends.NAMES:
        raise ConstructError(
            f"backend={backend!r} is unknown; there are {', '.join(backends.NAMES)}, and None for "
            "the exact search of this library"
        )
    if tolerance is not None or depth is not None:
        raise ConstructError(f"backend={backend!r} takes neither tolerance= nor depth=; drop them")


def _limit(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not isinstance(seconds, Real) or isinstance(seconds, bool) or not seconds > 0:
        raise ConstructError(f"seconds={seconds!r}: a positive number")
    return float(seconds)


def _whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)
