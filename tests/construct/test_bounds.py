"""Bounds hold, are as tight as they say, and widths are those of the paper's theorems."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attentions import pruned, source, target
from untrained.construct.attention import attention_masks, wear
from untrained.construct.bounds import (
    attention_bound,
    attention_bound_of_the_paper,
    attention_widths,
    softmax_bound,
    softmax_bound_of_the_paper,
    transformer_widths,
)
from untrained.construct.networks import merged
from untrained.errors import ConstructError
from untrained.random import draw


def moved(logits: torch.Tensor, error: torch.Tensor, tokens: torch.Tensor) -> float:
    """How far the average of tokens moves with its logits."""
    change = (logits + error).softmax(-1) - logits.softmax(-1)
    return float((change @ tokens).norm())


@pytest.mark.parametrize("error", [1e-3, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("length", [2, 16, 512])
def test_an_average_moves_no_farther_than_the_bound(error: float, length: int) -> None:
    for trial in range(10):
        drawn = draw(trial, "tokens", (length, 3), "normal").double()
        tokens = drawn / drawn.norm(dim=-1, keepdim=True) * 1.5
        logits = draw(trial, "logits", (length,), "normal").double()
        for moves in (
            error * draw(trial, "uniform", (length,), "uniform").double(),
            error * draw(trial, "signs", (length,), "normal").double().sign(),
            error * (tokens @ tokens[0]).sign(),
        ):
            here = moved(logits, moves, tokens)
            assert here <= softmax_bound(error, 1.5) * (1 + 1e-12)
            assert here <= softmax_bound_of_the_paper(error, 1.5, 3)


@pytest.mark.parametrize("error", [0.01, 0.3, 2.0])
def test_two_opposite_tokens_attain_the_bound(error: float) -> None:
    tokens = torch.tensor([[1.5, 0.0], [-1.5, 0.0]], dtype=torch.float64)
    logits = torch.tensor([-error, error], dtype=torch.float64)  # p(A) = 1 / (1 + sqrt r)
    assert moved(logits, -logits * 2, tokens) <= softmax_bound(2 * error, 1.5) * (1 + 1e-12)
    start = torch.tensor([-error, 0.0], dtype=torch.float64)
    shift = torch.tensor([error, -error], dtype=torch.float64)
    assert moved(start, shift, tokens) == pytest.approx(softmax_bound(error, 1.5), rel=1e-9)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("width", [12, 24, 40])
def test_a_pruned_attention_is_within_its_bound(heads: int, width: int) -> None:
    d, radius = 2, 1.6
    goal, network = target(d, d, heads, seed=width), source(d, d, heads, width, seed=width)
    logits, values = (part.numpy() for part in merged(goal))
    found = attention_masks(network, logits, values)
    pruned(network, wear(found))
    dk = [float(head.logits.error.max()) / math.sqrt(width) for head in found]
    dv = [float(head.values.error.max()) for head in found]
    norms = [float(np.linalg.norm(values[h], 2)) for h in range(heads)]
    sharp = attention_bound(dk, dv, radius=radius, d1=d, d2=d, value_norms=norms)
    paper = attention_bound_of_the_paper(max(dk), max(dv), heads=heads, radius=radius, d1=d, d2=d)
    assert sharp.total <= paper.total
    network, goal = network.double(), goal.double()
    for length in (2, 64, 1024):
        drawn = draw(length, "tokens", (length, d), "normal").double()
        tokens = drawn / drawn.norm(dim=-1, keepdim=True) * radius
        for mask in (None, torch.ones(length, length).tril().bool()):
            moved_by = (network(tokens, mask) - goal(tokens, mask)).detach().norm(dim=-1).max()
            assert float(moved_by) <= sharp.total


def test_the_widths_of_theorem_9() -> None:
    keys, values = attention_widths(heads=1, radius=math.sqrt(2), d1=2, d2=2, epsilon=0.01)
    assert keys == pytest.approx(2 * math.log(8 * 2**1.5 * 2**1.5 / 0.01))
    assert values == pytest.approx(2 * math.log(2 * math.sqrt(2) * 2 * math.sqrt(2) / 0.01))


@pytest.mark.parametrize(
    ("blocks", "expected"), [(2, [36, 36]), (3, [59, 59, 47]), (4, [89, 89, 76, 57])]
)
def test_the_widths_of_theorem_14(blocks: int, expected: list[int]) -> None:
    widths = transformer_widths(blocks=blocks, heads=1, radius=math.sqrt(2), d=2, epsilon=0.01)
    assert [round(attention) for attention, _ in widths] == expected


def test_the_widths_grow_with_the_square_of_the_depth() -> None:
    first = [
        transformer_widths(blocks=b, heads=1, radius=math.sqrt(2), d=2, epsilon=0.01)[0][0]
        for b in (4, 8, 12)
    ]
    assert first[2] == pytest.approx(577, abs=1)
    assert first[2] - first[1] > first[1] - first[0]


def test_what_the_theorem_does_not_speak_of_is_refused() -> None:
    with pytest.raises(ConstructError, match=r"epsilon=1.5: the accuracy is in \(0, 1\)"):
        attention_widths(heads=1, radius=2.0, d1=2, d2=2, epsilon=1.5)
    with pytest.raises(ConstructError, match=r"at least sqrt\(max\(d1, d2\)\) = 2"):
        attention_widths(heads=1, radius=1.0, d1=2, d2=4, epsilon=0.1)
    with pytest.raises(ConstructError, match="blocks=0"):
        transformer_widths(blocks=0, heads=1, radius=2.0, d=2, epsilon=0.1)
