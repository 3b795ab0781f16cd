"""Which value stands where: known answers, an oracle, golden values, parts, refusals, chance."""

from __future__ import annotations

import hashlib
import json
import math
import runpy
import tracemalloc
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import philox as oracle
from untrained import random
from untrained.errors import RandomError
from untrained.laws import LAWS, Law, Place
from untrained.random import GENERATOR, draw, words

GOLDEN = json.loads((Path(__file__).parent / "golden" / "random.json").read_text(encoding="utf-8"))
SCRIPT = Path(__file__).parents[1] / "scripts" / "make_normal_table.py"
CHUNK = random._CHUNK
KINDS = ("signed_constant", "uniform", "normal", "ones")


def numbers_of(shape: tuple[int, ...], index: Any) -> np.ndarray:
    """The row-major number of every element that an index selects."""
    return np.arange(math.prod(shape)).reshape(shape)[index]


def as_drawn(seed: int, name: str, shape: tuple[int, ...], law: Law, numbers: Any) -> np.ndarray:
    """What the second implementation says about some elements."""
    found = law.distribution(Place(shape))
    return np.array(oracle.values(seed, name, numbers, found.kind, found.scale), np.float32)


# --- the generator ---

# kat_vectors of Random123, philox4x32 with 10 rounds: counter, key, answer.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter: Any, key: Any, answer: str):
    low, high, *rest = counter
    number = np.array([low | high << 32], np.uint64)
    (block,) = random._philox(number, key=key, high=tuple(rest))
    assert [int(answered, 16) for answered in answer.split()] == block.tolist()
    assert block.tolist() == list(oracle.philox(counter, key))


@pytest.mark.parametrize("start", [0, 1, 3, 4, CHUNK - 2, 2**32 - 3, 2**34 - 3, 2**64 - 9])
def test_words_are_those_of_the_second_implementation(start: int):
    found = words(7, "a/weights", start, start + 8)
    assert found.dtype == np.uint32
    assert found.tolist() == [oracle.word(7, "a/weights", start + i) for i in range(8)]


def test_words_do_not_depend_on_where_they_begin():
    whole = words(1, "a", 0, 3 * CHUNK + 5)
    for start, stop in [(0, 0), (5, 5), (1, 2), (2, 4000), (CHUNK - 1, 2 * CHUNK + 2)]:
        assert (words(1, "a", start, stop) == whole[start:stop]).all()


# --- the values ---


@pytest.mark.parametrize("name", LAWS)
def test_values_are_those_of_the_second_implementation(name: str):
    shape, law = (5, 7, 11), Law(name)
    drawn = draw(3, "layers.0.query/weights", shape, law)
    expected = as_drawn(3, "layers.0.query/weights", shape, law, range(5 * 7 * 11))
    assert (drawn.numpy().reshape(-1) == expected).all()


@pytest.mark.parametrize("name", KINDS)
def test_values_go_on_over_chunks(name: str):
    size = 2 * 32 * CHUNK + 40
    drawn = draw(5, "long", (size,), name).numpy()
    edges = [k * CHUNK + d for k in (1, 2, 31, 32, 64) for d in range(-3, 3)]
    edges += [size - 1]
    assert (drawn[edges] == as_drawn(5, "long", (size,), Law(name), edges)).all()


@pytest.mark.parametrize("name", KINDS)
def test_values_are_defined_far_beyond_any_memory(name: str):
    shape = (2**40, 2**20)
    index = (-2, slice(-40, None, 3))
    drawn = draw(5, "far", shape, name, index=index).numpy()
    numbers = [(2**40 - 2) * 2**20 + 2**20 - 40 + 3 * i for i in range(14)]
    assert (drawn == as_drawn(5, "far", shape, Law(name), numbers)).all()


def test_scales_are_rounded_to_float32_once():
    for scale in (0.1, 1 / 3, 1e-7, 12345.678):
        assert draw(0, "a", (), Law("ones", scale)).item() == np.float32(scale)
        assert abs(draw(0, "a", (), Law("normal", scale)).item()) == abs(
            as_drawn(0, "a", (), Law("normal", scale), [0])[0]
        )


def test_signs_are_bits_lowest_first():
    drawn = draw(0, "a", (64,), "signed_constant").numpy()
    first, second = words(0, "a", 0, 2).tolist()
    bits = [(first | second << 32) >> i & 1 for i in range(64)]
    assert (drawn == np.where(bits, 0.125, -0.125)).all()


EXTREMES = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF], np.uint32)


def filled(fill: Any, drawn: np.ndarray, scale: float = 1.0) -> np.ndarray:
    out = np.empty(len(drawn), np.float32)
    fill(out, drawn.copy(), np.float32(scale))
    return out


