"""What holds of every selection, whatever the scores, layouts, counts and shares."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import selection as oracle
from untrained.masks import Mask
from untrained.select import By, erk_counts, kept_count, select, top_mask

BY = st.sampled_from(["magnitude", "value"])
SHARES = st.floats(min_value=0, max_value=1, exclude_min=True)
SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)
FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, 1e-45, -1e-45])
ANY = st.floats(width=32, allow_nan=False)

settings.register_profile("selection", max_examples=40, deadline=None)
quick = settings(settings.get_profile("selection"))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Scores of any shape, value, float type and layout: permuted, sliced or expanded."""
    shape = draw(SHAPES)
    n = math.prod(shape)
    values = draw(st.lists(draw(st.sampled_from([FEW, ANY])), min_size=n, max_size=n))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype).reshape(shape)
    tensor = tensor.permute(draw(st.permutations(range(tensor.dim()))))
    match draw(st.sampled_from(["dense", "sliced", "expanded"])):
        case "sliced" if tensor.dim():
            return tensor[::2].transpose(0, -1)
        case "expanded":
            return tensor.unsqueeze(-1).expand(*tensor.shape, 2)
    return tensor


@st.composite
def counted(draw: st.DrawFn) -> tuple[Tensor, int]:
    scores = draw(tensors())
    return scores, draw(st.integers(1, scores.numel()))


@quick
@given(counted(), BY)
def test_a_selection_is_the_sort_by_score_and_index(case: tuple[Tensor, int], by: By):
    scores, kept = case
    mask = top_mask(scores, kept, by=by)
    assert int(mask.sum()) == kept
    assert torch.equal(mask, oracle.top_mask(scores, kept, by))


@quick
@given(counted(), BY)
def test_storage_plays_no_part(case: tuple[Tensor, int], by: By):
    scores, kept = case
    assert torch.equal(top_mask(scores, kept, by=by), top_mask(scores.contiguous(), kept, by=by))


@quick
@given(counted(), BY)
def test_keeping_more_keeps_what_was_kept(case: tuple[Tensor, int], by: By):
    scores, kept = case
    more = min(kept + 1, scores.numel())
    assert not (top_mask(scores, kept, by=by) & ~top_mask(scores, more, by=by)).any()


@quick
@given(st.lists(tensors(), min_size=1, max_size=4), SHARES, BY)
def test_a_global_selection_is_that_of_the_joined_scores(pool: list[Tensor], keep: float, by: By):
    scores = {str(i): tensor.double() for i, tensor in enumerate(pool)}
    masks = select(scores, keep, scope="global", by=by)
    joined = torch.cat([tensor.reshape(-1) for tensor in scores.values()])
    wanted = top_mask(joined, kept_count(keep, joined.numel()), by=by)
    assert torch.equal(torch.cat([mask.reshape(-1) for mask in masks.values()]), wanted)


@quick
@given(st.lists(tensors(), min_size=1, max_size=4), SHARES, BY, st.data())
def test_a_layer_selection_is_a_global_one_of_each_layer(
    pool: list[Tensor], keep: float, by: By, data: st.DataObject
):
    scores = {str(i): tensor.double() for i, tensor in enumerate(pool)}
    layer = {name: data.draw(st.sampled_from([None, 0, 1])) for name in scores}
    masks = select(scores, keep, scope="layer", by=by, layer=layer)
    groups = [{n for n in scores if layer[n] == number} for number in (0, 1)]
    groups += [{n} for n in scores if layer[n] is None]
    for group in groups:
        alone = select({n: s for n, s in scores.items() if n in group}, keep, scope="global", by=by)
        assert all(torch.equal(masks[name], mask) for name, mask in alone.items())


@quick
@given(SHARES, st.integers(1, 10**9))
def test_a_count_is_the_rounded_share(keep: float, n: int):
    assert kept_count(keep, n) == oracle.rounded(keep, n)
    assert 1 <= kept_count(keep, n) <= n


@quick
@given(st.dictionaries(st.text(max_size=3), SHAPES, min_size=1, max_size=6), SHARES)
def test_erk_counts_fill_the_budget_in_proportion(shapes: dict[str, tuple[int, ...]], keep: float):
    total = sum(math.prod(shape) for shape in shapes.values())
    budget = kept_count(keep, total)
    if budget < len(shapes):
        return
    counts = erk_counts(shapes, keep)
    assert sum(counts.values()) == budget
    assert all(1 <= counts[name] <= math.prod(shape) for name, shape in shapes.items())
    quotas = oracle.erk_quotas(shapes, budget)
    assert all(abs(counts[name] - quotas[name]) < 1 + 1e-6 for name in shapes)


@st.composite
def masks(draw: st.DrawFn) -> tuple[Mask, Mask]:
    """Two masks of the same tensors."""
    shapes = draw(st.dictionaries(st.text(max_size=3), SHAPES, max_size=3))

    def one() -> Mask:
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        bits = {n: draw(st.lists(st.booleans(), min_size=k, max_size=k)) for n, k in sizes.items()}
        return Mask({n: torch.tensor(bits[n]).bool().view(shapes[n]) for n in shapes})

    return one(), one()


@quick
@given(masks())
def test_masks_form_an_algebra(pair: tuple[Mask, Mask]):
    a, b = pair
    assert ~(a & b) == ~a | ~b
    assert a ^ b == (a | b) & ~(a & b)
    assert a ^ b ^ b == a
    assert (a & b).kept + (a | b).kept == a.kept + b.kept
    assert a.overlap(b) == b.overlap(a)
    assert a.churn(b) == b.churn(a)
    assert (a == b) == (a.fingerprint() == b.fingerprint()) == (a.distance(b) == 0)


@quick
@given(masks())
def test_packed_masks_are_the_oracles_and_come_back(pair: tuple[Mask, Mask]):
    mask, _ = pair
    assert mask.pack() == {name: oracle.pack(tensor) for name, tensor in mask.items()}
    assert Mask.unpack(mask.pack(), mask.shapes) == mask
    assert Mask(dict(mask)) == mask


@quick
@given(masks(), st.integers(0, 2**64 - 1))
def test_shuffles_and_chance_keep_every_count(pair: tuple[Mask, Mask], seed: int):
    mask, other = pair
    assert mask.shuffled(seed=seed).counts == mask.counts
    assert Mask.random(mask.shapes, mask.counts, seed=seed).counts == mask.counts
    both = mask.shuffled(seed=seed) & other.shuffled(seed=seed)
    assert both == (mask & other).shuffled(seed=seed)
