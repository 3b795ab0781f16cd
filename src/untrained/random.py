"""Which random value stands at this index?

A value is a function of (seed, name, index, law) alone: not of what was drawn before, of how much
is drawn, of threads, devices, processors or versions. So a tensor is stored as its seed, and any
part of it can be drawn again by itself.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011). A *stream* has a seed and a name. Let h be the SHA-256 of the bytes

    "untrained.random.1", a zero byte, the seed in 8 bytes (little-endian), the name in UTF-8

Read as little-endian 32-bit words, h[0:8] is the key and h[8:16] the counter's words 2 and 3; the
counter's words 0 and 1 are the number of the block, low and high. Word i of the stream is word
i % 4 of block i // 4. Element i of a tensor, counted row-major over its logical shape, is made of
word i = u (32 bits), or for signs of one bit of word i // 32:

    signs      bit i % 32 of word i // 32: 1 is +scale, 0 is -scale
    uniform    k * (scale / 2^24), where s is u >> 8, taken as signed 24 bits, and k = 2s + 1
    normal     +-m * (scale / 2^48), where bit 31 of u is the sign (1 is -), bits 19 to 30 a cell c
               of the table `data/half_normal.i32`, bits 0 to 18 a place f in the cell, and
               m = knot[c] * 2^20 + (knot[c + 1] - knot[c]) * (2f + 1)

`scale` is the law's, rounded to float32; dividing it by the power of two is exact. The integers k
and m are exact until they are rounded to float32 (k needs no rounding) and multiplied, once. Hence
no value is zero, and each is as likely as its negative.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from types import EllipsisType
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from untrained.errors import RandomError
from untrained.laws import Distribution, Law, Place, whole_number

GENERATOR = 1
"""The version of all that the docstring above says. Every ticket carries it."""

Index: TypeAlias = int | slice | EllipsisType
Words: TypeAlias = NDArray[np.uint32]
Numbers: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float32]

_CHUNK = 1 << 15  # words at a time: all that a chunk needs stays in the processor's cache
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_TABLE = "half_normal.i32"
_TABLE_SHA256 = "bfe9cafb7efa91268b4f5bcf410d788e81859e2471645110da70ef69f2f474ba"


def draw(
    seed: int,
    name: str,
    shape: tuple[int, ...],
    law: Law | str,
    *,
    place: Place | None = None,
    index: Index | tuple[Index, ...] | None = None,
) -> Tensor:
    """Draw a tensor, or a part of it alone.

    Args:
        seed: at least 0 and below 2^64.
        name: which stream, such as `layers.3.query/weights`; other names give independent values.
        shape: the logical shape, (out, in, ...).
        law: a law, or the name of one.
        place: what the law may know beside the shape; `Place(shape)` unless given.
        index: integers and slices (any step), with at most one `...`, as numpy reads them. Only
            what they select is drawn: memory is that of the part.

    Returns:
        float32 on the CPU, contiguous; with `index`, the values of the whole tensor there.

    Raises:
        RandomError: a seed, name, shape, law, place or index that makes no sense.
    """
    law = law if isinstance(law, Law) else Law(law)
    whole = Place(shape)
    if place is not None and place.shape != whole.shape:
        raise RandomError(f"the shape is {whole.shape}, that of its place {place.shape}; give one")
    distribution = law.distribution(place or whole)
    stream = _Stream(seed, name)
    part = _select(whole.shape, index)
    values = np.empty(part.shape, np.float32)
    flat = values.reshape(-1)
    chunk = _CHUNK * (32 if distribution.kind == "signs" and part.first is not None else 1)
    for start in range(0, len(flat), chunk):
        stop = min(start + chunk, len(flat))
        _fill(flat[start:stop], part.numbers(start, stop), stream, distribution)
    return torch.from_numpy(values)


def words(seed: int, name: str, start: int, stop: int) -> Words:
    """Words `start` to `stop` of a stream: 32 random bits each, as (stop - start,) uint32.

    Raises:
        RandomError: a seed or name that makes no sense, or not 0 <= start <= stop < 2^64.
    """
    stream = _Stream(seed, name)
    start = whole_number(start, "the first word", least=0)
    stop = whole_number(stop, "the end of the words", least=start, below=2**64)
    drawn = np.empty(stop - start, np.uint32)
    for at in range(start, stop, _CHUNK):
        end = min(at + _CHUNK, stop)
        drawn[at - start : end - start] = stream.run(at, end)
    return drawn


class _Stream:
    """The words of one seed and name."""

    def __init__(self, seed: int, name: str) -> None:
        seed = whole_number(seed, "a seed", least=0, below=2**64)
        prefix = f"untrained.random.{GENERATOR}\0".encode()
        digest = hashlib.sha256(prefix + seed.to_bytes(8, "little") + _utf8(name)).digest()
        key0, key1, high0, high1 = np.frombuffer(digest[:16], "<u4").tolist()
        self.key, self.high = (key0, key1), (high0, high1)

    def run(self, start: int, stop: int) -> Words:
        """Words `start` to `stop`."""
        first = start // 4
        numbers = np.arange(first, -(-stop // 4), dtype=np.uint64)
        drawn = _philox(numbers, key=self.key, high=self.high).reshape(-1)
        return drawn[start - 4 * first : stop - 4 * first]

    def at(self, numbers: Numbers) -> Words:
        """The words of these numbers; neighbours in one block compute it once."""
        blocks = numbers // 4
        new = np.diff(blocks, prepend=-1) != 0
        drawn = _philox(blocks[new].astype(np.uint64), key=self.key, high=self.high)
        return np.asarray(drawn[np.cumsum(new) - 1, numbers % 4])

    def of(self, numbers: range | Numbers) -> Words:
        """The words of these numbers, a run or any."""
        if isinstance(numbers, range):
            return self.run(numbers.start, numbers.stop)
        return self.at(numbers)


def _philox(numbers: NDArray[np.uint64], *, key: tuple[int, int], high: tuple[int, int]) -> Words:
    """Philox4x32-10 of the counters (number, low and high; high words): (blocks, 4).

    Every word stands in 64 bits, for the products. In place: to make an array costs as much again.
    """
    c0, c1 = numbers & _LOW, numbers >> _HALF
    c2, c3 = (np.full_like(numbers, word) for word in high)
    next0, next2 = np.empty_like(numbers), np.empty_like(numbers)
    for turn in range(10):
        key0, key1 = (np.uint64((k + turn * w) % 2**32) for k, w in zip(key, _WEYL, strict=True))
        c0 *= _MULTIPLIERS[0]
        c2 *= _MULTIPLIERS[1]
        _mix(c2, c1, key0, out=next0)
        _mix(c0, c3, key1, out=next2)
        # The products' low halves are the new c1 and c3; what stands above, `_mix` takes off.
        c0, c1, c2, c3, next0, next2 = next0, c2, next2, c0, c1, c3
    blocks = np.empty((len(numbers), 4), np.uint32)
    for lane, word in enumerate((c0, c1, c2, c3)):
        blocks[:, lane] = word  # its low half
    return blocks


def _mix(
    product: NDArray[np.uint64],
    word: NDArray[np.uint64],
    key: np.uint64,
    *,
    out: NDArray[np.uint64],
) -> None:
    """The product's high half, xor the word's low half, xor the key."""
    np.right_shift(product, _HALF, out=out)
    out ^= word
    out ^= key
    out &= _LOW


def _fill(
    out: Values, numbers: range | Numbers, stream: _Stream, distribution: Distribution
) -> None:
    """Write the elements of these numbers."""
    scale = np.float32(distribution.scale)
    match distribution.kind:
        case "constant":
            out.fill(scale)
        case "signs":
            _fill_signs(out, numbers, stream, scale)
        case "uniform":
            _fill_uniform(out, stream.of(numbers), scale)
        case "normal":
            _fill_normal(out, stream.of(numbers), scale)


def _fill_signs(out: Values, numbers: range | Numbers, stream: _Stream, scale: np.float32) -> None:
    """Bits as signs; eight at a time where they are neighbours."""
    if isinstance(numbers, range):
        first = numbers.start // 32
        drawn = stream.run(first, -(-numbers.stop // 32)).astype("<u4", copy=False).view(np.uint8)
        eights = np.take(_signs_of_bytes() * scale, drawn, axis=0).reshape(-1)
        out[:] = eights[numbers.start - 32 * first : numbers.stop - 32 * first]
    else:
        bits = stream.at(numbers // 32) >> (numbers % 32).astype(np.uint32) & np.uint32(1)
        out[:] = np.where(bits, scale, -scale)


def _fill_uniform(out: Values, drawn: Words, scale: np.float32) -> None:
    """Odd integers k, symmetric around 0, times a step."""
    odd = drawn.view(np.int32)
    odd >>= 7
    odd |= 1  # with the line above, 2 * (u >> 8) + 1
    out[:] = odd
    out *= scale * np.float32(2.0**-24)


def _fill_normal(out: Values, drawn: Words, scale: np.float32) -> None:
    """Interpolate between the knots of the half normal, in integers; then scale and sign."""
    knots, widths = _table()
    cell = ((drawn >> np.uint32(19)) & np.uint32(4095)).astype(np.intp)
    value = (((drawn << np.uint32(1)) & np.uint32(2**20 - 1)) | np.uint32(1)).astype(np.int64)
    value *= widths[cell]
    value += knots[cell]
    out[:] = value
    out *= scale * np.float32(2.0**-48)
    bits = out.view(np.uint32)
    bits |= drawn & np.uint32(1 << 31)  # a float32 has its sign there too


@cache
def _table() -> tuple[Numbers, Numbers]:
    """The cells of the half normal: where each begins, in sd / 2^48, its width, in sd / 2^28.

    Raises:
        RandomError: the file is not the one that belongs to this generator.
    """
    data = (resources.files("untrained") / "data" / _TABLE).read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != _TABLE_SHA256:
        raise RandomError(
            f"the normal table {_TABLE} has SHA-256 {found[:8]}..., this version was made with "
            f"{_TABLE_SHA256[:8]}...: the installation is damaged; install untrained again"
        )
    knots = np.frombuffer(data, "<i4").astype(np.int64)
    return knots[:-1] << 20, np.diff(knots)


@cache
def _signs_of_bytes() -> Values:
    """The eight signs that a byte stands for, lowest bit first: (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return 2 * bits.astype(np.float32) - 1


@dataclass(frozen=True)
class _Part:
    """What an index selects of a tensor."""

    ranges: tuple[range, ...]
    """The positions selected along each axis of the tensor."""

    strides: tuple[int, ...]
    """By how much a step along each axis raises the number of an element."""

    shape: tuple[int, ...]
    """The shape selected; where the index has an integer, the axis is gone."""

    def numbers(self, start: int, stop: int) -> range | Numbers:
        """The numbers of the selected elements `start` to `stop`: a range if they are a run."""
        if self.first is not None:
            return range(self.first + start, self.first + stop)
        rest, numbers = np.arange(start, stop), np.zeros(stop - start, np.int64)
        for along, stride in zip(reversed(self.ranges), reversed(self.strides), strict=True):
            rest, place = np.divmod(rest, len(along))
            numbers += (along.start + place * along.step) * stride
        return numbers

    @cached_property
    def first(self) -> int | None:
        """The first number where all are one run: they only grow, and by their count in all."""
        if 0 in self.shape:
            return None
        ends = list(zip(self.ranges, self.strides, strict=True))
        first = sum(along[0] * stride for along, stride in ends)
        last = sum(along[-1] * stride for along, stride in ends)
        growing = all(along.step > 0 for along in self.ranges)
        return first if growing and last - first + 1 == math.prod(self.shape) else None


def _select(shape: tuple[int, ...], index: Index | tuple[Index, ...] | None) -> _Part:
    """What an index selects of a shape; None selects all.

    Raises:
        RandomError: an index that does not fit the shape.
    """
    spelled = _spell_out(... if index is None else index, shape)
    ranges = tuple(_along(at, shape, axis) for axis, at in enumerate(spelled))
    return _Part(
        ranges=ranges,
        strides=tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))),
        shape=tuple(len(r) for r, at in zip(ranges, spelled, strict=True) if isinstance(at, slice)),
    )