def test_uniform_is_odd_in_the_word_and_inside_its_bound():
    drawn = np.concatenate([EXTREMES, words(0, "a", 0, 1000)])
    found = filled(random._fill_uniform, drawn)
    assert (found == -filled(random._fill_uniform, ~drawn)).all()
    assert np.abs(found).max() == 1 - 2**-24
    assert np.abs(found).min() == 2**-24


def test_normal_is_odd_in_the_sign_bit_and_never_zero():
    drawn = np.concatenate([EXTREMES, words(0, "a", 0, 1000)])
    found = filled(random._fill_normal, drawn)
    assert (found == -filled(random._fill_normal, drawn ^ np.uint32(1 << 31))).all()
    assert 0 < np.abs(found).min() < 1e-9
    assert 4.12 < np.abs(found).max() < 4.13


def test_normal_grows_with_the_word():
    drawn = np.arange(0, 2**31, 4093, dtype=np.uint32)
    assert (np.diff(filled(random._fill_normal, drawn)) >= 0).all()


@pytest.mark.parametrize("scale", [2.0**-64, 2.0**64])
@pytest.mark.parametrize("name", ["signed_constant", "uniform", "normal", "ones"])
def test_no_value_is_denormal_or_infinite_at_either_end(name: str, scale: float):
    fill = {"uniform": random._fill_uniform, "normal": random._fill_normal}
    drawn = filled(fill[name], EXTREMES, scale) if name in fill else np.float32(scale)
    smallest, largest = np.abs(drawn).min(), np.abs(drawn).max()
    assert np.finfo(np.float32).tiny <= smallest <= largest <= np.finfo(np.float32).max


# --- the table of the half normal ---


def test_the_script_makes_the_table_that_is_shipped():
    table = runpy.run_path(str(SCRIPT))["make_table"]()
    assert table == oracle.TABLE.read_bytes()
    assert hashlib.sha256(table).hexdigest() == random._TABLE_SHA256


def test_knots_are_quantiles():
    exact = NormalDist()
    for cell, knot in enumerate(oracle.knots()[:-1]):
        assert knot / 2**28 == pytest.approx(exact.inv_cdf(0.5 + cell / 8192), abs=2e-9)


def test_the_law_of_the_table_has_sd_1():
    """Exactly: the mean square over all 2^19 places in all cells. The mean is 0 by symmetry."""
    total = Fraction(0)
    for a, b in pairwise(oracle.knots()):
        spread = Fraction((b - a) ** 2 * (2**38 - 1), 12 * 2**38)
        total += Fraction(a + b, 2) ** 2 + spread
    assert math.sqrt(total / 4096 / 2**56) == pytest.approx(1, abs=1e-9)


def test_a_damaged_table_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(random, "_TABLE_SHA256", "0" * 64)
    random._table.cache_clear()
    with pytest.raises(RandomError, match=r"half_normal.i32 has SHA-256 .* install untrained"):
        draw(0, "a", (3,), "normal")


# --- golden values: they change with GENERATOR, and never otherwise ---


