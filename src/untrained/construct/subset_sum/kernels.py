"""Which subset of integers has the sum closest to a target, if every one of 2^n counts?

Items q[0..n) and the target t are int64, and no sum of items and target exceeds 2^62. A subset is
its mask, an integer whose bit i says whether item i is kept. The answer is the smallest pair
(|t - sum|, mask): one answer, however it is found.

    n <= 13       every sum, in turn
    14 .. 36      A[i]: sums of the first half of the items; C[j]: t minus sums of the second half;
                  i and j are the halves of the mask, and the closest pair of A and C is wanted
    37 .. 62      the same in windows of values, each half enumerated in order of value from two
                  sorted lists of its quarters (Schroeppel and Shamir, 1981): memory 2^(n/4)
    whatever is hard for these (many equal sums, targets at the edge of what can be reached)
                  both halves enumerated in strict order by a heap, and walked side by side

The closest pair is found by a *join* without sorting. Values are cut into cells as wide as the
distance that is looked for, cells are hashed into a table of bits, and only elements that find an
occupied cell at their own place or next to it go on; a few rounds leave a handful, and these are
compared with each other. A pair as close as a cell is wide survives every round. So the best one
found is the best of all if it is as close as that; if not (the *guard*), the search starts again
with other cells, and at last with the heap.

Items and targets come as floats. They are multiplied by one power of two, chosen such that the
magnitudes of all items add up to less than 2^60, and rounded. Sums of integers do not depend on
their order, so the answer depends on neither threads nor algorithm. Most items are exact multiples
of the unit; where one is not, the order of two subsets can be wrong by less than the *resolution*,
n + 1 units, or about n * 1e-18 of the sum of all magnitudes. To keep exactly k of n items, a number
M larger than any two errors' difference is added to every item, and k M to the target: any subset
of another size is then worse than all of this one.

This is one long file because what is kept on disk is renewed if its own file changes, and not if a
file does whose functions it calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numba.core.options import DefaultOptions
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Int: TypeAlias = Any
"""An int64. In machine code it is the only integer; to a type checker `int` is another."""
F = TypeVar("F", bound=Callable[..., Any])

MOST = 62
"""The most items: a mask has to fit into a signed 64-bit integer."""

FEW = 13  # up to here, all sums are cheaper than a join
_LISTED = 36  # up to here, a half's sums are held at once
_CELLS = 5  # log2 of the cells of a table for each element of a list
_EXPECTED = 5.0  # pairs within a cell's width, by a normal law of the sums
_ATTEMPTS = 4  # with other cells, before the heap
_WIDER, _NARROWER = 6, 12  # log2 of how much wider cells are made if the guard fails, or narrower
_CROWD = 1 << 16  # more pairs than this are left to the heap, which merges equal sums
_BITS = 60  # the magnitudes of all items stay below 2^60
_FAR = np.int64(2**63 - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ONE, _WORD = np.uint64(1), np.uint64(64)


# What is compiled makes no arrays; to count references to those it is given costs more than to
# search 14 items.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_OPTIONS |= {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def compiled(function: F) -> F:
    """To machine code at the first call, then kept on disk; other threads may run meanwhile."""
    try:
        made = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no folder to write to: every process compiles for itself
        made = numba.njit(**_OPTIONS)(function)
    return cast(F, made)


class Space(NamedTuple):
    """What one thread works in."""

    a: Integers
    """Elements of the first half, and where in the mask they come from (`a_id`)."""
    a_id: NDArray[np.int32]
    c: Integers
    c_id: NDArray[np.int32]
    near_a: Integers
    """Those that are still in question."""
    near_a_id: NDArray[np.int32]
    near_c: Integers
    near_c_id: NDArray[np.int32]
    table: NDArray[np.uint64]
    spread: NDArray[np.uint64]
    lists: Integers
    """(5, quarter): sums of the four quarters, sorted; the fifth row is scratch."""
    lists_id: NDArray[np.int32]
    places: NDArray[np.int32]
    """(4, quarter): how far each row of a half has been read; before this window, or the heaps."""


def _log2_window(quarter: int) -> int:
    """log2 of the elements that a window should hold."""
    return min(quarter + 4, max(quarter + 1, 16))


def log2_sizes(n: int) -> tuple[int, int, int]:
    """log2 of the (elements, words of a table, entries of a quarter) for n items."""
    half = (n + 1) // 2
    quarter = (half + 1) // 2
    elements = half if n <= _LISTED else max(_log2_window(quarter) + 2, (_LISTED + 1) // 2)
    return elements, max(elements + _CELLS - 6, 0), quarter


def bytes_needed(n: int) -> int:
    """The memory of one thread that searches n items."""
    elements, words, quarter = log2_sizes(n)
    return (48 << elements) + (16 << words) + (76 << quarter)


def make_space(n: int) -> Space:
    """Room for n items."""
    elements, words, quarter = log2_sizes(n)
    values, ids = np.empty((4, 2**elements), np.int64), np.empty((4, 2**elements), np.int32)
    return Space(
        *(values[0], ids[0], values[1], ids[1]),
        *(values[2], ids[2], values[3], ids[3]),
        table=np.empty(2**words, np.uint64),
        spread=np.empty(2**words, np.uint64),
        lists=np.empty((5, 2**quarter), np.int64),
        lists_id=np.empty((5, 2**quarter), np.int32),
        places=np.empty((4, 2**quarter), np.int32),
    )


# --- the search -----------------------------------------------------------------------------------


@compiled
def search(q: Integers, n: Int, t: Int, size: Int, space: Space) -> tuple[Int, Int]:
    """The smallest (|t - sum|, mask) of n <= 62 items; `size` >= 0 tells what `t` was raised for.

    With `size`, every item was raised by the same large number, and the target by `size` of them.
    """
    if n <= FEW:
        return try_all(q, n, t, space.a)
    least = most = np.int64(0)
    negative = positive = np.int64(0)
    for i in range(n):
        if q[i] < 0:
            least += q[i]
            negative |= np.int64(1) << i
        elif q[i] > 0:
            most += q[i]
            positive |= np.int64(1) << i
    if t <= least:
        return least - t, negative
    if t >= most:
        return t - most, positive
    shift = _cell(q, n, t, size)
    for _ in range(_ATTEMPTS):
        if n <= _LISTED:
            error, mask = _join_lists(q, n, t, shift, space)
        else:
            error, mask = _join_windows(q, n, t, shift, space)
        if 0 <= error <= np.int64(1) << shift:
            return error, mask
        if error < 0:
            shift = max(shift - _NARROWER, 0)
        else:  # no cell has to be wider than the best pair so far
            widest = min(shift + _WIDER, 58)
            while shift < widest and np.int64(1) << shift < error:
                shift += 1
    return _walk(q, n, t, space)


@compiled
def _cell(q: Integers, n: Int, t: Int, size: Int) -> Int:
    """log2 of a cell's width, such that a few pairs at the target are as close as that."""
    total = squares = 0.0
    for i in range(n):
        total += float(q[i])
        squares += float(q[i]) ** 2
    count = float(n)
    mean, variance = total / 2, squares / 4
    if size >= 0:
        centred = max(squares - total * (total / n), 0.0)
        mean, variance = total * size / n, size * (n - size) / (n * max(n - 1.0, 1.0)) * centred
        count = 0.0
        for i in range(size):
            count += math.log2((n - i) / (i + 1.0))
    deviation = math.sqrt(max(variance, 1.0))
    away = min(((t - mean) / deviation) ** 2 / 2, 40.0)
    width = math.log2(_EXPECTED / 2 * math.sqrt(2 * math.pi) * deviation) + away / math.log(2.0)
    return int(min(max(math.ceil(width - count), 0.0), 56.0))


