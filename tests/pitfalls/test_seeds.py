"""What users of other libraries ran into with seeds, thread by thread, and what happens here.

A test without a thread stands beside those whose question it carries on.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import random as python_random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from untrained.errors import RandomError
from untrained.laws import Law
from untrained.random import draw, words

KINDS = ("signed_constant", "uniform", "normal")
SHAPE = (130, 257)


def fingerprint() -> str:
    """The SHA-256 of some values of every kind."""
    total = hashlib.sha256()
    for name in ("signed_constant", "unsigned_constant", "uniform", "normal", "kaiming_normal"):
        total.update(draw(0, "layers.0.query/weights", SHAPE, Law(name, 0.37)).numpy().tobytes())
    total.update(draw(0, "größe", SHAPE, "normal", index=(slice(None), 3)).numpy().tobytes())
    return total.hexdigest()


# --- the same seed, other values ---


@pytest.mark.parametrize(("short", "long"), [(15, 16), (16, 17), (100, 101), (1000, 1008)])
@pytest.mark.parametrize("name", KINDS)
def test_values_do_not_depend_on_how_many_are_drawn(name: str, short: int, long: int):
    """pytorch/pytorch #80202: the first of n normal values differ between n = 15 and n = 16."""
    whole = draw(0, "a", (long,), Law(name))
    part = draw(0, "a", (short,), Law(name))
    if name == "signed_constant":  # its size is that of the fan; its signs are what is drawn
        whole, part = whole.sign(), part.sign()
    assert torch.equal(whole[:short], part)


@pytest.mark.parametrize("name", KINDS)
def test_values_belong_to_elements_whoever_draws_them(name: str):
    """pytorch/pytorch #62467, #143086, #158398, #196613, #196733: long tensors differ between GPUs,
    since which element gets which value depends on how many multiprocessors share the work."""
    whole = draw(0, "a", SHAPE, name)
    for workers in (2, 3, 8, 13):
        ends = [SHAPE[0] * worker // workers for worker in range(workers + 1)]
        shares = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
        last_first = [draw(0, "a", SHAPE, name, index=share) for share in reversed(shares)]
        assert torch.equal(torch.cat(last_first[::-1]), whole)


def test_values_are_the_same_under_every_default_device():
    """pytorch/pytorch #79496, #47347: the same seed gives other values on CPU and CUDA."""
    expected = fingerprint()
    with torch.device("meta"):
        assert fingerprint() == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_values_are_the_same_on_any_number_of_threads(threads: int):
    """pytorch/pytorch #155423, #155552: an orthogonal initialisation depends on the machine; it
    changes with the number of threads too."""
    expected, before = fingerprint(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert fingerprint() == expected
    finally:
        torch.set_num_threads(before)


FEATURES = [feature for feature in __cpu_dispatch__ if __cpu_features__.get(feature)]
PROCESSORS = {
    "plain": {"ATEN_CPU_CAPABILITY": "default", "NPY_DISABLE_CPU_FEATURES": " ".join(FEATURES)},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "2"},
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_values_are_the_same_on_every_processor(processor: str):
    """pytorch/pytorch #155423, #155552; ml-explore/mlx #3568: orthogonal matrices differ with
    AVX-512, normal values between chips. Here in other processes, with other string hashes."""
    code = "from pitfalls.test_seeds import fingerprint; print(fingerprint())"
    path = [os.path.dirname(os.path.dirname(__file__)), *sys.path]
    told = {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env={**os.environ, **told, **PROCESSORS[processor]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == fingerprint()


@pytest.fixture
def unusual_floats() -> Iterator[None]:
    """Float64 by default, and denormals flushed to zero."""
    torch.set_default_dtype(torch.float64)
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("unusual_floats")
@pytest.mark.parametrize("scale", [1.0, 2.0**-64])
@pytest.mark.parametrize("name", KINDS)
def test_values_are_the_same_whatever_floats_are_usual(name: str, scale: float):
    law = Law(name, 8 * scale if name == "signed_constant" else scale)  # down to the least scale
    drawn = draw(0, "a", (64,), law)
    torch.set_default_dtype(torch.float32)
    torch.set_flush_denormal(False)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn, draw(0, "a", (64,), law))
    assert drawn.count_nonzero() == 64


# --- who else has a say ---


def test_no_global_generator_is_read_or_moved():
    """PAIR-code/tiny-transformers #35: part of the model escapes the seed."""
    expected = fingerprint()
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        python_random.seed(seed)
        before = (torch.get_rng_state(), np.random.get_state()[1].copy(), python_random.getstate())
        assert fingerprint() == expected
        assert torch.equal(before[0], torch.get_rng_state())
        assert (before[1] == np.random.get_state()[1]).all()
        assert before[2] == python_random.getstate()


def test_what_is_drawn_first_does_not_matter():
    alone = draw(0, "layers.1.key/weights", SHAPE, "normal")
    draw(0, "layers.0.key/weights", SHAPE, "normal")
    words(0, "layers.1.key/weights", 0, 5)
    assert torch.equal(draw(0, "layers.1.key/weights", SHAPE, "normal"), alone)


def test_a_seed_and_a_name_are_all_there_is_to_store():
    """huggingface/peft #1039, #1564: storing the seed is promised, and the matrices are stored;
    #3200, #3428: what is seeded is a generator, which cannot be stored."""
    facts = {"seed": 2**64 - 1, "name": "größe", "shape": [3, 4], "law": "normal"}
    drawn = draw(**facts)
    assert torch.equal(draw(**json.loads(json.dumps(facts))), drawn)
    law = Law("kaiming_normal", 2.83, rescale=False)
    assert pickle.loads(pickle.dumps(law)) == law


# --- other names, other values ---


@pytest.mark.parametrize("name", KINDS)
def test_no_two_names_give_the_same_tensor(name: str):
    """adapter-hub/adapters #653, #786: the option for a seeded start makes all layers identical."""
    parts = ("query", "key", "value", "output", "mlp.up", "mlp.down")
    paths = [f"layers.{i}.{part}/{what}" for i in range(12) for part in parts for what in "ws"]
    tensors = [draw(0, path, (16, 16), name).numpy().tobytes() for path in paths]
    assert len(set(tensors)) == len(paths)


def test_names_that_look_alike_are_other_names():
    names = ["", "\0", "a", "a\0", "A", "a ", "é", "e\u0301", "größe", "大きさ", "🎲", "0", "00"]
    tensors = {
        draw(seed, name, (9,), "normal").numpy().tobytes() for name in names for seed in (0, 48)
    }
    assert len(tensors) == 2 * len(names)


SEEDS = (0, 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1)


def test_every_seed_of_64_bits_counts():
    tensors = [draw(seed, "a", (64,), "normal") for seed in SEEDS]
    for one, other in itertools.combinations(tensors, 2):
        assert not torch.equal(one, other)


@pytest.mark.parametrize(
    "seed", [-1, -(2**63), 2**64, 10**30, True, False, 0.0, 1.5, "0", None, (0,), np.float64(1)]
)
def test_what_is_no_seed_is_refused(seed: Any):
    for drawing in (lambda: draw(seed, "a", (3,), "normal"), lambda: words(seed, "a", 0, 3)):
        with pytest.raises(RandomError, match=r"a seed is a whole number, at least 0 and below"):
            drawing()


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int8])
def test_a_seed_may_be_numpys(kind: type):
    assert torch.equal(draw(kind(7), "a", (9,), "normal"), draw(7, "a", (9,), "normal"))
