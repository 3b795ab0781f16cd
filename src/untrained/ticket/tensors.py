"""How is a tensor written as bytes?

Row-major, little-endian, without padding; a bfloat16 is the upper half of a float32. The order and
the bytes do not depend on the machine.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}
"""The types that a ticket can hold, by name."""

FLOATS = ("float64", "float32", "float16", "bfloat16")
"""The types of weights."""


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a type, `float32`."""
    return str(dtype).removeprefix("torch.")


def byte_count(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor; `bit` is eight to a byte."""
    count = math.prod(shape)
    return -(-count // 8) if dtype == "bit" else count * DTYPES[dtype].itemsize


def to_bytes(tensor: Tensor) -> bytes:
    """A tensor's bytes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    width = tensor.dtype.itemsize
    return flat.view(torch.uint8).numpy().view(f"u{width}").astype(f"<u{width}").tobytes()


def from_bytes(data: bytes, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that `to_bytes` gave these bytes for; a copy, yours to change."""
    width = DTYPES[dtype].itemsize
    held = np.frombuffer(data, f"<u{width}").astype(f"u{width}")
    return torch.from_numpy(held.view(np.uint8)).view(DTYPES[dtype]).reshape(shape)


def checksum(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's bytes, in hexadecimal."""
    return hashlib.sha256(to_bytes(tensor)).hexdigest()


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal bit for bit: 0.0 and -0.0 differ, a NaN equals itself."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and to_bytes(one) == to_bytes(other)