@compiled
def try_all(q: Integers, n: Int, t: Int, a: Integers) -> tuple[Int, Int]:
    """All sums, a row of up to 128 for every choice of the last items."""
    low = (n + 1) // 2
    _double(q, 0, low, 0, a)
    width = 1 << low
    best, high, at = _FAR, 0, np.int64(0)
    for upper in range(1 << (n - low)):
        rest = np.int64(t)
        for i in range(n - low):
            if upper >> i & 1:
                rest -= q[low + i]
        nearest = _FAR
        for i in range(width):
            nearest = min(nearest, abs(rest - a[i]))
        if nearest < best:
            best, high, at = nearest, upper, rest
    for i in range(width):
        if abs(at - a[i]) == best:
            return best, np.int64(high) << low | i
    return best, np.int64(0)  # never: the best is one of them


@compiled
def _double(q: Integers, start: Int, count: Int, base: Int, sums: Integers) -> None:
    """`base` plus every sum of `count` items, at the index that is its mask."""
    sums[0] = base
    size = 1
    for k in range(count):
        x = q[start + k]
        for i in range(size):
            sums[size + i] = sums[i] + x
        size *= 2


@compiled
def _join_lists(q: Integers, n: Int, t: Int, shift: Int, space: Space) -> tuple[Int, Int]:
    """The best pair of two lists that are held at once; its error may be above the guard."""
    low = (n + 1) // 2
    high = n - low
    _double(q, 0, low, 0, space.a)
    c = space.c
    c[0] = t
    for k in range(high):
        x = q[low + k]
        for i in range(1 << k):
            c[(1 << k) + i] = c[i] - x
    return _join(1 << low, 1 << high, low, shift, False, space)


