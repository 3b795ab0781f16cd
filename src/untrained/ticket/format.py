"""How do a header and sections become one file, and back?

    0    8   magic, 89 54 49 43 4B 45 54 0A ("\\x89TICKET\\n")
    8    4   format version, 0
    12   4   zero
    16   8   bytes of the header
    24   8   bytes of the file
    32   32  SHA-256 of the header
    64       the header: a JSON object, UTF-8, zero-padded to a multiple of 64
             the sections, each zero-padded to a multiple of 64

Numbers are little-endian. The header's `sections` lists every section in order, with its offset
from the first, its bytes and its SHA-256, so that each byte of the file is checked: by a hash, or
by having to be zero. Sizes are compared with the file's own before anything is read.

This module knows sections, not what they mean.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from untrained.errors import TicketError
from untrained.ticket.fields import Fields
from untrained.ticket.tensors import DTYPES, byte_count

MAGIC = b"\x89TICKET\n"
VERSION = 0
ALIGNMENT = 64
HEADER_LIMIT = 2**24
"""The bytes that a header has at most."""

KINDS = ("mask", "trained", "value", "buffer", "tokenizer")
"""What a section can hold, in the order of the file."""

_PRELUDE = struct.Struct("<8sIIQQ32s")
_SECTIONS = 2**18


@dataclass(frozen=True)
class Section:
    """Named bytes of a type and a shape."""

    kind: str
    name: str
    dtype: str
    """A name of `DTYPES`, or `bit`."""

    shape: tuple[int, ...]
    data: bytes

    @property
    def kept(self) -> int:
        """The number of bits that are one."""
        return int.from_bytes(self.data, "little").bit_count()

    def entry(self, offset: int) -> dict[str, Any]:
        """What the header says of this section."""
        entry = {
            "kind": self.kind,
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "offset": offset,
            "nbytes": len(self.data),
            "sha256": hashlib.sha256(self.data).hexdigest(),
        }
        return entry | ({"kept": self.kept} if self.dtype == "bit" else {})


def encode(header: Mapping[str, Any], sections: Sequence[Section]) -> bytes:
    """Write a file into memory; the same content gives the same bytes.

    Raises:
        TicketError: a header above the limit, or with values that JSON does not have.
    """
    table, offset = [], 0
    for section in sections:
        table.append(section.entry(offset))
        offset += _aligned(len(section.data))
    text = _print({**header, "sections": table})
    _check_header_size(len(text))
    size = _PRELUDE.size + _aligned(len(text)) + offset
    digest = hashlib.sha256(text).digest()
    prelude = _PRELUDE.pack(MAGIC, VERSION, 0, len(text), size, digest)
    return b"".join((prelude, *map(_padded, (text, *(section.data for section in sections)))))


def header_bytes(data: bytes) -> int:
    """The bytes of a file's header and of what comes before it."""
    return _PRELUDE.size + int(_PRELUDE.unpack_from(data)[3])


@contextmanager
def open_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open an ordinary file for reading; gives it and its size.

    Raises:
        TicketError: it cannot be opened or read, or is a folder, a device or a pipe.
    """
    try:
        # Opening a pipe waits for its writer, and opening a device can do anything.
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "no ordinary file"
            raise TicketError(f"{path} is {kind}; a ticket is one file")
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except OSError as reason:
        hint = "; check the name" if reason.errno == errno.ENOENT else ""
        raise TicketError(f"cannot read {path}: {reason.strerror or reason}{hint}") from reason
    except ValueError as reason:
        if isinstance(reason, TicketError):
            raise
        raise TicketError(f"cannot read {str(path)!r}: {reason}") from reason


def decode(file: BinaryIO, size: int) -> tuple[Fields, list[Section]]:
    """Read a file, believing nothing; gives the header without its table, and every section.

    Args:
        file: a file at its start.
        size: its bytes.

    Raises:
        TicketError: a file that is no ticket, of another version, cut short, damaged or lying.
    """
    length, digest = _read_prelude(file.read(_PRELUDE.size), size)
    text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise TicketError("the header does not match its checksum; the file is damaged")
    _check_padding(file, length, "the header")
    header = Fields(_parse(text), "the header")
    entries = header.items("sections", limit=_SECTIONS)
    sections = [_Entry.read(entry, number) for number, entry in enumerate(entries)]
    _check_table(sections, size - _PRELUDE.size - _aligned(length))
    return header, [entry.load(file) for entry in sections]


@dataclass(frozen=True)
class _Entry:
    """A section of which only the header's word is known."""

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    sha256: str
    kept: int | None

    @classmethod
    def read(cls, held: object, number: int) -> _Entry:
        fields = Fields(held, f"section {number}")
        kind, dtype = fields.choice("kind", KINDS), fields.choice("dtype", ("bit", *DTYPES))
        if (kind == "mask") != (dtype == "bit"):
            raise TicketError(f"section {number} is a {kind} of {dtype}; masks are bits, only they")
        entry = cls(
            kind=kind,
            name=fields.name("name"),
            dtype=dtype,
            shape=fields.shape("shape"),
            offset=fields.whole("offset"),
            nbytes=fields.whole("nbytes"),
            sha256=fields.digest("sha256"),
            kept=fields.whole("kept") if dtype == "bit" else None,
        )
        fields.done()
        return entry

    def load(self, file: BinaryIO) -> Section:
        """Read the bytes and hold them against every word of the header."""
        data = file.read(self.nbytes)
        _check_padding(file, self.nbytes, f"{self}")
        section = Section(self.kind, self.name, self.dtype, self.shape, data)
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise TicketError(
                f"{self} has checksum {found[:8]}, the header says {self.sha256[:8]}; "
                "the file is damaged"
            )
        if self.kept is not None and section.kept != self.kept:
            raise TicketError(f"{self} keeps {section.kept:,}, the header says {self.kept:,}")
        unused = -math.prod(self.shape) % 8
        if self.dtype == "bit" and unused and data[-1] >> 8 - unused:
            raise TicketError(f"{self} has a one beyond its last weight; bits are lowest first")
        return section

    def __str__(self) -> str:
        return f"the {self.kind} section of {self.name}"


