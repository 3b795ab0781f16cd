"""A file that is cut, flipped, swollen or lying is a TicketError, at once and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tickets import body_of, header_of, lying, saved, signed
from untrained.apply import apply
from untrained.errors import TicketError
from untrained.ticket import Ticket
from untrained.ticket.format import KINDS

RULES = "query = masked(keep=0.3); key = frozen(init=as_is); mlp = frozen"
Header = dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ticket with a section of every kind but buffers."""
    return saved(tmp_path_factory.mktemp("sound") / "x.ticket", RULES, n_layer=1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ticket of few bytes with a section of every kind."""
    net = nn.Sequential(nn.Linear(7, 3), nn.BatchNorm1d(3))
    path = tmp_path_factory.mktemp("small") / "x.ticket"
    rules = "0 = masked(keep=0.5, init=as_is); 1 = trained"
    Ticket.of(apply(net, rules), tokenizer="{}").save(path)
    assert {entry["kind"] for entry in header_of(path.read_bytes())["sections"]} == set(KINDS)
    return path.read_bytes()


@pytest.fixture
def load(tmp_path: Path) -> Callable[[bytes], Ticket]:
    """Write these bytes and load them."""
    path = tmp_path / "x.ticket"

    def write_and_load(data: bytes) -> Ticket:
        path.write_bytes(data)
        return Ticket.load(path)

    return write_and_load


Load = Callable[[bytes], Ticket]


def test_a_sound_file_loads(sound: bytes, load: Load) -> None:
    assert load(sound).verify().tensors == 20
    assert load(lying(sound, dict.copy)).verify().tensors == 20


# --- damage -------------------------------------------------------------------------------------


def test_a_file_cut_at_any_byte_is_refused(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.ticket"
    path.write_bytes(small)
    for length in reversed(range(len(small))):
        os.truncate(path, length)
        with pytest.raises(TicketError):
            Ticket.load(path)


def test_a_cut_file_says_how_much_is_missing(sound: bytes, load: Load) -> None:
    wanted = f"it has {len(sound) - 1:,} bytes and should have {len(sound):,}; cut short"
    with pytest.raises(TicketError, match=re.escape(wanted)):
        load(sound[:-1])


@pytest.mark.parametrize("more", [b"\0", b"x", bytes(64), bytes(2**20)], ids=len)
def test_bytes_after_the_end_are_refused(more: bytes, sound: bytes, load: Load) -> None:
    with pytest.raises(TicketError, match="something was added"):
        load(sound + more)


def test_a_flip_in_any_byte_is_noticed_on_loading(small: bytes, tmp_path: Path) -> None:
    path, chance = tmp_path / "x.ticket", random.Random(0)
    path.write_bytes(small)
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(small):
            os.pwrite(file.fileno(), bytes([byte ^ 1 << chance.randrange(8)]), place)
            with pytest.raises(TicketError):
                Ticket.load(path)
            os.pwrite(file.fileno(), bytes([byte]), place)
    assert path.read_bytes() == small


def test_flips_in_a_ticket_of_a_language_model(sound: bytes, load: Load) -> None:
    chance = random.Random(0)
    for _ in range(300):
        flipped = bytearray(sound)
        flipped[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        with pytest.raises(TicketError):
            load(bytes(flipped))


def test_bytes_that_change_places_are_noticed(sound: bytes, load: Load) -> None:
    body = body_of(sound)
    with pytest.raises(TicketError, match="the file is damaged"):
        load(sound[: -len(body)] + body[64:128] + body[:64] + body[128:])


@pytest.mark.parametrize("version", [1, 2, 2**31])
def test_another_version_is_named(version: int, sound: bytes, load: Load) -> None:
    data = sound[:8] + struct.pack("<I", version) + sound[12:]
    with pytest.raises(TicketError, match=f"format is version {version}; this untrained reads"):
        load(data)


@pytest.mark.parametrize("data", [b"", b"\x89", b"PK\x03\x04" * 99, b"\x80\x04." + bytes(99)])
def test_other_files_are_no_tickets(data: bytes, load: Load) -> None:
    with pytest.raises(TicketError, match=r"x\.ticket: (not a ticket|it has 1 bytes)"):
        load(data)


def test_a_mangled_line_end_is_no_ticket(sound: bytes, load: Load) -> None:
    with pytest.raises(TicketError, match="not a ticket"):
        load(sound.replace(b"\n", b"\r\n"))


# --- what is no file ----------------------------------------------------------------------------


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(TicketError, match="a ticket is one file"):
            Ticket.load(path)
    for path in (tmp_path / "none", tmp_path / "loop", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(TicketError, match="cannot read"):
            Ticket.load(path)


# --- lies ---------------------------------------------------------------------------------------


def put(value: object, *path: str | int) -> Callable[[Header], None]:
    """Say something else at a place of the header."""

    def change(header: Any) -> None:
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[Header], None]:
    def change(header: Any) -> None:
        for key in path[:-1]:
            header = header[key]
        del header[path[-1]]

    return change


LIES: dict[str, tuple[Callable[[Header], object], str]] = {
    "huge shape": (put([2**40, 2**40], "sections", 0, "shape"), "not the shape of a tensor"),
    "large shape": (put([2**20, 2**20], "sections", 0, "shape"), "lies at 0 with 32 bytes"),
    "negative shape": (put([-16, -16], "sections", 0, "shape"), "not the shape of a tensor"),
    "fractional shape": (put([16.0, 16], "sections", 0, "shape"), "not the shape of a tensor"),
    "true shape": (put([True, 256], "sections", 0, "shape"), "not the shape of a tensor"),
    "many axes": (put([1] * 99, "sections", 0, "shape"), "not a list of at most 16"),
    "turned shape": (put([8, 32], "sections", 0, "shape"), r"mask of .* is \(8, 32\)"),
    "overlap": (put(0, "sections", 1, "offset"), "lies at 0"),
    "gap": (put(128, "sections", 1, "offset"), "lies at 128"),
    "negative offset": (put(-64, "sections", 1, "offset"), "not a whole number"),
    "huge nbytes": (put(2**40, "sections", 0, "nbytes"), "1,099,511,627,776 bytes"),
    "wrong kept": (put(9, "sections", 0, "kept"), "keeps 77, the header says 9"),
    "no kept": (drop("sections", 0, "kept"), "lacks kept"),
    "wrong hash": (put("0" * 64, "sections", 0, "sha256"), "has checksum .* says 00000000"),
    "short hash": (put("00", "sections", 0, "sha256"), "64 hexadecimal digits"),
    "unknown kind": (put("pickle", "sections", 0, "kind"), "not one of mask"),
    "bits that are trained": (put("trained", "sections", 0, "kind"), "masks are bits"),
    "unknown dtype": (put("object", "sections", 0, "dtype"), "not one of bit"),
    "a path for a name": (put("../../etc/passwd", "sections", 0, "name"), "lacks the mask of"),
    "a terminal's code": (put("\x1b[2J", "sections", 0, "name"), "printable"),
    "a section twice": (put("layers.0.value", "sections", 4, "name"), "twice|order|checksum|lacks"),
    "no sections": (put([], "sections"), "sections take 0 bytes"),
    "sections of nothing": (put([None], "sections"), "is None, not an object"),
    "a new key": (put(1, "codec"), "'codec', which format version 0 does not know"),
    "a new key in a section": (put(1, "sections", 0, "codec"), "'codec', which format"),
    "another generator": (put(2, "generator"), "drawn by generator 2"),
    "no recipe": (drop("recipe"), "lacks recipe"),
    "a recipe that is none": (put("query = exec(1)", "recipe"), "exec"),
    "a recipe of another model": (put("cross = frozen", "recipe"), "cross"),
    "an endless recipe": (put("x" * 10**6, "recipe"), "text of at most 4,096"),
    "another recipe": (put("query,key = masked(keep=0.3)", "recipe"), "lacks the mask of"),
    "a seed below zero": (put(-1, "seed"), "seed is -1"),
    "a seed too large": (put(2**64, "seed"), "not a whole number"),
    "a seed that is true": (put(True, "seed"), "seed is True"),
    "a class to run": (put("os.system", "architecture", "class"), "may name"),
    "another class": (put("GPT2DoubleHeadsModel", "architecture", "class"), "may name"),
    "another library": (put("os", "architecture", "library"), "not one of transformers, module"),
    "code from a hub": (put({"": "x"}, "architecture", "config", "auto_map"), "holds 'auto_map'"),
    "attention from a hub": (put("evil/kernels", "architecture", "attention"), "null or one of"),
    "many layers": (put(10**9, "architecture", "config", "n_layer"), "n_layer is 1000000000"),
    "more layers": (put(1000, "architecture", "config", "n_layer"), "lists only 20 tensors"),
    "a vast vocabulary": (put(10**12, "architecture", "config", "vocab_size"), "vocab_size is"),
    "a vocabulary": (put(2**31 - 1, "architecture", "config", "vocab_size"), "weights, more than"),
    "many positions": (put(2**31 - 1, "architecture", "config", "n_positions"), "more than max_w"),
    "no heads": (put(0, "architecture", "config", "n_head"), "n_head is 0"),
    "uneven heads": (put(3, "architecture", "config", "n_head"), "makes no GPT2LMHeadModel"),
    "activation": (put("os.system", "architecture", "config", "activation_function"), "not one of"),
    "cross-attention": (
        put(True, "architecture", "config", "add_cross_attention"),
        "holds 'add_cross",
    ),
    "a lacking setting": (drop("architecture", "config", "n_embd"), "lacks 'n_embd'"),
    "a config of text": (put("x", "architecture", "config"), "not an object"),
    "another layout": (put("modules", "layout", "name"), "does not fit|lacks"),
    "an unknown layout": (put("llama", "layout", "name"), "layout 'llama' cannot be found"),
    "patterns": (put([["a", "("]], "layout", "patterns"), "cannot be found again"),
    "patterns of nothing": (put([[1, 2]], "layout", "patterns"), "a component and its pattern"),
    "a checksum too few": (drop("tensors", 0), "lacks the checksum of"),
    "a checksum twice": (put("position", "tensors", 0, "role"), "came before|lacks"),
    "a checksum of ints": (put("int64", "tensors", 0, "dtype"), "not one of float64"),
    "other types": (put("bfloat16", "tensors", 0, "dtype"), "has to be"),
    "a weight too large": (put([2**24, 2**24], "tensors", 0, "shape"), "more than max_weights"),
    "metadata of lists": (put({"a": [1]}, "metadata"), "text, a number, true, false or null"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused(lie: str, sound: bytes, load: Load) -> None:
    change, said = LIES[lie]
    with pytest.raises(TicketError, match=said):
        load(lying(sound, change))


@pytest.mark.parametrize(
    ("role", "place"), [("embedding", 0), ("mlp.up of layer 0", "layers.0.mlp.up")]
)
def test_a_lying_checksum_is_named_on_verifying(
    role: str, place: str | int, sound: bytes, load: Load
) -> None:
    roles = [entry["role"] for entry in header_of(sound)["tensors"]]
    number = place if isinstance(place, int) else roles.index(place)
    ticket = load(lying(sound, put("41aa" + "0" * 60, "tensors", number, "sha256")))
    told = rf"{role} was rebuilt with checksum \w{{4}}, the ticket says 41aa; written by another"
    with pytest.raises(TicketError, match=told):
        ticket.verify()
    with pytest.raises(TicketError, match=told):
        ticket.model()


def test_another_seed_is_noticed_on_verifying(sound: bytes, load: Load) -> None:
    with pytest.raises(TicketError, match="was rebuilt with checksum"):
        load(lying(sound, put(1, "seed"))).verify()


TEXTS = {
    "nothing": b"",
    "no object": b"[]",
    "half": b'{"seed": ',
    "a key twice": b'{"sections": [], "sections": []}',
    "NaN": b'{"sections": [], "seed": NaN}',
    "infinity": b'{"sections": [], "seed": -Infinity}',
    "a large float": b'{"sections": [], "seed": 1e999}',
    "a long number": b'{"sections": [], "seed": ' + b"9" * 10**5 + b"}",
    "deep lists": b'{"sections": ' + b"[" * 10**6 + b"]" * 10**6 + b"}",
    "deep objects": b'{"a": ' * 10**5 + b"1" + b"}" * 10**5,
    "no UTF-8": b'{"sections": [], "seed": "\xff"}',
    "half a character": b'{"sections": [], "recipe": "\\ud800"}',
    "a byte order mark": b'\xef\xbb\xbf{"sections": []}',
    "UTF-16": '{"sections": []}'.encode("utf-16"),
    "a pickle": b"\x80\x04\x95\x1d\x00\x00\x00cos\nsystem\n.",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_header_that_is_no_sound_json_is_refused(name: str, load: Load) -> None:
    with pytest.raises(TicketError):
        load(signed(TEXTS[name]))


def test_a_header_length_beyond_the_file_is_refused(sound: bytes, load: Load) -> None:
    for length in (len(sound), 2**24, 2**24 + 1, 2**40, 2**64 - 1):
        with pytest.raises(TicketError):
            load(sound[:16] + struct.pack("<Q", length) + sound[24:])


def test_padding_bits_of_a_mask_must_be_zero(small: bytes, load: Load) -> None:
    header, body = header_of(small), bytearray(body_of(small))
    body[2] |= 0x80  # of 7 * 3 weights, the three highest bits of the third byte are unused
    header["sections"][0]["sha256"] = hashlib.sha256(body[:3]).hexdigest()
    header["sections"][0]["kept"] += 1
    with pytest.raises(TicketError, match="a one beyond its last weight"):
        load(signed(json.dumps(header).encode(), bytes(body)))


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**31, 10**18, 10**300, 0.5, "", "x", "y" * 5000, "\x1b[2J"),
    *([], {}, [[]], [0], {"a": 1}, [1] * 1000),
)


def test_any_value_anywhere_is_a_ticket_or_a_ticket_error(sound: bytes, load: Load) -> None:
    chance, told = random.Random(0), []
    for _ in range(400):
        header = header_of(sound)
        for _ in range(chance.choice((1, 1, 1, 3))):
            _disturb(header, chance)
        try:
            load(signed(json.dumps(header).encode(), body_of(sound))).verify()
        except TicketError as reason:
            told.append(str(reason))
    assert len(told) > 300
    assert not any("\x1b" in text for text in told)


def _disturb(held: Any, chance: random.Random) -> None:
    """Replace or delete something at a random depth."""
    keys: list[Any] = list(held) if isinstance(held, dict) else list(range(len(held)))
    if not keys:
        return
    key = chance.choice(keys)
    if isinstance(held[key], dict | list) and held[key] and chance.random() < 0.8:
        _disturb(held[key], chance)
    elif chance.random() < 0.2:
        del held[key]
    else:
        held[key] = chance.choice(VALUES)


def test_a_lie_allocates_next_to_nothing(sound: bytes, tmp_path: Path) -> None:
    lies = [
        put(2**31 - 1, "architecture", "config", "vocab_size"),
        put(2**31 - 1, "architecture", "config", "n_positions"),
        put(1000, "architecture", "config", "n_layer"),
        put([2**20, 2**20], "sections", 0, "shape"),
        put([2**24, 2**24], "tensors", 0, "shape"),
        put(2**40, "sections", 0, "nbytes"),
    ]
    for number, change in enumerate(lies):
        (tmp_path / f"{number}.ticket").write_bytes(lying(sound, change))
    (tmp_path / "deep.ticket").write_bytes(signed(TEXTS["deep lists"]))
    with (tmp_path / "sparse.ticket").open("wb") as file:
        file.write(sound)
        file.truncate(2**36)
    code = """
import resource, sys
from untrained.errors import TicketError
from untrained.ticket import Ticket

Ticket.load(sys.argv[1]).model()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 2**27
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[2:]:
    try:
        Ticket.load(path)
    except TicketError as told:
        print(told)
"""
    (tmp_path / "sound").write_bytes(sound)
    paths = sorted(map(str, tmp_path.glob("*.ticket")))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "sound"), *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(lies) + 2, done.stdout


def test_a_large_model_needs_leave(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(sound)
    assert Ticket.load(tmp_path / "x", max_weights=10**4).weights < 10**4
    with pytest.raises(TicketError, match="if you trust it, load it with a larger max_weights"):
        Ticket.load(tmp_path / "x", max_weights=1000)