# --- the join -------------------------------------------------------------------------------------


@compiled
def _join(n_a: Int, n_c: Int, low: Int, shift: Int, named: bool, space: Space) -> tuple[Int, Int]:
    """The best pair of the first n_a elements of A and n_c of C; error -1 if there is a crowd.

    `named` says whether `a_id` and `c_id` hold the elements' masks; else their index is it.
    """
    bits = max(_CELLS + 1, 6)
    while 1 << (bits - _CELLS) < n_c:
        bits += 1
    n_a = _sieve_by_place(n_a, n_c, shift, bits, named, space)
    _mark(space.near_a, n_a, shift, bits, _ODD, space.table)
    n_c = _sieve(space.c, space.c_id, n_c, shift, bits, _ODD, named, space.table,
                 space.near_c, space.near_c_id)  # fmt: skip
    odd = _ODD
    for _ in range(3):
        if n_a * n_c <= 512:
            break
        odd = odd * _ODD
        n_a = _sieve_again(space.near_a, space.near_a_id, n_a, space.near_c, n_c, shift, odd, space)
        odd = odd * _ODD
        n_c = _sieve_again(space.near_c, space.near_c_id, n_c, space.near_a, n_a, shift, odd, space)
    if n_a * n_c > _CROWD:
        return np.int64(-1), np.int64(0)
    return _best_pair(n_a, n_c, low, space)


@compiled
def _sieve_by_place(n_a: Int, n_c: Int, shift: Int, bits: Int, named: bool, space: Space) -> Int:
    """Keep the elements of A in or beside a cell with one of C, cells taken modulo the table."""
    a, c, table, spread = space.a, space.c, space.table, space.spread
    near, near_id = space.near_a, space.near_a_id
    words = 1 << (bits - 6)
    for w in range(words):
        table[w] = 0
    last, six = np.uint64((1 << bits) - 1), np.uint64(6)
    low_bits = np.uint64(63)
    for j in range(n_c):
        cell = np.uint64(c[j] >> shift) & last
        table[cell >> six] |= _ONE << (cell & low_bits)
    for w in range(1, words - 1):
        x = table[w]
        spread[w] = x | x << _ONE | x >> _ONE | table[w - 1] >> low_bits | table[w + 1] << low_bits
    for w in (0, words - 1):
        x, left, right = table[w], table[(w - 1) % words], table[(w + 1) % words]
        spread[w] = x | x << _ONE | x >> _ONE | left >> low_bits | right << low_bits
    kept: Int = 0
    for i in range(n_a):
        cell = np.uint64(a[i] >> shift) & last
        near[kept] = a[i]
        near_id[kept] = space.a_id[i] if named else i
        kept += np.int64(spread[cell >> six] >> (cell & low_bits) & _ONE)
    return kept


@compiled
def _mark(
    values: Integers, n: Int, shift: Int, bits: Int, odd: Int, table: NDArray[np.uint64]
) -> None:
    """Clear a table, and mark in it the hashed cells of all values, and the cells beside them."""
    for w in range(1 << (bits - 6)):
        table[w] = 0
    down, six, low_bits = _WORD - np.uint64(bits), np.uint64(6), np.uint64(63)
    for i in range(n):
        place = np.uint64((values[i] >> shift) - 1) * odd
        for _ in range(3):
            cell = place >> down
            table[cell >> six] |= _ONE << (cell & low_bits)
            place += odd


