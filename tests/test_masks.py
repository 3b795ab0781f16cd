"""Masks are values: equality, the algebra of sets, bytes, and masks drawn by chance."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from oracles import selection as oracle
from untrained.errors import MaskError, UntrainedError
from untrained.masks import Mask

SHAPES = {"query": (3, 5), "conv": (2, 3, 2, 2), "gain": (), "bias": (8,)}


def flags(seed: int, shapes: dict[str, tuple[int, ...]] = SHAPES) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(shape, generator=generator) < 0.4 for name, shape in shapes.items()}


def same(mask: Mask, tensors: dict[str, Tensor]) -> bool:
    return list(mask) == list(tensors) and all(torch.equal(mask[n], t) for n, t in tensors.items())


A, B = flags(1), flags(2)


class TestValues:
    def test_a_mask_reads_as_what_it_was_made_of(self):
        mask = Mask(A)
        assert same(mask, A)
        assert mask.shapes == SHAPES
        assert len(mask) == 4
        assert "query" in mask
        assert "key" not in mask
        assert all(t.dtype == torch.bool and t.is_contiguous() for t in mask.values())

    def test_every_layout_gives_the_same_mask(self):
        square = flags(0, {"w": (4, 3, 2, 2)})["w"]
        for tensor in (
            square.to(memory_format=torch.channels_last),
            square.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
            torch.stack([square, ~square], dim=-1)[..., 0],
        ):
            assert Mask({"w": tensor}) == Mask({"w": square})
        row = torch.tensor([True, False, True])
        assert same(Mask({"w": row.expand(2, 3)}), {"w": torch.stack([row, row])})

    def test_equality_and_hash_ignore_the_order_of_names(self):
        turned = Mask(dict(reversed(A.items())))
        assert Mask(A) == turned
        assert hash(Mask(A)) == hash(turned)
        assert len({Mask(A), turned, Mask(B)}) == 2

    def test_one_bit_one_name_or_one_shape_makes_another_mask(self):
        flipped = {**A, "gain": ~A["gain"]}
        renamed = {("key" if name == "query" else name): t for name, t in A.items()}
        reshaped = {**A, "query": A["query"].reshape(5, 3)}
        masks = [Mask(t) for t in (A, flipped, renamed, reshaped)]
        assert len(set(masks)) == len({mask.fingerprint() for mask in masks}) == 4
        assert all(masks[0] != mask for mask in masks[1:])

    def test_a_mask_is_no_dict(self):
        assert Mask({}) != {}
        assert Mask(A) != 3

    def test_fingerprint_is_the_same_for_ever(self):
        mask = Mask({"b": torch.tensor([[True, False], [True, True]]), "a": torch.ones(9).bool()})
        assert mask.fingerprint() == (
            "49a09073d1de815d73c50928cc0121de6200779b9b7885dc952f637c1b0bea60"
        )

    def test_nothing_done_to_a_tensor_reaches_the_mask(self):
        tensors = {name: tensor.clone() for name, tensor in A.items()}
        mask = Mask(tensors)
        tensors["query"].logical_not_()
        mask["query"].logical_not_()
        mask.shapes["query"] = (1,)
        mask.pack()["query"] = b""
        tensors.pop("bias")
        assert same(mask, A)

    def test_a_name_that_is_not_there_is_a_key_error(self):
        with pytest.raises(KeyError):
            Mask(A)["key"]

    def test_it_prints_what_counts(self):
        assert repr(Mask({"a": torch.arange(1600) < 480})) == (
            "Mask(1 tensors, 480 of 1,600 weights kept, keep 0.3)"
        )

    def test_it_survives_copies_and_pickle(self):
        mask = Mask(A)
        for twin in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
            assert twin == mask
            assert same(twin, A)


class TestCounts:
    def test_counts_are_sums(self):
        mask = Mask(A)
        assert mask.size == 15 + 24 + 1 + 8
        assert mask.sizes == {"query": 15, "conv": 24, "gain": 1, "bias": 8}
        assert mask.counts == {name: int(t.sum()) for name, t in A.items()}
        assert mask.kept == sum(mask.counts.values())
        assert mask.keep == mask.kept / 48
        assert mask.keeps == {name: float(t.float().mean(dtype=float)) for name, t in A.items()}

    def test_a_mask_of_nothing_takes_nothing_away(self):
        nothing = Mask({})
        assert (nothing.size, nothing.kept, nothing.keep) == (0, 0, 1.0)
        assert nothing.overlap(nothing) == 1.0
        assert nothing.distance(nothing) == nothing.churn(nothing) == 0.0
        assert nothing & ~nothing == nothing


class TestAlgebra:
    def test_operators_are_those_of_torch(self):
        a, b = Mask(A), Mask(B)
        assert same(a & b, {n: A[n] & B[n] for n in A})
        assert same(a | b, {n: A[n] | B[n] for n in A})
        assert same(a ^ b, {n: A[n] ^ B[n] for n in A})
        assert same(~a, {n: ~A[n] for n in A})

    @pytest.mark.parametrize("n", range(1, 26))
    def test_what_is_not_kept_leaves_no_stray_bits(self, n: int):
        none = Mask({"w": torch.zeros(n, dtype=torch.bool)})
        assert (~none).kept == n
        assert ~~none == none
        assert Mask.unpack((~none).pack(), none.shapes) == ~none

    def test_measures_on_a_small_example(self):
        a = Mask({"w": torch.tensor([1, 1, 1, 0, 0, 0, 0, 0]).bool()})
        b = Mask({"w": torch.tensor([0, 1, 1, 1, 0, 0, 0, 0]).bool()})
        assert a.overlap(b) == b.overlap(a) == 2 / 4
        assert a.distance(b) == b.distance(a) == 2 / 8
        assert a.churn(b) == b.churn(a) == 2 / 6
        assert (a.overlap(a), a.distance(a), a.churn(a)) == (1, 0, 0)
        assert (a.overlap(~a), a.distance(~a), a.churn(~a)) == (0, 1, 1)

    def test_two_empty_masks_are_alike(self):
        none = Mask({"w": torch.zeros(8, dtype=torch.bool)})
        assert (none.overlap(none), none.distance(none), none.churn(none)) == (1, 0, 0)

    def test_two_masks_by_chance_measure_what_the_docstrings_say(self):
        keep, shapes, kept = 0.3, {"w": (1000, 100)}, {"w": 30_000}
        a, b = (Mask.random(shapes, kept, seed=seed) for seed in (0, 1))
        assert a.overlap(b) == pytest.approx(keep / (2 - keep), abs=0.01)
        assert a.distance(b) == pytest.approx(2 * keep * (1 - keep), abs=0.01)
        assert a.churn(b) == pytest.approx(1 - keep, abs=0.01)

    @pytest.mark.parametrize("measure", ["overlap", "distance", "churn", "__and__", "__xor__"])
    def test_masks_of_different_models_do_not_mix(self, measure: str):
        for other, said in (
            ({**A, "query": A["query"].t()}, r"query is \(3, 5\) in the one and \(5, 3\)"),
            ({n: A[n] for n in list(A)[1:]}, r"query is \(3, 5\) in the one and missing"),
            ({**A, "key": A["gain"]}, r"key is missing in the one and \(\) in the other"),
        ):
            with pytest.raises(MaskError, match=said):
                getattr(Mask(A), measure)(Mask(other))

    def test_a_mask_does_not_mix_with_a_tensor(self):
        with pytest.raises(TypeError):
            Mask(A) & A["query"]  # type: ignore[operator]


class TestBytes:
    def test_bits_lie_where_the_oracle_puts_them(self):
        assert Mask(A).pack() == {name: oracle.pack(tensor) for name, tensor in A.items()}

    def test_first_weight_is_the_lowest_bit(self):
        mask = Mask({"w": torch.tensor([[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()})
        assert mask.pack() == {"w": bytes([0b0000_0001, 0b0000_0011])}

    def test_unpack_undoes_pack(self):
        mask = Mask(A)
        assert Mask.unpack(mask.pack(), SHAPES) == mask
        assert same(Mask.unpack(mask.pack(), SHAPES), A)

    def test_unpacked_bytes_are_copied(self):
        buffer = bytearray(b"\x0f")
        mask = Mask.unpack({"w": buffer}, {"w": (8,)})  # type: ignore[dict-item]
        buffer[0] = 0
        assert mask.kept == 4

    def test_shapes_may_come_as_lists(self):
        mask = Mask.unpack({"w": b"\x01"}, {"w": [2, 2]})  # type: ignore[dict-item]
        assert mask == Mask({"w": torch.tensor([[1, 0], [0, 0]]).bool()})

    @pytest.mark.parametrize("packed", [b"", b"\x00", b"\x00\x00\x00"])
    def test_a_wrong_length_is_refused(self, packed: bytes):
        with pytest.raises(MaskError, match=rf"w has {len(packed)} bytes.*\(3, 5\) needs 2"):
            Mask.unpack({"w": packed}, {"w": (3, 5)})

    @pytest.mark.parametrize("n", [1, 7, 9, 15])
    def test_a_one_beyond_the_last_weight_is_refused(self, n: int):
        for bit in range(n, -(-n // 8) * 8):
            packed = (1 << bit).to_bytes(-(-n // 8), "little")
            with pytest.raises(MaskError, match="beyond its last weight"):
                Mask.unpack({"w": packed}, {"w": (n,)})

    def test_a_name_without_bytes_or_without_shape_is_refused(self):
        for packed, shapes in (({}, {"w": (8,)}), ({"w": b"\0"}, {})):
            with pytest.raises(MaskError, match="w has bits or a shape, but not both"):
                Mask.unpack(packed, shapes)

    @pytest.mark.parametrize("shape", [(0,), (4, 0), (-2, -4), (-8,)])
    def test_a_shape_without_entries_is_refused(self, shape: tuple[int, ...]):
        with pytest.raises(MaskError, match="no entries"):
            Mask.unpack({"w": b"\0"}, {"w": shape})


class TestRefusals:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64], ids=str)
    def test_only_booleans_make_a_mask(self, dtype: torch.dtype):
        with pytest.raises(MaskError, match=f"query is {dtype}, a mask is torch.bool"):
            Mask({"query": torch.ones(3, dtype=dtype)})

    def test_an_array_makes_no_mask(self):
        with pytest.raises(MaskError, match="ndarray"):
            Mask({"query": np.ones(3, dtype=bool)})  # type: ignore[dict-item]

    def test_a_tensor_without_entries_makes_no_mask(self):
        with pytest.raises(MaskError, match=r"norm of shape \(0, 3\) has no entries"):
            Mask({"norm": torch.ones(0, 3, dtype=torch.bool)})


KEPT = dict(zip(SHAPES, (7, 24, 0, 1), strict=True))


class TestChance:
    def random(self, seed: int = 0, **options: str) -> Mask:
        return Mask.random(SHAPES, KEPT, seed=seed, **options)  # type: ignore[arg-type]

    def test_counts_are_exact(self):
        for seed in range(50):
            assert self.random(seed).counts == KEPT

    def test_it_depends_on_seed_name_and_purpose_alone(self):
        shapes, kept = {"a": (50,), "b": (50,)}, {"a": 25, "b": 25}
        both = Mask.random(shapes, kept, seed=5)
        alone = Mask.random({"b": (50,)}, kept, seed=5)
        assert torch.equal(both["b"], alone["b"])
        assert not torch.equal(both["a"], both["b"])
        assert both != Mask.random(shapes, kept, seed=6)
        assert both != Mask.random(shapes, kept, seed=5, purpose="other")

    def test_torch_and_numpy_seeds_play_no_part(self):
        masks = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            np.random.seed(seed)
            masks += [self.random(), Mask(A).shuffled(seed=0)]
        assert masks[:2] == masks[2:]

    def test_a_larger_count_keeps_what_a_smaller_one_kept(self):
        few, more = (Mask.random({"w": (99,)}, {"w": kept}, seed=0) for kept in (20, 60))
        assert few & more == few

    def test_every_place_is_kept_as_often(self):
        total = sum(
            Mask.random({"w": (10,)}, {"w": 3}, seed=seed)["w"].long() for seed in range(2000)
        )
        assert isinstance(total, Tensor)
        sd = math.sqrt(2000 * 0.3 * 0.7)
        assert ((total - 600).abs() < 5 * sd).all()

    @pytest.mark.parametrize("count", [-1, 16, None, 2.0, True])
    def test_a_count_out_of_range_is_refused(self, count: int):
        with pytest.raises(MaskError, match=f"query is to keep {count} of its 15 weights"):
            Mask.random({"query": (3, 5)}, {"query": count}, seed=0)

    def test_a_missing_count_is_refused(self):
        with pytest.raises(MaskError, match="query is to keep None of"):
            Mask.random({"query": (3, 5)}, {}, seed=0)

    @pytest.mark.parametrize("seed", [-1, 2**64, 0.5])
    def test_a_seed_out_of_range_is_refused(self, seed: int):
        with pytest.raises(UntrainedError):
            self.random(seed)
        with pytest.raises(UntrainedError):
            Mask(A).shuffled(seed=seed)

    def test_a_shuffle_keeps_counts_and_moves_bits(self):
        mask = Mask.random({"w": (30, 40)}, {"w": 500}, seed=0)
        shuffled = mask.shuffled(seed=0)
        assert shuffled.counts == mask.counts
        assert shuffled.shapes == mask.shapes
        assert shuffled.churn(mask) == pytest.approx(1 - mask.keep, abs=0.1)
        assert shuffled == mask.shuffled(seed=0)
        assert shuffled != mask.shuffled(seed=1)
        assert shuffled != mask.shuffled(seed=0, purpose="other")

    def test_masks_shuffled_by_one_seed_overlap_as_before(self):
        a, b = Mask(A), Mask(B)
        assert a.shuffled(seed=3).overlap(b.shuffled(seed=3)) == a.overlap(b)
        assert a.shuffled(seed=3) & b.shuffled(seed=3) == (a & b).shuffled(seed=3)

    def test_a_shuffle_of_one_tensor_does_not_depend_on_the_others(self):
        alone = Mask({"conv": A["conv"]}).shuffled(seed=3)
        assert torch.equal(Mask(A).shuffled(seed=3)["conv"], alone["conv"])
