"""Which weights scores keep: exact counts, ties, layouts, dtypes, scopes, gradients, refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oracles import selection as oracle
from untrained.errors import MaskError
from untrained.select import (
    By,
    Scope,
    effective_weight,
    erk_counts,
    kept_count,
    score_gradient,
    select,
    top_mask,
)

BY: tuple[By, ...] = ("magnitude", "value")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def flushing() -> Iterator[None]:
    """Denormals count as zero in float arithmetic, as on some training machines."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    yield
    torch.set_flush_denormal(False)


LAYOUTS = {
    "contiguous": lambda: normal(6, 8),
    "transposed": lambda: normal(8, 6).t(),
    "channels last": lambda: normal(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels last 3d": lambda: normal(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d),
    "permuted": lambda: normal(2, 3, 4).permute(2, 0, 1),
    "sliced": lambda: normal(10, 10)[1:8:2, 2:9],
    "transposed slice": lambda: normal(10, 10)[1:8:2, 2:9].t(),
    "one column": lambda: normal(10, 10)[:, 3],
    "strided vector": lambda: normal(40)[::3],
    "expanded rows": lambda: normal(1, 8).expand(5, 8),
    "expanded columns": lambda: normal(5, 1).expand(5, 8),
    "expanded scalar": lambda: normal(1).expand(4, 6),
    "overlapping": lambda: normal(12).as_strided((5, 4), (2, 1)),
    "flipped": lambda: normal(5, 4).flip(0),
    "0-d": lambda: torch.tensor(-1.5),
    "1": lambda: normal(1),
    "1 x 1 x 1": lambda: normal(1, 1, 1),
    "1 x n": lambda: normal(1, 9),
    "n x 1": lambda: normal(9, 1),
    "n x 1 transposed": lambda: normal(1, 9).t(),
    "negated view": lambda: torch.complex(normal(4, 5), normal(4, 5, seed=1)).conj().imag,
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
class TestLayouts:
    def test_every_count_equals_the_oracle(self, make, by: By):
        scores = make()
        for kept in range(1, scores.numel() + 1):
            mask = top_mask(scores, kept, by=by)
            assert torch.equal(mask, oracle.top_mask(scores, kept, by)), kept

    def test_ties_follow_the_logical_index_not_the_storage(self, make, by: By):
        scores = make()
        tied = torch.empty_like(scores).copy_(scores.sign())
        for kept in range(1, scores.numel() + 1):
            assert torch.equal(top_mask(tied, kept, by=by), oracle.top_mask(tied, kept, by))

    def test_mask_is_laid_out_like_the_scores(self, make, by: By):
        scores = make()
        mask = top_mask(scores, 1, by=by)
        like = torch.empty_like(scores, dtype=torch.bool)
        assert (mask.shape, mask.stride(), mask.dtype) == (like.shape, like.stride(), torch.bool)

    def test_mask_shares_no_memory_and_scores_are_untouched(self, make, by: By):
        scores = make()
        before = scores.clone()
        mask = top_mask(scores, scores.numel(), by=by)
        assert mask.untyped_storage().data_ptr() != scores.untyped_storage().data_ptr()
        mask.logical_not_()
        assert torch.equal(scores, before)


class TestTies:
    def test_equal_scores_keep_the_lower_index(self):
        mask = top_mask(torch.tensor([1.0, 2.0, 1.0, 1.0]), 2)
        assert mask.tolist() == [True, True, False, False]

    def test_all_equal_scores_keep_the_first(self):
        for n in (1, 7, 1 << 15, (1 << 15) + 1, 100_003):
            for kept in {1, n // 3 or 1, n}:
                mask = top_mask(torch.full((n,), 0.25), kept)
                assert mask[:kept].all()
                assert not mask[kept:].any()

    def test_all_equal_transposed_scores_keep_the_first_rows(self):
        mask = top_mask(torch.ones(300, 500).t(), 300 * 200)
        assert mask[:200].all()
        assert not mask[200:].any()

    @pytest.mark.parametrize("by", BY)
    def test_zeros_of_both_signs_are_equal(self, by: By):
        scores = torch.tensor([1.0, 0.0, -0.0, 0.0, -0.0])
        assert top_mask(scores, 3, by=by).tolist() == [True, True, True, False, False]
        assert top_mask(-scores[1:], 2, by=by).tolist() == [True, True, False, False]

    def test_magnitude_ties_across_signs(self):
        assert top_mask(torch.tensor([-1.0, 1.0, -1.0]), 2).tolist() == [True, True, False]

    def test_value_ranks_negative_scores_last(self):
        scores = torch.tensor([-3.0, -1.0, 2.0, -2.0])
        assert top_mask(scores, 2, by="value").tolist() == [False, True, True, False]
        assert top_mask(scores, 2, by="magnitude").tolist() == [True, False, True, False]


class TestNumbers:
    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_every_float_type_is_ranked_exactly(self, dtype: torch.dtype, by: By):
        scores = normal(40, 50).to(dtype)  # many ties in 16 bits
        for kept in (1, 600, 1000, 1999):
            assert torch.equal(top_mask(scores, kept, by=by), oracle.top_mask(scores, kept, by))

    def test_doubles_are_told_apart_beyond_single_precision(self):
        scores = torch.tensor([1.0, 1.0 + 1e-12, 1.0 - 1e-12], dtype=torch.float64)
        assert top_mask(scores, 1).tolist() == [False, True, False]

    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_infinities_of_both_signs_have_a_rank(self, dtype: torch.dtype, by: By):
        big = torch.finfo(dtype).max
        scores = torch.tensor([1.0, -math.inf, big, math.inf, -big, -math.inf, 0.0]).to(dtype)
        for kept in range(1, 8):
            assert torch.equal(top_mask(scores, kept, by=by), oracle.top_mask(scores, kept, by))

    def denormals(self, dtype: torch.dtype) -> Tensor:
        integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        scores = torch.tensor([3, 0, 5, 1, 4, 2, 5], dtype=integer).view(dtype)
        return torch.cat([scores, -scores])

    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_denormals_are_ranked(self, dtype: torch.dtype, by: By):
        scores = self.denormals(dtype)
        for kept in range(1, 15):
            assert torch.equal(top_mask(scores, kept, by=by), oracle.top_mask(scores, kept, by))

    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_denormals_are_ranked_where_arithmetic_flushes_them(
        self, dtype: torch.dtype, by: By, request: pytest.FixtureRequest
    ):
        scores = self.denormals(dtype)
        wanted = {kept: oracle.top_mask(scores, kept, by) for kept in range(1, 15)}
        request.getfixturevalue("flushing")
        for kept, mask in wanted.items():
            assert torch.equal(top_mask(scores, kept, by=by), mask), kept

    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_a_nan_of_either_sign_is_refused_by_name(self, dtype: torch.dtype, sign: int, by: By):
        for kept in (1, 50, 100):
            scores = normal(100).to(dtype)
            scores[37] = math.copysign(math.nan, sign)
            with pytest.raises(MaskError, match=r"mlp\.up holds NaN \(1 of 100 scores\)"):
                top_mask(scores, kept, by=by, name="mlp.up")

    def test_a_nan_is_named_in_a_pool(self):
        scores = {"a": normal(9), "b": torch.tensor([1.0, math.nan])}
        with pytest.raises(MaskError, match=r"^b holds NaN"):
            select(scores, 0.5, scope="global")

    def test_ten_million_scores_keep_exactly_as_many(self):
        scores = normal(10_000_000)
        mask = top_mask(scores, 3_000_000)
        assert int(mask.sum()) == 3_000_000
        assert scores.abs()[mask].min() >= scores.abs()[~mask].max()


class TestParameters:
    def test_a_parameter_gives_a_plain_mask(self):
        scores = nn.Parameter(normal(4, 4))
        mask = top_mask(scores, 5)
        assert type(mask) is Tensor
        assert not mask.requires_grad

    def test_a_tensor_inside_a_graph_is_ranked(self):
        scores = normal(4, 4).requires_grad_() * 2
        assert torch.equal(top_mask(scores, 5), oracle.top_mask(scores.detach(), 5))

    def test_inference_tensors_are_ranked(self):
        with torch.inference_mode():
            assert int(top_mask(normal(4, 4).t(), 5).sum()) == 5

    def test_numpy_counts_are_counts(self):
        assert int(top_mask(normal(9), np.int64(4)).sum()) == 4  # type: ignore[arg-type]


class TestRefusals:
    @pytest.mark.parametrize(
        "dtype", [torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str
    )
    def test_scores_that_are_not_floats(self, dtype: torch.dtype):
        with pytest.raises(MaskError, match=f"query is {dtype}.*float32"):
            top_mask(torch.zeros(3, dtype=dtype), 1, name="query")

    def test_sparse_scores(self):
        with pytest.raises(MaskError, match="sparse"):
            top_mask(torch.eye(3).to_sparse(), 1)

    def test_an_array_is_no_tensor(self):
        with pytest.raises(MaskError, match="ndarray"):
            top_mask(np.zeros(3), 1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kept", [0, -1, 5, 2.0, True, None, "2"])
    def test_a_count_out_of_range(self, kept: int):
        with pytest.raises(MaskError, match="from 1 to its 4 entries"):
            top_mask(normal(4), kept)

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
    def test_a_tensor_without_entries_is_named(self, shape: tuple[int, ...]):
        with pytest.raises(MaskError, match="norm has no entries"):
            top_mask(torch.zeros(shape), 1, name="norm")
        with pytest.raises(MaskError, match="norm has no entries"):
            select({"norm": torch.zeros(shape)}, 0.5)
        with pytest.raises(MaskError, match="norm has no entries"):
            erk_counts({"norm": shape}, 0.5)

    def test_an_unknown_ranking(self):
        with pytest.raises(MaskError, match="magnitude or by value"):
            top_mask(normal(3), 1, by="size")  # type: ignore[arg-type]
        with pytest.raises(MaskError, match="magnitude or by value"):
            score_gradient(normal(3), normal(3), normal(3), by="size")  # type: ignore[arg-type]

    def test_an_unknown_scope(self):
        with pytest.raises(MaskError, match="tensor, layer, global, erk"):
            select({"a": normal(3)}, 0.5, scope="model")  # type: ignore[arg-type]

    @pytest.mark.parametrize("keep", [0, 0.0, -0.3, 1.5, math.nan, math.inf, True, "0.3", None])
    @pytest.mark.parametrize("scope", ["tensor", "global", "erk"])
    def test_a_share_out_of_range_says_what_keep_is(self, keep: float, scope: Scope):
        with pytest.raises(MaskError, match=r"share of the weights KEPT.*\(0, 1\]"):
            select({"a": normal(3)}, keep, scope=scope)

    @pytest.mark.parametrize("layer", [None, {}, {"b": 1}])
    def test_a_layer_that_is_not_told(self, layer: dict[str, int | None] | None):
        with pytest.raises(MaskError, match="the layer of a is not told"):
            select({"a": normal(3)}, 0.5, scope="layer", layer=layer)

    def test_mixed_dtypes_in_one_pool(self):
        scores = {"a": normal(3), "b": normal(3).double()}
        with pytest.raises(MaskError, match=r"a is torch.float32 and b is torch.float64"):
            select(scores, 0.5, scope="global")
        assert len(select(scores, 0.5)) == 2

    def test_shapes_that_differ(self):
        with pytest.raises(MaskError, match=r"scores \(3,\), weights \(1,\)"):
            effective_weight(normal(3), normal(1), 1)
        with pytest.raises(MaskError, match="one shape"):
            score_gradient(normal(3), normal(3), normal(1), by="value")


class TestKeptCount:
    def test_halves_go_to_even(self):
        assert [kept_count(0.5, n) for n in (1, 3, 5, 7)] == [1, 2, 2, 4]

    def test_at_least_one_is_kept(self):
        assert kept_count(1e-9, 10) == 1

    def test_keep_one_keeps_all(self):
        assert kept_count(1, 10) == kept_count(1.0, 10) == 10

    @pytest.mark.parametrize("n", [1, 3, 7, 49, 1000, 10**7])
    def test_one_nth_keeps_one(self, n: int):
        assert kept_count(1 / n, n) == 1

    def test_single_precision_keep_is_rounded_in_double(self):
        assert kept_count(np.float32(0.1), 10**9) == round(float(np.float32(0.1)) * 10**9)

    def test_nothing_to_keep_is_refused(self):
        with pytest.raises(MaskError, match="none to keep"):
            kept_count(0.5, 0)


SCORES = {
    "q0": normal(4, 5, seed=1),
    "k0": 2 * normal(5, 4, seed=2).t(),
    "q1": 3 * normal(4, 5, seed=3),
    "head": normal(7, seed=4),
}
LAYER = {"q0": 0, "k0": 0, "q1": 1, "head": None}


class TestScopes:
    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("keep", [0.01, 0.3, 0.5, 1.0])
    def test_tensor_scope_holds_the_share_in_each(self, keep: float, by: By):
        for name, mask in select(SCORES, keep, by=by).items():
            kept = oracle.rounded(keep, mask.numel())
            assert torch.equal(mask, oracle.top_mask(SCORES[name], kept, by))

    @pytest.mark.parametrize("by", BY)
    @pytest.mark.parametrize("keep", [0.01, 0.3, 0.5, 1.0])
    def test_global_scope_ranks_all_together(self, keep: float, by: By):
        masks = select(SCORES, keep, scope="global", by=by)
        wanted = oracle.pooled_masks(SCORES, oracle.rounded(keep, 67), by)
        assert all(torch.equal(masks[name], wanted[name]) for name in SCORES)

    @pytest.mark.parametrize("by", BY)
    def test_layer_scope_ranks_each_layer_and_the_rest_alone(self, by: By):
        masks = select(SCORES, 0.3, scope="layer", by=by, layer=LAYER)
        for names, kept in ((("q0", "k0"), 12), (("q1",), 6), (("head",), 2)):
            pool = {name: SCORES[name] for name in names}
            for name, wanted in oracle.pooled_masks(pool, kept, by).items():
                assert torch.equal(masks[name], wanted)

    def test_global_ties_fall_to_the_tensors_named_first(self):
        scores = {name: torch.ones(3, 2).t() for name in "abc"}
        masks = select(scores, 8 / 18, scope="global")
        assert [int(mask.sum()) for mask in masks.values()] == [6, 2, 0]
        assert masks["b"].tolist() == [[True, True, False], [False, False, False]]

    def test_global_ties_that_end_inside_the_last_tensor(self):
        scores = {name: torch.ones(6) for name in "abc"}
        masks = select(scores, 16 / 18, scope="global")
        assert [int(mask.sum()) for mask in masks.values()] == [6, 6, 4]

    @pytest.mark.parametrize("scope", ["tensor", "layer", "global", "erk"])
    def test_masks_come_in_the_order_and_layout_of_the_scores(self, scope: Scope):
        layer = {"q0": 0, "k0": 1, "q1": 0, "head": None}
        masks = select(SCORES, 0.5, scope=scope, layer=layer)
        assert list(masks) == list(SCORES)
        assert [m.stride() for m in masks.values()] == [s.stride() for s in SCORES.values()]

    @pytest.mark.parametrize("scope", ["tensor", "layer", "global", "erk"])
    def test_nothing_gives_nothing(self, scope: Scope):
        assert select({}, 0.5, scope=scope, layer={}) == {}

    def test_erk_scope_gives_each_tensor_its_count(self):
        counts = erk_counts({name: tuple(s.shape) for name, s in SCORES.items()}, 0.4)
        for name, mask in select(SCORES, 0.4, scope="erk").items():
            assert torch.equal(mask, oracle.top_mask(SCORES[name], counts[name]))

    def test_layer_names_may_be_mixed_with_tensor_names(self):
        """A tensor of no layer that is called like a layer is still a pool of its own."""
        masks = select(
            {"a": normal(4), "0": normal(4)}, 0.5, scope="layer", layer={"a": 0, "0": None}
        )
        assert [int(mask.sum()) for mask in masks.values()] == [2, 2]


SHAPES = {
    "conv": (8, 4, 3, 3),
    "up": (64, 16),
    "down": (16, 64),
    "wide": (100, 100),
    "norm": (7,),
}


class TestErk:
    @pytest.mark.parametrize("keep", [0.001, 0.01, 0.1, 0.1234567, 0.3, 0.5, 0.9, 0.999, 1.0])
    def test_counts_add_up_and_stay_within_one_and_the_size(self, keep: float):
        counts = erk_counts(SHAPES, keep)
        sizes = {name: math.prod(shape) for name, shape in SHAPES.items()}
        assert sum(counts.values()) == kept_count(keep, sum(sizes.values()))
        assert all(1 <= counts[name] <= size for name, size in sizes.items())

    @pytest.mark.parametrize("keep", [0.001, 0.01, 0.1, 0.3, 0.5, 0.9])
    def test_counts_are_within_one_of_the_bisected_quotas(self, keep: float):
        counts = erk_counts(SHAPES, keep)
        quotas = oracle.erk_quotas(SHAPES, sum(counts.values()))
        assert all(abs(counts[name] - quotas[name]) < 1 + 1e-6 for name in counts)

    def test_uncapped_shares_follow_sum_over_product(self):
        counts = erk_counts({"a": (100, 100), "b": (300, 100), "c": (10, 20, 5, 5)}, 0.1)
        assert counts == {"a": 1406, "b": 2813, "c": 281}  # 4500 in parts of 200, 400 and 40

    def test_what_a_full_tensor_cannot_take_goes_to_the_others(self):
        counts = erk_counts({"small": (2, 2), "a": (50, 50), "b": (50, 50)}, 0.4)
        assert counts["small"] == 4
        assert counts["a"] + counts["b"] == kept_count(0.4, 5004) - 4

    def test_remainders_fall_to_the_tensors_named_first(self):
        assert erk_counts(dict.fromkeys("abc", (3, 3)), 10 / 27) == {"a": 4, "b": 3, "c": 3}

    def test_a_scalar_is_one_weight(self):
        assert erk_counts({"gain": (), "a": (10, 10)}, 0.2) == {"gain": 1, "a": 19}

    def test_a_budget_below_one_each_is_refused(self):
        with pytest.raises(MaskError, match="fewer than one for each of 3 tensors"):
            erk_counts(dict.fromkeys("abc", (2, 2)), 0.1)


@pytest.mark.parametrize("by", BY)
class TestGradients:
    """Against autograd of W * (mask + h - stop(h)), where h = |s| or s."""

    @staticmethod
    def reference(scores: Tensor, weights: Tensor, kept: int, by: By) -> Tensor:
        h = scores.abs() if by == "magnitude" else scores
        mask = oracle.top_mask(scores.detach(), kept, by).to(scores.dtype)
        return weights * (mask + (h - h.detach()))

    def gradients(self, effective, by: By, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        scores = normal(6, 5).to(dtype).requires_grad_()
        weights = normal(6, 5, seed=1).to(dtype).requires_grad_()
        E = effective(scores, weights, 9, by=by)
        (E * normal(6, 5, seed=2).to(dtype)).sum().backward()
        assert scores.grad is not None
        assert weights.grad is not None
        return E.detach(), scores.grad, weights.grad

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_effective_weight_matches_autograd(self, by: By, dtype: torch.dtype):
        ours = self.gradients(effective_weight, by, dtype)
        reference = self.gradients(lambda s, w, k, by: self.reference(s, w, k, by), by, dtype)
        for mine, wanted in zip(ours, reference, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=0)

    def test_pruned_scores_receive_a_gradient(self, by: By):
        scores = normal(20).requires_grad_()
        effective_weight(scores, torch.ones(20), 1, by=by).sum().backward()
        assert scores.grad is not None
        assert (scores.grad != 0).all()

    def test_score_gradient_is_the_backward_pass(self, by: By):
        s, W, g = normal(6, 5), normal(6, 5, seed=1), normal(6, 5, seed=2)
        wanted = g * W * s.sign() if by == "magnitude" else g * W
        assert torch.equal(score_gradient(s, W, g, by=by), wanted)

    def test_arguments_are_untouched(self, by: By):
        tensors = [normal(6, 5, seed=seed) for seed in range(3)]
        before = [tensor.clone() for tensor in tensors]
        score_gradient(*tensors, by=by)
        assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))

    def test_gradient_has_the_type_of_the_scores(self, by: By):
        g = normal(6, 5).bfloat16()
        assert score_gradient(normal(6, 5), normal(6, 5), g, by=by).dtype == torch.float32

    def test_transposed_scores_and_frozen_weights(self, by: By):
        scores = normal(5, 6).t().requires_grad_()
        effective_weight(scores, normal(6, 5, seed=1), 9, by=by).sum().backward()
        assert torch.equal(
            scores.grad,
            score_gradient(scores.detach(), normal(6, 5, seed=1), torch.ones(6, 5), by=by),
        )

    def test_effective_weight_is_weight_times_mask(self, by: By):
        s, W = normal(6, 5), normal(6, 5, seed=1)
        assert torch.equal(effective_weight(s, W, 9, by=by), W * top_mask(s, 9, by=by))
