"""What is the random value at this place?

A value is a function of (seed, name, index, law) and of nothing else: not of what was drawn before,
of the device, the number of threads, the size of the tensor, or a library's version.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
A *stream* is named by a seed and a name. Of SHA-256("untrained.random.1\\0" + seed + name), where
the seed is 8 little-endian bytes and the name UTF-8, bytes 0..7 are the key, two little-endian
words, and bytes 8..15 the counter's words 2 and 3; its words 0 and 1 are the block's number, low
and high. Word i of a stream is lane i % 4 of block i // 4.

Element i of a tensor is numbered row-major over the logical (out, in, ...) shape:

    signs     bit i % 32 of word i // 32: 1 is +scale, 0 is -scale
    uniform   the top 24 bits of word i as s in [-2^23, 2^23): (2s + 1) * (bound / 2^24)
    normal    bit 31 of word i is the sign (1 is -), bits 19..30 a cell of a table of the half
              normal, bits 0..18 where in the cell; m is interpolated in integers between the knots
              and the value +-(2m + 1) * (sd / 2^22)

All integers above are exact in float32, so that each value is rounded once, in one product.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from importlib import resources
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from untrained.errors import RandomError
from untrained.laws import Distribution, Law, Place

GENERATOR = 1
"""The version of the map from (seed, name, index) to values; a ticket carries it."""

Words: TypeAlias = NDArray[np.uint32]
Index: TypeAlias = int | slice | EllipsisType

_CHUNK = 1 << 16  # elements at a time: temporaries stay in the processor's cache
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_CELLS = 4096
_TABLE_SHA256 = "bc8e7208a16df19b20c7e6b7fc0c241c679742354f5c4175791a88455f80dd1e"


def draw(
    seed: int,
    name: str,
    shape: tuple[int, ...],
    law: Law | str,
    *,
    place: Place | None = None,
    index: Index | tuple[Index, ...] | None = None,
) -> Tensor:
    """Draw a tensor, or any slice of it alone.

    Args:
        seed: 0 <= seed < 2**64.
        name: the stream's name, such as `layers.3.query/weights`.
        shape: the logical shape, (out, in, ...).
        law: a law, or the name of one.
        place: facts for the law beyond the shape.
        index: integers and slices as in `tensor[index]`; only what they select is drawn.

    Returns:
        float32, on the CPU; with `index`, equal to the whole tensor at that index.

    Raises:
        RandomError: a seed, name, shape, law or index that makes no sense.
    """
    shape = _check_shape(shape)
    law = Law(law) if isinstance(law, str) else law
    distribution = law.distribution(place or Place(shape))
    stream = _Stream(seed, name)
    if index is None:
        values = np.empty(math.prod(shape), np.float32)
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            stream.fill(part, start, distribution)
        return torch.from_numpy(values.reshape(shape))
    places = _numbers(shape, index)
    values = np.empty(places.shape, np.float32)
    flat, numbers = values.reshape(-1), places.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        stop = start + _CHUNK
        flat[start:stop] = stream.at(numbers[start:stop], distribution)
    return torch.from_numpy(values)


def words(seed: int, name: str, start: int, stop: int) -> Words:
    """The words `start` to `stop` of a stream, 32 random bits each.

    Raises:
        RandomError: a seed or name that makes no sense, or not 0 <= start <= stop.
    """
    if not 0 <= start <= stop:
        raise RandomError(f"words {start} to {stop}: start is 0 or more, stop not below it")
    return _Stream(seed, name).words(start, stop)


class _Stream:
    """The words of one (seed, name), and the values made of them."""

    def __init__(self, seed: int, name: str) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise RandomError(f"seed={seed!r}: a seed is a whole number, 0 <= seed < 2**64")
        if not isinstance(name, str):
            raise RandomError(f"name={name!r}: the name of a stream is text")
        text = f"untrained.random.{GENERATOR}\0".encode()
        digest = hashlib.sha256(text + seed.to_bytes(8, "little") + _utf8(name)).digest()
        self.key = (int.from_bytes(digest[0:4], "little"), int.from_bytes(digest[4:8], "little"))
        self.high = tuple(int.from_bytes(digest[i : i + 4], "little") for i in (8, 12))

    def words(self, start: int, stop: int) -> Words:
        """A run of words."""
        first = start // 4
        blocks = np.arange(first, -(-stop // 4), dtype=np.uint64)
        return self.blocks(blocks).reshape(-1)[start - 4 * first : stop - 4 * first]

    def blocks(self, numbers: NDArray[np.uint64]) -> Words:
        """Philox4x32-10 of these blocks, (blocks, 4)."""
        c0, c1 = numbers & _LOW, numbers >> _HALF
        c2, c3 = (np.full(len(numbers), word, np.uint64) for word in self.high)
        p0, p1 = np.empty_like(c0), np.empty_like(c0)
        k0, k1 = self.key
        for _ in range(10):  # in place: a round makes no array
            np.multiply(c0, _MULTIPLIERS[0], out=p0)
            np.multiply(c2, _MULTIPLIERS[1], out=p1)
            np.right_shift(p1, _HALF, out=c0)
            c0 ^= c1
            c0 ^= np.uint64(k0)
            np.right_shift(p0, _HALF, out=c2)
            c2 ^= c3
            c2 ^= np.uint64(k1)
            np.bitwise_and(p1, _LOW, out=c1)
            np.bitwise_and(p0, _LOW, out=c3)
            k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
        out = np.empty((len(numbers), 4), np.uint32)
        for lane, column in enumerate((c0, c1, c2, c3)):
            out[:, lane] = column
        return out

    def fill(self, out: NDArray[np.float32], start: int, distribution: Distribution) -> None:
        """Write the elements from number `start` on."""
        stop = start + len(out)
        if distribution.kind == "constant":
            out[:] = distribution.scale
        elif distribution.kind == "signs":
            first = start // 32
            held = self.words(first, -(-stop // 32)).astype("<u4")
            bits = np.unpackbits(held.view(np.uint8), bitorder="little")
            _signs(bits[start - 32 * first : stop - 32 * first], distribution.scale, out)
        else:
            out[:] = _values(self.words(start, stop), distribution)

    def at(self, numbers: NDArray[np.int64], distribution: Distribution) -> NDArray[np.float32]:
        """The elements of these numbers, in any order."""
        out = np.empty(len(numbers), np.float32)
        if distribution.kind == "constant":
            out[:] = distribution.scale
        elif distribution.kind == "signs":
            bits = self.pick(numbers // 32) >> (numbers % 32).astype(np.uint32) & np.uint32(1)
            _signs(bits.astype(np.uint8), distribution.scale, out)
        else:
            out[:] = _values(self.pick(numbers), distribution)
        return out

    def pick(self, numbers: NDArray[np.int64]) -> Words:
        """The words of these numbers, each block computed once."""
        blocks, inverse = np.unique(numbers // 4, return_inverse=True)
        return self.blocks(blocks.astype(np.uint64))[inverse, numbers % 4]


def _signs(bits: NDArray[np.uint8], scale: float, out: NDArray[np.float32]) -> None:
    np.multiply(bits, np.float32(2), out=out, casting="unsafe")
    out -= np.float32(1)
    out *= np.float32(scale)


def _values(held: Words, distribution: Distribution) -> NDArray[np.float32]:
    """Uniform or normal values of these words."""
    if distribution.kind == "uniform":
        whole = ((held.view(np.int32) >> np.int32(8)) << np.int32(1)) | np.int32(1)
        step = distribution.scale / 2**24
    else:
        whole = _half_normal(held)
        step = distribution.scale / 2**22
    return whole.astype(np.float32) * np.float32(step)


def _half_normal(held: Words) -> NDArray[np.int32]:
    """+-(2m + 1), m by interpolation in the table of the half normal, in units of sd / 2^21."""
    knots, steps = _table()
    cell = (held >> np.uint32(19)) & np.uint32(_CELLS - 1)
    within = (held & np.uint32(2**19 - 1)).astype(np.int64)
    m = knots[cell] + ((steps[cell] * within) >> 19)
    odd = (2 * m + 1).astype(np.int32)
    sign = (held >> np.uint32(31)).astype(np.int32)
    return (odd ^ -sign) + sign


@cache
def _table() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The knots of the half normal's cells, and the step to the next."""
    data = resources.files("untrained.data").joinpath("half_normal.i32").read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != _TABLE_SHA256:
        raise RandomError(
            f"the table of the normal law is damaged ({found[:8]} instead of {_TABLE_SHA256[:8]}); "
            "install untrained again"
        )
    knots = np.frombuffer(data, "<i4").astype(np.int64)
    return knots[:-1], np.diff(knots)