def _read_prelude(data: bytes, size: int) -> tuple[int, bytes]:
    """The bytes of the header and its hash."""
    if data[: len(MAGIC)] != MAGIC[: max(len(data), 1)]:
        raise TicketError("not a ticket: it does not begin with \\x89TICKET\\n")
    if len(data) < _PRELUDE.size:
        _refuse_size(size, _PRELUDE.size)
    _, version, zero, length, total, digest = _PRELUDE.unpack(data)
    if version != VERSION:
        raise TicketError(
            f"its format is version {version}; this untrained reads version {VERSION}: install a "
            "newer one"
        )
    if zero:
        raise TicketError("bytes 12 to 15 are not zero; the file is damaged")
    _check_header_size(length)
    if total != size:
        _refuse_size(size, total)
    if _PRELUDE.size + _aligned(length) > size:
        _refuse_size(size, _PRELUDE.size + _aligned(length))
    return length, digest


def _refuse_size(size: int, total: int) -> NoReturn:
    short = size < total
    raise TicketError(
        f"it has {size:,} bytes and should have {total:,}; "
        + ("cut short: copy it again" if short else "something was added, or its size is damaged")
    )


def _check_header_size(length: int) -> None:
    if length > HEADER_LIMIT:
        raise TicketError(f"a header of {length:,} bytes; at most {HEADER_LIMIT:,} are allowed")


def _check_table(entries: Sequence[_Entry], room: int) -> None:
    """Require sections in order, each of the size that its shape says, that fill the file."""
    end = 0
    for entry in entries:
        nbytes = byte_count(entry.dtype, entry.shape)
        if (entry.offset, entry.nbytes) != (end, nbytes):
            raise TicketError(
                f"{entry} lies at {entry.offset:,} with {entry.nbytes:,} bytes; in order and by "
                f"its shape {entry.shape} it lies at {end:,} with {nbytes:,}"
            )
        end += _aligned(nbytes)
    if end != room:
        raise TicketError(f"the sections take {end:,} bytes, the file has {room:,} for them")
    keys = [(KINDS.index(entry.kind), entry.name) for entry in entries]
    if len(set(keys)) < len(keys) or keys != sorted(keys, key=lambda key: key[0]):
        raise TicketError(f"a section comes twice, or not in the order {', '.join(KINDS)}")


def _print(header: Mapping[str, Any]) -> bytes:
    """JSON in one form only."""
    try:
        return json.dumps(
            header, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        ).encode()
    except (TypeError, ValueError) as reason:
        raise TicketError(f"the header cannot be written as JSON: {reason}") from reason


def _parse(text: bytes) -> object:
    """Strict JSON: no key twice, no NaN or infinity, no half characters."""
    try:
        held = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_number,
            parse_float=_finite,
        )
        json.dumps(held, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as reason:
        what = "nests too deep" if isinstance(reason, RecursionError) else str(reason)
        raise TicketError(f"the header is not sound JSON: {what[:200]}") from None
    return held


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise ValueError("a key comes twice")
    return held


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no number")


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))


def _check_padding(file: BinaryIO, size: int, what: str) -> None:
    padding = _aligned(size) - size
    if file.read(padding) != bytes(padding):
        raise TicketError(f"the padding after {what} is not zero; the file is damaged")
