"""The random values once more, slowly: plain integers, fractions, and nothing of the library.

Written from the docstring of `untrained.random` and from Random123; only the table of the half
normal is read from the library, since that is data. Values are exact fractions until `float32`
rounds them.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parents[2] / "src" / "untrained" / "data" / "half_normal.i32"


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 of four words and a key of two."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * x0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * x2, 2**32)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return x0, x1, x2, x3


def word(seed: int, name: str, number: int) -> int:
    """One word of a stream."""
    message = b"untrained.random.1\0" + struct.pack("<Q", seed) + name.encode()
    key0, key1, high0, high1 = struct.unpack("<4I", hashlib.sha256(message).digest()[:16])
    block, lane = divmod(number, 4)
    high, low = divmod(block, 2**32)
    return philox((low, high, high0, high1), (key0, key1))[lane]


def float32(value: Fraction) -> Fraction:
    """The nearest float32, ties to even, of a value that is neither denormal nor too large."""
    if value == 0:
        return value
    exponent = math.floor(math.log2(abs(value))) - 23
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent + 23):
        exponent -= 1
    unit = Fraction(2) ** exponent
    rounded = round(value / unit) * unit  # round() takes ties to even
    assert struct.unpack("<f", struct.pack("<f", float(rounded)))[0] == rounded
    return rounded


def value(seed: int, name: str, number: int, kind: str, scale: float) -> float:
    """One element, by the kind and scale of its distribution."""
    size = float32(Fraction(scale))
    if kind == "constant":
        return float(size)
    if kind == "signs":
        bit = word(seed, name, number // 32) >> (number % 32) & 1
        return float(size if bit else -size)
    u = word(seed, name, number)
    if kind == "uniform":
        signed = (u >> 8) - 2**24 * (u >> 31)
        return float(float32((2 * signed + 1) * size / 2**24))
    cell, place = divmod(u % 2**31, 2**19)
    a, b = knots()[cell : cell + 2]
    size = float32(float32(Fraction(a * 2**20 + (b - a) * (2 * place + 1))) * size / 2**48)
    return float(-size if u >> 31 else size)


def values(seed: int, name: str, numbers: Iterable[int], kind: str, scale: float) -> list[float]:
    """Some elements."""
    return [value(seed, name, number, kind, scale) for number in numbers]


@cache
def knots() -> tuple[int, ...]:
    """The 4097 knots of the half normal."""
    return struct.unpack("<4097i", TABLE.read_bytes())