@compiled
def _sieve(
    values: Integers, ids: NDArray[np.int32], n: Int, shift: Int, bits: Int, odd: Int, named: bool,
    table: NDArray[np.uint64], near: Integers, near_id: NDArray[np.int32],
) -> Int:  # fmt: skip
    """Keep the values whose hashed cell is marked; `near` may be `values`."""
    down, six, low_bits = _WORD - np.uint64(bits), np.uint64(6), np.uint64(63)
    kept: Int = 0
    for i in range(n):
        value = values[i]
        cell = (np.uint64(value >> shift) * odd) >> down
        near[kept] = value
        near_id[kept] = ids[i] if named else i
        kept += np.int64(table[cell >> six] >> (cell & low_bits) & _ONE)
    return kept


@compiled
def _sieve_again(
    values: Integers, ids: NDArray[np.int32], n: Int, others: Integers, n_others: Int, shift: Int,
    odd: Int, space: Space,
) -> Int:  # fmt: skip
    """Keep the values that are near one of the few others, in place; returns how many."""
    bits = max(_CELLS + 1, 6)
    while 1 << (bits - _CELLS) < n_others:
        bits += 1
    _mark(others, n_others, shift, bits, odd, space.table)
    return _sieve(values, ids, n, shift, bits, odd, True, space.table, values, ids)


@compiled
def _best_pair(n_a: Int, n_c: Int, low: Int, space: Space) -> tuple[Int, Int]:
    """Compare all that are left: the smallest (distance, mask), or the largest integer if none."""
    best, best_mask = _FAR, np.int64(0)
    for j in range(n_c):
        c = space.near_c[j]
        for i in range(n_a):
            error = abs(c - space.near_a[i])
            if error <= best:
                mask = np.int64(space.near_c_id[j]) << low | np.int64(space.near_a_id[i])
                if error < best or mask < best_mask:
                    best, best_mask = error, mask
    return best, best_mask


# --- four sorted lists ----------------------------------------------------------------------------


@compiled
def _sort_sums(
    q: Integers, start: Int, count: Int, base: Int, sign: Int, first_bit: Int, row: Int,
    space: Space,
) -> Int:  # fmt: skip
    """Write `base` + `sign` times every sum of `count` items to a row, in order; returns how many.

    Of equal sums, the smallest mask stays: an item's own is above those of all items before it.
    """
    sums, ids = space.lists[row], space.lists_id[row]
    old, old_id = space.lists[4], space.lists_id[4]
    sums[0], ids[0] = base, 0
    size = 1
    for k in range(count):
        x, bit = sign * q[start + k], np.int32(1 << (first_bit + k))
        for i in range(size):
            old[i], old_id[i] = sums[i], ids[i]
        i = j = out = 0
        while i < size or j < size:
            if j == size or (i < size and old[i] <= old[j] + x):
                if j < size and old[i] == old[j] + x:
                    j += 1
                sums[out], ids[out] = old[i], old_id[i]
                i += 1
            else:
                sums[out], ids[out] = old[j] + x, old_id[j] | bit
                j += 1
            out += 1
        size = out
    return size