@pytest.mark.parametrize("case", GOLDEN["tensors"], ids=lambda case: case["name"])
def test_values_are_those_recorded(case: dict[str, Any]):
    law, place = Law(**case["law"]), Place(tuple(case["shape"]), **case["place"])
    drawn = draw(case["seed"], case["name"], place.shape, law, place=place).numpy()
    assert GOLDEN["generator"] == GENERATOR
    assert [value.hex() for value in drawn.reshape(-1)[:4].tolist()] == case["first"]
    assert hashlib.sha256(drawn.astype("<f4").tobytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize(
    "case", [c for c in GOLDEN["tensors"] if math.prod(c["shape"]) < 2000], ids=lambda c: c["name"]
)
def test_the_second_implementation_gives_what_is_recorded(case: dict[str, Any]):
    law, place = Law(**case["law"]), Place(tuple(case["shape"]), **case["place"])
    found = law.distribution(place)
    numbers = range(math.prod(place.shape))
    values = oracle.values(case["seed"], case["name"], numbers, found.kind, found.scale)
    assert hashlib.sha256(np.array(values, "<f4").tobytes()).hexdigest() == case["sha256"]


def test_every_law_is_recorded():
    assert {case["law"]["name"] for case in GOLDEN["tensors"]} == LAWS.keys()


# --- slices ---

INDICES = [
    0,
    -1,
    ...,
    (),
    slice(2, 5),
    (slice(None), 2),
    (slice(None), slice(None), slice(3, 30)),
    (slice(1, 2), slice(3, 4), slice(5, None)),
    (..., 5),
    (2, ..., slice(None, None, 2)),
    (slice(5, 1, -2), ..., slice(None, None, -7)),
    (slice(-3, None), slice(-100, 100)),
    (2, 3, 4),
    (slice(3, 3),),
    (slice(None, None, -1), 8, slice(0, 1)),
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_part_is_that_part_of_the_whole(index: Any, name: str):
    shape = (7, 9, 33)
    whole = draw(0, "a", shape, name).numpy()
    part = draw(0, "a", shape, name, index=index).numpy()
    assert part.shape == whole[index].shape
    assert (part == whole[index]).all()


SIZES = st.lists(st.integers(0, 12), max_size=4).map(tuple)
ENDS = st.none() | st.integers(-15, 15)


@st.composite
def shapes_and_indices(choose: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = choose(SIZES)
    steps = st.none() | st.integers(-4, 4).filter(bool)
    slices = st.builds(slice, ENDS, ENDS, steps)
    axes = choose(st.integers(0, len(shape)))
    return shape, tuple(
        choose(slices | st.integers(-size, size - 1) if size else slices) for size in shape[:axes]
    )


@given(shapes_and_indices(), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None, database=None)
def test_any_part_is_that_part_of_the_whole(case: Any, name: str):
    shape, index = case
    whole = draw(9, "a", shape, name).numpy()
    part = draw(9, "a", shape, name, index=index).numpy()
    assert part.shape == whole[index].shape
    assert (part == whole[index]).all()


@pytest.mark.parametrize("name", KINDS)
def test_a_part_of_many_chunks_is_that_part_of_the_whole(name: str):
    shape = (3 * CHUNK // 100, 200)
    whole = draw(0, "a", shape, name).numpy()
    for index in [(slice(None), slice(1, 120)), (slice(None, None, -1), slice(None, None, 2))]:
        assert (draw(0, "a", shape, name, index=index).numpy() == whole[index]).all()


@pytest.mark.parametrize("name", KINDS)
def test_memory_is_that_of_the_part(name: str):
    draw(0, "a", (8,), name)  # tables are loaded once
    tracemalloc.start()
    part = draw(0, "a", (2**30, 2**12), name, index=(slice(None, None, 2**14), slice(0, 3)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert part.shape == (2**16, 3)
    assert peak < 8 * 2**20


@pytest.mark.parametrize("name", KINDS)
def test_temporaries_do_not_grow_with_the_tensor(name: str):
    tracemalloc.start()
    drawn = draw(0, "a", (4_000_000,), name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - 4 * drawn.numel() < 20 * 2**20


# --- the tensor ---


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 0), (0, 4), (1, 1, 1, 1, 1)])
def test_every_shape_is_defined(name: str, shape: tuple[int, ...]):
    assert draw(0, "a", shape, name).shape == shape


def test_a_tensor_is_float32_contiguous_and_the_callers_own():
    one, other = (draw(0, "a", (5, 6), "normal") for _ in range(2))
    assert one.dtype == torch.float32
    assert one.device.type == "cpu"
    assert one.is_contiguous()
    one.zero_()
    assert (draw(0, "a", (5, 6), "normal") == other).all()


def test_a_law_may_be_named():
    drawn = draw(0, "a", (5, 6), "gpt2")
    assert (drawn == draw(0, "a", (5, 6), Law("gpt2"))).all()
    assert (drawn == draw(0, "a", (5, 6), "gpt2", place=Place((5, 6)))).all()


def test_a_shape_may_be_torchs():
    assert draw(0, "a", torch.Size([5, 6]), "gpt2").shape == (5, 6)


# --- refusals ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": None}, "the name of a stream is text"),
        ({"name": b"a"}, "the name of a stream is text"),
        ({"name": "\ud800"}, "that UTF-8 can hold"),
        ({"shape": (3, -4)}, "a size in a shape"),
        ({"shape": 12}, "is not a shape"),
        ({"law": "uniformly"}, "is not a law; there are"),
        ({"law": None}, "is not a law"),
        ({"law": Law("uniform", 1e-30)}, "comes to a scale of 1e-30"),
        ({"place": Place((4, 3))}, r"the shape is \(3, 4\), that of its place \(4, 3\)"),
        ({"index": 3}, "an index at axis 0"),
        ({"index": (0, -5)}, r"-5: an index at axis 1 of shape \(3, 4\)"),
        ({"index": (0, 0, 0)}, "does not fit shape"),
        ({"index": (..., 0, ...)}, "does not fit shape"),
        ({"index": (None, 0)}, "an index at axis 0"),
        ({"index": True}, "an index at axis 0"),
        ({"index": 1.0}, "an index at axis 0"),
        ({"index": ([0, 1],)}, "an index at axis 0"),
        ({"index": slice(None, None, 0)}, "step cannot be zero"),
        ({"index": slice(0.5)}, "index slice"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], said: str):
    usual = {"seed": 0, "name": "a", "shape": (3, 4), "law": "uniform"}
    with pytest.raises(RandomError, match=said):
        draw(**{**usual, **arguments})


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 2**64), (0.0, 3), (0, None)])
def test_words_that_make_no_sense_are_refused(start: Any, stop: Any):
    with pytest.raises(RandomError, match=r"words? is a whole number"):
        words(0, "a", start, stop)


