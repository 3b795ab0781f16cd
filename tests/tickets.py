"""Tickets for tests, and files that lie with all their checksums right."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from models import V, tiny_gpt2
from untrained.apply import Applied, apply
from untrained.ticket import Ticket

TOKENS = torch.arange(20).reshape(2, 10) % V


def search(rules: str = "supermask", *, seed: int = 0, **settings: Any) -> Applied:
    """A tiny GPT-2 under a recipe."""
    return apply(tiny_gpt2(**settings), rules, seed=seed)


@torch.inference_mode()
def logits(model: nn.Module) -> Tensor:
    """What a language model says in eval mode."""
    return model.eval()(input_ids=TOKENS)[0]


def saved(path: Path, rules: str = "supermask", **settings: Any) -> bytes:
    """The bytes of a ticket, which lies at the path."""
    Ticket.of(search(rules, **settings)).save(path)
    return path.read_bytes()


def header_of(data: bytes) -> dict[str, Any]:
    """The header of a file."""
    (length,) = struct.unpack_from("<Q", data, 16)
    held: dict[str, Any] = json.loads(data[64 : 64 + length])
    return held


def body_of(data: bytes) -> bytes:
    """All sections of a file."""
    (length,) = struct.unpack_from("<Q", data, 16)
    return data[64 + -(-length // 64) * 64 :]


def signed(text: bytes, body: bytes = b"") -> bytes:
    """A file of this header and body, with the right sizes and checksum."""
    padded = text + bytes(-len(text) % 64)
    size = 64 + len(padded) + len(body)
    digest = hashlib.sha256(text).digest()
    return struct.pack("<8sIIQQ32s", b"\x89TICKET\n", 0, 0, len(text), size, digest) + padded + body


def lying(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The same file with another header, signed."""
    header = header_of(data)
    change(header)
    return signed(json.dumps(header).encode(), body_of(data))