def _check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    sizes = tuple(shape)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise RandomError(f"shape={shape!r}: a shape is whole numbers, 0 or more")
    if math.prod(sizes) >= 2**62:
        raise RandomError(f"shape={shape!r} has more elements than can be numbered")
    return sizes


def _numbers(shape: tuple[int, ...], index: Index | tuple[Index, ...]) -> NDArray[np.int64]:
    """The row-major numbers of the elements that an index selects, in the shape it gives."""
    given = index if isinstance(index, tuple) else (index,)
    numbers: Any = np.int64(0)
    kept = 0
    for axis, part in enumerate(_spelled_out(given, len(shape), shape)):
        stride = math.prod(shape[axis + 1 :])
        if isinstance(part, slice):
            along = np.arange(*part.indices(shape[axis]), dtype=np.int64)
            numbers = numbers[..., None] + along * stride if kept else numbers + along * stride
            kept += 1
        else:
            numbers = numbers + _position(part, shape[axis], axis) * stride
    return np.asarray(numbers, np.int64)


def _spelled_out(
    given: tuple[Index, ...], axes: int, shape: tuple[int, ...]
) -> Iterator[int | slice]:
    """One integer or slice per axis, an ellipsis replaced by what it stands for."""
    if given.count(...) > 1 or len(given) - given.count(...) > axes:
        raise RandomError(f"index {given} does not fit the shape {shape}")
    missing = [slice(None)] * (axes - len(given) + given.count(...))
    at = given.index(...) if ... in given else len(given)
    for part in (*given[:at], *missing, *given[at + 1 :]):
        if not isinstance(part, int | slice) or isinstance(part, bool):
            raise RandomError(f"index {part!r}: an index is integers, slices and one ellipsis")
        yield part


def _position(part: int, size: int, axis: int) -> int:
    if not -size <= part < size:
        raise RandomError(f"index {part} is outside axis {axis}, of size {size}")
    return part % size


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise RandomError(f"name={name!r} is not text that UTF-8 can hold") from None