# --- chance: seeds are fixed, so these hold or fail for good; the limits are 4 sigma ---

N = 200_000
LIMIT = 4.0


def sample(name: str, stream: str = "chance", seed: int = 11) -> np.ndarray:
    """N values in units of the law's scale."""
    law = Law(name)
    scale = law.distribution(Place((N,))).scale
    return draw(seed, stream, (N,), law).numpy().astype(np.float64) / scale


def z_of_mean(values: np.ndarray, mean: float) -> float:
    """How many standard errors a mean is off."""
    return float((values.mean() - mean) / values.std() * math.sqrt(len(values)))


MOMENTS = {"signs": (1, 1), "uniform": (1 / 3, 1 / 5), "normal": (1, 3)}
DRAWN = [name for name in LAWS if Law(name).distribution(Place((2, 2))).kind in MOMENTS]


@pytest.mark.parametrize("name", DRAWN)
def test_moments_are_those_of_the_law(name: str):
    values, kind = sample(name), Law(name).distribution(Place((N,))).kind
    for power in (1, 3, 5):
        assert abs(z_of_mean(values**power, 0)) < LIMIT
    second, fourth = MOMENTS[kind]
    if kind == "signs":
        assert np.allclose(np.abs(values), 1, atol=1e-6)
    else:
        assert abs(z_of_mean(values**2, second)) < LIMIT
        assert abs(z_of_mean(values**4, fourth)) < LIMIT


@pytest.mark.parametrize("name", [n for n in DRAWN if n != "signed_constant"])
def test_values_follow_the_exact_law(name: str):
    """Kolmogorov and Smirnov; sqrt(n) D above 1.95 has a chance of 0.001."""
    values = np.sort(sample(name))
    if Law(name).distribution(Place((N,))).kind == "normal":
        below = torch.special.ndtr(torch.from_numpy(values)).numpy()
    else:
        below = (values + 1) / 2
    steps = np.arange(N + 1) / N
    distance = max((steps[1:] - below).max(), (below - steps[:-1]).max())
    assert math.sqrt(N) * distance < 1.95


@pytest.mark.parametrize("name", DRAWN)
def test_the_runs_of_signs_are_those_of_fair_coins(name: str):
    """Each neighbour differs with a chance of one half; so does one four, or thirty-two, on."""
    signs = sample(name) > 0
    for lag in (1, 2, 3, 4, 8, 32, 128):
        assert abs(z_of_mean((signs[lag:] != signs[:-lag]).astype(float), 0.5)) < LIMIT


STREAMS = [
    ("layers.0.query/weights", 0),
    ("layers.1.query/weights", 0),
    ("layers.0.key/weights", 0),
    ("layers.0.query/scores", 0),
    ("layers.0.query/weights", 1),
    ("layers.0.query/weights", 2**63),
    ("", 0),
]


@pytest.mark.parametrize("name", ["signed_constant", "uniform", "normal"])
def test_streams_are_independent(name: str):
    samples = [sample(name, *stream) for stream in STREAMS]
    for i, one in enumerate(samples):
        for other in samples[:i]:
            assert abs(z_of_mean(one * other, 0)) < LIMIT
            assert abs(z_of_mean(one[1:] * other[:-1], 0)) < LIMIT


def test_the_bytes_of_words_are_uniform():
    """Chi-squared of 256 classes at each of four places: mean 255, sd sqrt(510)."""
    found = words(4, "bytes", 0, N).astype("<u4").view(np.uint8).reshape(-1, 4)
    for place in range(4):
        counts = np.bincount(found[:, place], minlength=256)
        chi = ((counts - N / 256) ** 2 / (N / 256)).sum()
        assert abs(chi - 255) < LIMIT * math.sqrt(510)


def test_one_bit_of_the_seed_changes_half_the_bits():
    base = words(0, "a", 0, 64)
    for bit in range(64):
        changed = int(np.bitwise_count(base ^ words(1 << bit, "a", 0, 64)).sum())
        assert abs(changed - 1024) < LIMIT * math.sqrt(512) + 1