@compiled
def _sort_quarters(q: Integers, n: Int, t: Int, space: Space) -> tuple[Int, Int, Int, Int]:
    """The quarters' sums: A = row 0 + row 1 and C = row 2 + row 3; returns how many in each."""
    low = (n + 1) // 2
    high = n - low
    return (
        _sort_sums(q, 0, low // 2, 0, 1, 0, 0, space),
        _sort_sums(q, low // 2, low - low // 2, 0, 1, low // 2, 1, space),
        _sort_sums(q, low, high // 2, t, -1, 0, 2, space),
        _sort_sums(q, low + high // 2, high - high // 2, 0, -1, high // 2, 3, space),
    )


@compiled
def _place(rows: Integers, n_rows: Int, row: Integers, n: Int, start: Int,
           places: NDArray[np.int32]) -> None:  # fmt: skip
    """For every entry of `rows`, the first place of `row` where their sum reaches `start`."""
    at = n
    for i in range(n_rows):  # the larger the entry, the earlier the place
        while at > 0 and rows[i] + row[at - 1] >= start:
            at -= 1
        places[i] = at


@compiled
def _fill(
    rows: Integers, rows_id: NDArray[np.int32], n_rows: Int, row: Integers,
    row_id: NDArray[np.int32], n: Int, keep: Int, stop: Int, places: NDArray[np.int32],
    out: Integers, out_id: NDArray[np.int32],
) -> Int:  # fmt: skip
    """Take from every row on what is below `stop`; the places move on to `keep` <= `stop`.

    Returns how many were taken, or -1 if they were too many.
    """
    count = 0
    room = len(out) - n
    for i in range(n_rows):
        base, base_id = rows[i], rows_id[i]
        p = np.int64(places[i])
        if count > room:
            return -1
        while p < n and base + row[p] < keep:
            out[count], out_id[count] = base + row[p], base_id | row_id[p]
            count += 1
            p += 1
        places[i] = p
        while p < n and base + row[p] < stop:
            out[count], out_id[count] = base + row[p], base_id | row_id[p]
            count += 1
            p += 1
    return count


@compiled
def _copy(places: NDArray[np.int32], n: Int, out: NDArray[np.int32]) -> None:
    for i in range(n):
        out[i] = places[i]


@compiled
def _next(rows: Integers, n_rows: Int, row: Integers, n: Int, places: NDArray[np.int32]) -> Int:
    """The smallest element that was not read yet; the largest integer if there is none."""
    nearest = _FAR
    for i in range(n_rows):
        if places[i] < n:
            nearest = min(nearest, rows[i] + row[places[i]])
    return nearest


@compiled
def _join_windows(q: Integers, n: Int, t: Int, shift: Int, space: Space) -> tuple[Int, Int]:
    """The best pair of two halves that are enumerated in windows; -1 if that is not possible.

    A window takes A in [start, stop) and C in [start - cell, stop + cell): no close pair is cut.
    """
    n1, n2, n3, n4 = _sort_quarters(q, n, t, space)
    l1, l2, l3, l4 = space.lists[0], space.lists[1], space.lists[2], space.lists[3]
    i1, i2, i3, i4 = space.lists_id[0], space.lists_id[1], space.lists_id[2], space.lists_id[3]
    at_a, at_c, was_a, was_c = space.places[0], space.places[1], space.places[2], space.places[3]
    low, cell = (n + 1) // 2, np.int64(1) << shift
    start = max(l1[0] + l2[0], l3[0] + l4[0]) - cell
    end = min(l1[n1 - 1] + l2[n2 - 1], l3[n3 - 1] + l4[n4 - 1]) + cell
    _place(l1, n1, l2, n2, start, at_a)
    _place(l3, n3, l4, n4, start - cell, at_c)
    quarter = (low + 1) // 2
    wanted = np.int64(1) << min(quarter + 4, max(quarter + 1, 16))  # as in _log2_window
    width = max((end - start) // 256, np.int64(1))
    best, best_mask = _FAR, np.int64(0)
    while start <= end:
        _copy(at_a, n1, was_a)
        _copy(at_c, n3, was_c)
        stop = start + width
        n_a = _fill(l1, i1, n1, l2, i2, n2, stop, stop, at_a, space.a, space.a_id)
        n_c = -1
        if n_a >= 0:
            n_c = _fill(l3, i3, n3, l4, i4, n4, stop - cell, stop + cell, at_c,
                        space.c, space.c_id)  # fmt: skip
        if n_a < 0 or n_c < 0:
            if width == 1:
                return np.int64(-1), np.int64(0)
            _copy(was_a, n1, at_a)
            _copy(was_c, n3, at_c)
            width = max(width // 4, np.int64(1))
            continue
        if n_a > 0 and n_c > 0:
            error, mask = _join(n_a, n_c, low, shift, True, space)
            if error < 0:
                return error, mask
            if error < best or (error == best and mask < best_mask):
                best, best_mask = error, mask
        start = stop
        if n_a == 0:  # perhaps a gap: go on at the next element
            start = max(start, _next(l1, n1, l2, n2, at_a))
            _place(l3, n3, l4, n4, start - cell, at_c)
        larger = max(n_a, n_c)
        if larger < wanted // 2:
            width = min(2 * width, max(end - start, np.int64(1)))
        elif larger > wanted + wanted // 2:
            width = max(width - width // 4, np.int64(1))
    return best, best_mask


# --- strict order ---------------------------------------------------------------------------------


@compiled
def _walk(q: Integers, n: Int, t: Int, space: Space) -> tuple[Int, Int]:
    """The best pair, both halves read in order of value, equal ones merged."""
    n1, n2, n3, n4 = _sort_quarters(q, n, t, space)
    l1, l2, l3, l4 = space.lists[0], space.lists[1], space.lists[2], space.lists[3]
    i1, i2, i3, i4 = space.lists_id[0], space.lists_id[1], space.lists_id[2], space.lists_id[3]
    at_a, at_c, heap_a, heap_c = (
        space.places[0], space.places[1], space.places[2], space.places[3],
    )  # fmt: skip
    low = (n + 1) // 2
    start = max(l1[0] + l2[0], l3[0] + l4[0])
    _place(l1, n1, l2, n2, start, at_a)
    _place(l3, n3, l4, n4, start, at_c)
    below_a, below_a_id = _before(l1, i1, n1, l2, i2, at_a)
    below_c, below_c_id = _before(l3, i3, n3, l4, i4, at_c)
    size_a = _heapify(l1, n1, l2, n2, at_a, heap_a)
    size_c = _heapify(l3, n3, l4, n4, at_c, heap_c)
    best, best_mask = _FAR, np.int64(0)
    a, a_id, size_a = _take(l1, i1, l2, i2, n2, at_a, heap_a, size_a)
    c, c_id, size_c = _take(l3, i3, l4, i4, n4, at_c, heap_c, size_c)
    # Of one half, what lies below the other's first element is further from it than its last.
    if below_a_id >= 0:
        best, best_mask = abs(c - below_a), c_id << low | below_a_id
    if below_c_id >= 0:
        best, best_mask = abs(a - below_c), below_c_id << low | a_id
    while a_id >= 0 and c_id >= 0:
        error, mask = abs(a - c), c_id << low | a_id
        if error < best or (error == best and mask < best_mask):
            best, best_mask = error, mask
        take_a, take_c = a <= c, c <= a
        if take_a:
            a, a_id, size_a = _take(l1, i1, l2, i2, n2, at_a, heap_a, size_a)
        if take_c:
            c, c_id, size_c = _take(l3, i3, l4, i4, n4, at_c, heap_c, size_c)
    return best, best_mask


@compiled
def _before(
    rows: Integers, rows_id: NDArray[np.int32], n_rows: Int, row: Integers,
    row_id: NDArray[np.int32], places: NDArray[np.int32],
) -> tuple[Int, Int]:  # fmt: skip
    """The largest element before the places, with its smallest mask; mask -1 if there is none."""
    most, most_id = -_FAR, np.int64(-1)
    for i in range(n_rows):
        if places[i] > 0:
            value = rows[i] + row[places[i] - 1]
            name = np.int64(rows_id[i] | row_id[places[i] - 1])
            if value > most or (value == most and name < most_id):
                most, most_id = value, name
    return most, most_id


@compiled
def _heapify(
    rows: Integers, n_rows: Int, row: Integers, n: Int, places: NDArray[np.int32],
    heap: NDArray[np.int32],
) -> Int:  # fmt: skip
    """A heap of the rows that are not at their end, by their next element; returns its size."""
    size = 0
    for i in range(n_rows):
        if places[i] < n:
            heap[size] = i
            size += 1
    for k in range(size // 2 - 1, -1, -1):
        _sink(rows, row, places, heap, k, size)
    return size


@compiled
def _sink(
    rows: Integers, row: Integers, places: NDArray[np.int32], heap: NDArray[np.int32], k: Int,
    size: Int,
) -> None:  # fmt: skip
    """Put entry k of the heap where it belongs, below its place."""
    moving = heap[k]
    value = rows[moving] + row[places[moving]]
    while 2 * k + 1 < size:
        child = 2 * k + 1
        child_value = rows[heap[child]] + row[places[heap[child]]]
        if child + 1 < size:
            other = rows[heap[child + 1]] + row[places[heap[child + 1]]]
            if other < child_value:
                child, child_value = child + 1, other
        if value <= child_value:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = moving


@compiled
def _take(
    rows: Integers, rows_id: NDArray[np.int32], row: Integers, row_id: NDArray[np.int32], n: Int,
    places: NDArray[np.int32], heap: NDArray[np.int32], size: Int,
) -> tuple[Int, Int, Int]:  # fmt: skip
    """The next value with its smallest mask (-1 if there is none), and the size of the heap."""
    value, name = np.int64(0), np.int64(-1)
    while size > 0:
        i = heap[0]
        at = places[i]
        next_value = rows[i] + row[at]
        if name >= 0 and next_value != value:
            break
        next_name = np.int64(rows_id[i] | row_id[at])
        if name < 0 or next_name < name:
            name = next_name
        value = next_value
        places[i] = at + 1
        if at + 1 == n:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            _sink(rows, row, places, heap, 0, size)
    return value, name, size


# --- floats as integers ---------------------------------------------------------------------------


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


# --- many instances -------------------------------------------------------------------------------


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
