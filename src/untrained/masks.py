"""Which weights are on?

A `Mask` is a value: a name -> bool tensor mapping that never changes, equal when equal, with the
algebra of sets. It holds one bit per weight, in the order in which it is written to disk: row by
row over the logical shape, the first weight in the lowest bit of the first byte, the unused bits of
the last byte zero.

Letters: A and B are the weights on in two masks, n all weights.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from untrained.errors import MaskError
from untrained.random import words

Shape: TypeAlias = tuple[int, ...]
Bytes: TypeAlias = NDArray[np.uint8]

_DOMAIN = b"untrained.masks.1\0"
"""What every fingerprint begins with, so that it is one of a mask and of this version."""


class Mask(Mapping[str, Tensor]):
    """Which weights are on, tensor by tensor.

    Reading a tensor unpacks it: a new bool CPU tensor of the logical shape, yours to change.

    Args:
        tensors: name -> bool tensor, of any layout and device; copied.

    Raises:
        MaskError: a tensor that is not bool, or has no entries.
    """

    __slots__ = ("_packed", "_shapes")

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._packed = {name: _pack(name, tensor) for name, tensor in tensors.items()}
        self._shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self._flags(name)).view(self._shapes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __repr__(self) -> str:
        return (
            f"Mask({len(self)} tensors, {self.kept:,} of {self.size:,} weights kept, "
            f"keep {self.keep:.4g})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        return self._shapes == other._shapes and self._packed == other._packed

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    # --- counts ---

    @property
    def shapes(self) -> dict[str, Shape]:
        """name -> shape."""
        return dict(self._shapes)

    @property
    def sizes(self) -> dict[str, int]:
        """name -> number of weights."""
        return {name: math.prod(shape) for name, shape in self._shapes.items()}

    @property
    def counts(self) -> dict[str, int]:
        """name -> number of weights kept."""
        return {name: _ones(_array(packed)) for name, packed in self._packed.items()}

    @property
    def keeps(self) -> dict[str, float]:
        """name -> share kept, in [0, 1]."""
        sizes = self.sizes
        return {name: kept / sizes[name] for name, kept in self.counts.items()}

    @property
    def size(self) -> int:
        """The number of weights, n."""
        return sum(self.sizes.values())

    @property
    def kept(self) -> int:
        """The number of weights kept."""
        return sum(self.counts.values())

    @property
    def keep(self) -> float:
        """The share kept, in [0, 1]; 1 for a mask of nothing, which takes nothing away."""
        return _share(self.kept, self.size, empty=1.0)

    # --- algebra ---

    def __and__(self, other: Mask) -> Mask:
        return self._combine(other, np.bitwise_and)

    def __or__(self, other: Mask) -> Mask:
        return self._combine(other, np.bitwise_or)

    def __xor__(self, other: Mask) -> Mask:
        return self._combine(other, np.bitwise_xor)

    def __invert__(self) -> Mask:
        full = {name: _full(size) for name, size in self.sizes.items()}
        return self._combine(self._of(full, self._shapes), np.bitwise_xor)

    def overlap(self, other: Mask) -> float:
        """|A and B| / |A or B|: 1 if equal, 0 if disjoint; keep / (2 - keep) by chance.

        Raises:
            MaskError: masks of different names or shapes (so for all that compare two).
        """
        return _share((self & other).kept, (self | other).kept, empty=1.0)

    def distance(self, other: Mask) -> float:
        """|A xor B| / n, the share of all weights that differ; 2 keep (1 - keep) by chance."""
        return _share((self ^ other).kept, self.size, empty=0.0)

    def churn(self, other: Mask) -> float:
        """|A xor B| / (|A| + |B|), the share of kept weights replaced; 1 - keep by chance."""
        return _share((self ^ other).kept, self.kept + other.kept, empty=0.0)

    # --- bytes ---

    def pack(self) -> dict[str, bytes]:
        """name -> bits, ceil(n / 8) bytes."""
        return dict(self._packed)

    @classmethod
    def unpack(cls, packed: Mapping[str, bytes], shapes: Mapping[str, Shape]) -> Mask:
        """The mask that `pack` gave these bytes for.

        Raises:
            MaskError: a name without bytes or shape, a wrong length, a one beyond the last weight.
        """
        if differ := sorted(packed.keys() ^ shapes.keys()):
            raise MaskError(
                f"{differ[0]} has bits or a shape, but not both; pass both of each name"
            )
        for name, shape in shapes.items():
            _check_packed(name, packed[name], tuple(shape))
        return cls._of({name: bytes(packed[name]) for name in shapes}, shapes)

    def fingerprint(self) -> str:
        """The SHA-256 of names, shapes and bits, in hexadecimal; in whatever order they come."""
        digest = hashlib.sha256(_DOMAIN)
        for name in sorted(self):
            # The shape's text fixes the number of bytes, and the name's length its end.
            header = f"{len(name.encode())} {name} {self._shapes[name]} "
            digest.update(header.encode() + self._packed[name])
        return digest.hexdigest()

    # --- chance ---

    @classmethod
    def random(
        cls,
        shapes: Mapping[str, Shape],
        kept: Mapping[str, int],
        *,
        seed: int,
        purpose: str = "random-mask",
    ) -> Mask:
        """Keep exactly `kept[name]` weights of each tensor, at random.

        Args:
            shapes: name -> shape.
            kept: name -> how many, 0 to the tensor's size.
            seed: 0 <= seed < 2**64.
            purpose: the second half of the stream's name, after the tensor's.

        Raises:
            MaskError: a count that is missing or out of range.
        """
        masks = {}
        for name, shape in shapes.items():
            size = _size(name, shape)
            draws = words(seed, f"{name}/{purpose}", 0, size)
            masks[name] = torch.from_numpy(_lowest(draws, _count(kept, name, size))).view(shape)
        return cls(masks)

    def shuffled(self, *, seed: int, purpose: str = "shuffled-mask") -> Mask:
        """The same counts in other places: each tensor's bits in an order drawn from the seed.

        The order depends on seed, name, purpose and size alone, so two masks that are shuffled by
        one seed overlap as much as before.
        """
        return Mask({name: self._shuffle(name, f"{name}/{purpose}", seed) for name in self})

    # --- inside ---

    @classmethod
    def _of(cls, packed: Mapping[str, bytes], shapes: Mapping[str, Shape]) -> Mask:
        """A mask of bits that are known to be sound."""
        mask = cls({})
        mask._packed = dict(packed)
        mask._shapes = {name: tuple(map(int, shape)) for name, shape in shapes.items()}
        return mask

    def _flags(self, name: str) -> NDArray[np.bool_]:
        bits = _array(self._packed[name])
        count = math.prod(self._shapes[name])
        return np.unpackbits(bits, count=count, bitorder="little").view(np.bool_)

    def _combine(self, other: Mask, operation: Callable[[Bytes, Bytes], Bytes]) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        self._check_alike(other)
        pairs = {name: (_array(self._packed[name]), _array(other._packed[name])) for name in self}
        return self._of({n: operation(a, b).tobytes() for n, (a, b) in pairs.items()}, self._shapes)

    def _check_alike(self, other: Mask) -> None:
        for name in dict.fromkeys((*self, *other)):
            ours, theirs = self._shapes.get(name), other._shapes.get(name)
            if ours != theirs:
                raise MaskError(
                    f"these masks are of different models: {name} is {_print(ours)} in the one and "
                    f"{_print(theirs)} in the other"
                )

    def _shuffle(self, name: str, stream: str, seed: int) -> Tensor:
        flags = self._flags(name)
        order = np.argsort(words(seed, stream, 0, flags.size), kind="stable")
        return torch.from_numpy(flags[order]).view(self._shapes[name])


def _pack(name: str, tensor: Tensor) -> bytes:
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise MaskError(
            f"{name} is {kind}, a mask is torch.bool; to select one from scores, use top_mask"
        )
    _size(name, tensor.shape)
    return np.packbits(tensor.detach().cpu().reshape(-1).numpy(), bitorder="little").tobytes()


def _array(packed: bytes) -> Bytes:
    return np.frombuffer(packed, dtype=np.uint8)


def _ones(packed: Bytes) -> int:
    return int(np.bitwise_count(packed).sum(dtype=np.int64))


def _full(size: int) -> bytes:
    """Bits that are on for every one of `size` weights, and off beyond."""
    return ((1 << size) - 1).to_bytes(-(-size // 8), "little")


def _share(part: int, whole: int, *, empty: float) -> float:
    return part / whole if whole else empty


def _lowest(draws: NDArray[np.uint32], kept: int) -> NDArray[np.bool_]:
    """Flag the `kept` lowest draws, among equal ones the first."""
    if kept == 0:
        return np.zeros(draws.size, dtype=np.bool_)
    threshold = np.partition(draws, kept - 1)[kept - 1]
    flags: NDArray[np.bool_] = draws < threshold
    flags[np.flatnonzero(draws == threshold)[: kept - np.count_nonzero(flags)]] = True
    return flags


def _size(name: str, shape: Shape) -> int:
    if any(length < 1 for length in shape):
        raise MaskError(f"{name} of shape {tuple(shape)} has no entries to mask; leave it out")
    return math.prod(shape)


def _count(kept: Mapping[str, int], name: str, size: int) -> int:
    count = kept.get(name)
    if not isinstance(count, Integral) or isinstance(count, bool) or not 0 <= count <= size:
        raise MaskError(
            f"{name} is to keep {count} of its {size} weights; pass a whole number of them"
        )
    return int(count)


def _print(value: object) -> str:
    return "missing" if value is None else str(value)


def _check_packed(name: str, packed: bytes, shape: Shape) -> None:
    size = _size(name, shape)
    length = -(-size // 8)
    if len(packed) != length:
        raise MaskError(
            f"{name} has {len(packed)} bytes, its shape {shape} needs {length}; cut short, or of "
            "another model?"
        )
    if size % 8 and packed[-1] >> size % 8:
        raise MaskError(
            f"{name} has a one beyond its last weight; damaged, or packed highest bit first?"
        )
