"""A pruned random attention is the target attention, to within what its subset sums leave."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attentions import pruned, source, target
from untrained.construct.attention import attention_masks, factors, wear
from untrained.construct.networks import NormFreeAttention, merged
from untrained.errors import ConstructError
from untrained.random import draw


@pytest.mark.parametrize(("d1", "d2", "heads"), [(2, 2, 1), (3, 2, 2), (2, 1, 4)])
def test_the_merged_products_are_the_subset_sums(d1: int, d2: int, heads: int) -> None:
    network = source(d1, d2, heads, 14 * d1 + 1)
    logits, values = (part.numpy() for part in merged(target(d1, d2, heads)))
    found = attention_masks(network, logits, values)
    made, mixed = merged(pruned(network, wear(found)))
    for h, head in enumerate(found):
        root = math.sqrt(network.key_width)
        assert np.allclose(made[h].numpy(), head.logits.made / root, atol=1e-12)
        assert np.allclose(mixed[h].numpy().T, head.values.made, atol=1e-12)
        assert np.allclose(abs(logits[h] * root - head.logits.made), head.logits.error, atol=1e-12)


def test_one_mask_of_each_pair_is_the_block_pattern() -> None:
    network = source(3, 3, 1, 13)
    logits, values = (part.numpy() for part in merged(target(3, 3, 1)))
    (head,) = attention_masks(network, logits, values)
    expected = np.repeat(np.eye(3, dtype=bool), 4, axis=1)
    for mask in (head.key, head.value):
        assert np.array_equal(mask[:, :12], expected)
    for name in ("query", "key", "value", "output"):
        assert not getattr(head, name)[:, 12].any(), "the unit left over is pruned"


def test_the_weights_of_the_source_are_not_touched() -> None:
    network = source(2, 2, 1, 8)
    before = [weight.detach().clone() for weight in network.parameters()]
    attention_masks(network, *(part.numpy() for part in merged(target(2, 2, 1))))
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_an_entry_is_the_best_that_brute_force_finds() -> None:
    network = source(2, 2, 1, 10)
    logits, values = (part.numpy() for part in merged(target(2, 2, 1)))
    (head,) = attention_masks(network, logits, values)
    query, key, _, _ = factors(network)
    for i in range(2):
        for j in range(2):
            units = slice(5 * j, 5 * j + 5)
            terms = query[0, i, units] * key[0, j, units]
            masks = (np.arange(32)[:, None] >> np.arange(5)) & 1
            best = abs(masks @ terms - logits[0, i, j] * math.sqrt(10)).min()
            assert head.logits.error[i, j] == pytest.approx(best, abs=1e-12)


def test_the_outputs_agree_for_any_length_and_attention_mask() -> None:
    goal = target(2, 2, 2)
    network = source(2, 2, 2, 56)
    found = attention_masks(network, *(part.numpy() for part in merged(goal)))
    pruned(network, wear(found))
    goal, network = goal.double(), network.double()
    for length in (2, 64, 512):
        tokens = draw(length, "tokens", (length, 2), "normal").double()
        causal = torch.ones(length, length).tril().bool()
        ragged = draw(length, "mask", (length, length), "uniform") > 0
        ragged |= torch.eye(length).bool()
        for mask in (None, causal, ragged):
            assert torch.allclose(network(tokens, mask), goal(tokens, mask), atol=1e-4)


def test_the_better_grouping_is_never_worse() -> None:
    network = source(4, 1, 1, 40)
    logits, values = (part.numpy() for part in merged(target(4, 1, 1)))
    errors = {
        way: attention_masks(network, logits, values, group_logits=way, group_values=way)[0]
        for way in ("first", "second", "best")
    }
    for part in ("logits", "values"):
        worst = {way: getattr(head, part).error.max() for way, head in errors.items()}
        assert worst["best"] == min(worst["first"], worst["second"])
    assert errors["second"].values.error.max() < errors["first"].values.error.max()


def test_reach_says_which_entries_need_more_units() -> None:
    network = source(2, 2, 1, 8)
    logits = np.full((1, 2, 2), 3.0)
    (head,) = attention_masks(network, logits, np.zeros((1, 2, 2)))
    assert head.logits.unreachable.all()
    assert np.allclose(head.logits.error, 3.0 * math.sqrt(8) - head.logits.reach)
    assert not head.values.unreachable.any()
    assert not head.values.error.any()


def test_what_does_not_fit_is_refused() -> None:
    network = source(3, 3, 1, 2)
    with pytest.raises(ConstructError, match="2 hidden units cannot serve 3 columns"):
        attention_masks(network, np.zeros((1, 3, 3)), np.zeros((1, 3, 3)))
    with pytest.raises(
        ConstructError, match=r"logits are \(1, 2, 2\) and the source's \(1, 3, 3\)"
    ):
        attention_masks(network, np.zeros((1, 2, 2)), np.zeros((1, 3, 3)))
    with pytest.raises(ConstructError, match="heads=0: heads is at least 1"):
        NormFreeAttention(2, 2, heads=0, key_width=2, value_width=2)
