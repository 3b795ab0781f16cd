"""The file is what docs/ticket-format.md says, byte for byte."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tickets import header_of, saved, search
from untrained.errors import TicketError
from untrained.ticket import Ticket
from untrained.ticket.format import Section, decode, encode
from untrained.ticket.tensors import DTYPES, checksum, from_bytes, same_bits, to_bytes

SECTIONS = [
    Section("mask", "a", "bit", (3, 3), b"\x05\x01"),
    Section("trained", "b", "float32", (2,), struct.pack("<2f", 1.0, -2.0)),
    Section("tokenizer", "tokenizer.json", "uint8", (2,), b"{}"),
]


def test_the_file_byte_by_byte() -> None:
    data = encode({"seed": 1}, SECTIONS)
    text = data[64 : 64 + struct.unpack_from("<Q", data, 16)[0]]
    assert data[:8] == bytes.fromhex("895449434b45540a")
    assert struct.unpack_from("<II", data, 8) == (0, 0)
    assert struct.unpack_from("<Q", data, 24) == (len(data),)
    assert data[32:64] == hashlib.sha256(text).digest()
    body = 64 + -(-len(text) // 64) * 64
    assert data[body:] == b"".join(s.data + bytes(64 - len(s.data)) for s in SECTIONS)
    assert json.loads(text)["sections"][0] == {
        "kind": "mask",
        "name": "a",
        "dtype": "bit",
        "shape": [3, 3],
        "offset": 0,
        "nbytes": 2,
        "sha256": hashlib.sha256(b"\x05\x01").hexdigest(),
        "kept": 3,
    }


def test_what_was_encoded_is_decoded() -> None:
    data = encode({"seed": 1}, SECTIONS)
    header, sections = decode(io.BytesIO(data), len(data))
    assert sections == SECTIONS
    assert header.rest() == {"seed": 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_type_survives(dtype: str) -> None:
    tensor = (torch.arange(-6, 6) * 0.75).reshape(3, 4).to(DTYPES[dtype])
    for view in (tensor, tensor.T, tensor[1:, ::2], tensor[0, 0]):
        again = from_bytes(to_bytes(view), dtype, tuple(view.shape))
        assert same_bits(again, view)


def test_bytes_are_little_endian_and_row_major() -> None:
    tensor = torch.tensor([[1, 2], [3, 4]], dtype=torch.int16)
    assert to_bytes(tensor.T) == bytes([1, 0, 3, 0, 2, 0, 4, 0])
    assert to_bytes(torch.tensor([1.0], dtype=torch.bfloat16)) == bytes([0x80, 0x3F])


def test_zero_and_minus_zero_have_different_checksums() -> None:
    assert checksum(torch.tensor([0.0])) != checksum(torch.tensor([-0.0]))
    assert same_bits(torch.tensor([torch.nan]), torch.tensor([torch.nan]))


def test_a_reader_of_thirty_lines_rebuilds_a_weight(tmp_path: Path) -> None:
    """What the format's page says suffices, with numpy alone, beside the generator."""
    applied = search("supermask", seed=9)
    path = tmp_path / "x.ticket"
    data = saved(path, seed=9)
    header = header_of(data)
    entry = next(s for s in header["sections"] if s["name"] == "layers.1.mlp.up")
    start = 64 + -(-struct.unpack_from("<Q", data, 16)[0] // 64) * 64 + entry["offset"]
    bits = np.frombuffer(data, np.uint8, entry["nbytes"], start)
    mask = np.unpackbits(bits, bitorder="little")[: np.prod(entry["shape"])].reshape(entry["shape"])

    stream = b"untrained.random.1\0" + struct.pack("<Q", header["seed"])
    digest = hashlib.sha256(stream + b"layers.1.mlp.up/weights").digest()
    key, high = struct.unpack("<2I", digest[:8]), struct.unpack("<2I", digest[8:16])
    words = [w for block in range(mask.size // 128) for w in philox((block, 0, *high), key)]
    signs = np.unpackbits(np.array(words, "<u4").view(np.uint8), bitorder="little")
    scale = np.float32(1 / np.sqrt(16) * (1 / np.sqrt(0.5)))
    weights = np.where(signs, scale, -scale).astype("<f4").reshape(mask.shape) * mask
    wanted = next(t["sha256"] for t in header["tensors"] if t["role"] == "layers.1.mlp.up")
    assert hashlib.sha256((weights.astype("<f4")).tobytes()).hexdigest() == wanted
    up = applied.model.transformer.h[1].mlp.c_fc.weight.T
    assert torch.equal(up, torch.from_numpy(weights))


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox4x32-10 in Python's integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def test_a_header_that_is_too_large_is_refused() -> None:
    with pytest.raises(TicketError, match="at most 16,777,216"):
        encode({"note": "x" * 2**24}, [])


def test_a_ticket_from_a_file_is_written_again_alike(tmp_path: Path) -> None:
    data = saved(tmp_path / "x", "query = masked(keep=0.1); key = frozen(init=as_is)")
    Ticket.load(tmp_path / "x").save(tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == data