def _spell_out(index: object, shape: tuple[int, ...]) -> list[object]:
    """One entry for every axis: what is not written selects all."""
    given = list(index) if isinstance(index, tuple) else [index]
    dots = [at for at, entry in enumerate(given) if entry is Ellipsis]
    if len(dots) > 1 or len(given) - len(dots) > len(shape):
        raise RandomError(
            f"index {index!r} does not fit shape {shape}: it has an entry an axis, and one ... at "
            "most"
        )
    at = dots[0] if dots else len(given)
    rest = [slice(None)] * (len(shape) - len(given) + len(dots))
    return [*given[:at], *rest, *given[at + 1 :]]


def _along(at: object, shape: tuple[int, ...], axis: int) -> range:
    """The positions that one entry of an index selects along its axis."""
    size = shape[axis]
    if isinstance(at, slice):
        try:
            return range(size)[at]
        except (TypeError, ValueError) as error:
            raise RandomError(f"index {at!r} at axis {axis} of shape {shape}: {error}") from None
    first = whole_number(at, f"an index at axis {axis} of shape {shape}", least=-size, below=size)
    return range(first % size, first % size + 1)


def _utf8(name: str) -> bytes:
    """The bytes of a stream's name, as they are: no Unicode form is preferred."""
    try:
        return str.encode(name, "utf-8")
    except (TypeError, UnicodeEncodeError):
        raise RandomError(f"{name!r}: the name of a stream is text that UTF-8 can hold") from None
