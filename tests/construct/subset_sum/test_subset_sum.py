"""The solver's answers, against brute force, other algorithms and other solvers."""

from __future__ import annotations

import dataclasses
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import untrained as ut
from oracles import subset_sums as oracle
from untrained.construct.subset_sum import SubsetSums, kernels

settings.register_profile("subset sums", max_examples=60, deadline=None)
quick = settings(settings.get_profile("subset sums"))


def as_mask(bits: np.ndarray) -> int:
    return sum(1 << i for i, kept in enumerate(bits.tolist()) if kept)


def products(count: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Products of two uniform numbers, and uniform targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (2, count, n)).prod(axis=0)
    return x, rng.uniform(-1, 1, count)


def awkward(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Instances that are not like a theorem's."""
    match kind:
        case "duplicates":
            return rng.integers(-5, 6, n) / 8, float(rng.integers(-40, 41) / 16)
        case "zeros":
            x = rng.uniform(-1, 1, n) * (rng.random(n) < 0.5)
            return x, float(rng.uniform(-1, 1))
        case "edge":  # near or beyond the largest sum
            x = rng.uniform(-1, 1, n)
            return x, float(np.maximum(x, 0).sum() + rng.uniform(-0.1, 0.02))
        case "far":
            return rng.uniform(-1, 1, n), float(rng.choice([-1e300, 1e300, 1e3]))
        case "spread":
            x = np.exp(-rng.uniform(0, 12, n)) * rng.choice([-1, 1], n)
            return x, float(rng.uniform(-1, 1))
        case "positive":
            return rng.uniform(0, 1, n).round(2), float(rng.uniform(0, n / 2))
        case "even":  # no sum comes near
            return rng.integers(-50, 50, n) * 2.0, float(2 * rng.integers(-50, 50) + 1)
    raise AssertionError(kind)


AWKWARD = ("duplicates", "zeros", "edge", "far", "spread", "positive", "even")


def assert_best(found: SubsetSums, best: list[int]) -> None:
    """The masks are the best ones; where the unit is too coarse to say, the errors nearly are."""
    found.check()
    for at, wanted in enumerate(best):
        x, t = found.values[at].tolist(), float(found.target[at])
        if found.resolution[at] == 0:
            assert as_mask(found.mask[at]) == wanted
        least = oracle.error(x, t, wanted)
        got = oracle.error(x, t, as_mask(found.mask[at]))
        assert least <= got <= least + Fraction(float(found.resolution[at]))
    assert found.optimal.all()


# --- exactness ------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 5e-324, -5e-324, 1e-310, 1e150]),
    st.integers(-20, 20).map(lambda k: k / 4),
    st.floats(-10, 10),
)


@quick
@given(st.lists(NUMBERS, max_size=10), NUMBERS)
def test_an_answer_is_that_of_brute_force(values: list[float], target: float):
    found = ut.subset_sum([values], [target])
    assert_best(found, [oracle.brute_force(values, target)])


@quick
@given(st.lists(st.integers(-1000, 1000), min_size=12, max_size=15), st.integers(-4000, 4000))
def test_equal_sums_are_decided_by_the_smallest_mask(values: list[int], target: int):
    found = ut.subset_sum(values, target)
    assert as_mask(found.mask) == oracle.meet_in_the_middle(values, target)


@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_instances_are_solved_like_any(kind: str):
    rng = np.random.default_rng(AWKWARD.index(kind))
    for n in (1, 2, 3, 7, 11, 12, 13):
        cases = [awkward(kind, n, rng) for _ in range(20)]
        found = ut.subset_sum([x for x, _ in cases], [t for _, t in cases])
        assert_best(found, [oracle.meet_in_the_middle(x.tolist(), t) for x, t in cases])


def brute_masks(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return ut.subset_sum(x, t, backend="brute").mask


@pytest.mark.parametrize(("n", "count"), [(8, 2000), (11, 1500), (12, 1500), (14, 1000), (16, 400)])
def test_thousands_of_random_instances_are_those_of_brute_force(n: int, count: int):
    x, t = products(count, n, seed=n)
    found = ut.subset_sum(x, t)
    assert np.array_equal(found.mask, brute_masks(x, t))
    for at in range(0, count, count // 5):
        assert as_mask(found.mask[at]) == oracle.meet_in_the_middle(x[at].tolist(), t[at])


@pytest.mark.parametrize(("n", "count"), [(20, 6), (25, 4), (30, 2), (32, 1)])
def test_larger_instances_are_those_of_a_sorted_search(n: int, count: int):
    x, t = products(count, n, seed=n)
    t[0] = np.maximum(x[0], 0).sum() - 1e-3  # one at the edge of what can be reached
    found = ut.subset_sum(x, t)
    assert_best(found, [oracle.meet_in_the_middle(x[b].tolist(), t[b]) for b in range(count)])


@pytest.mark.parametrize("n", [37, 38, 41])
def test_what_is_hidden_among_many_items_is_found(n: int):
    rng = np.random.default_rng(n)
    x = rng.integers(-(2**48), 2**48, n) / 2**48
    hidden = rng.random(n) < 0.5
    found = ut.subset_sum(x, x[hidden].sum())
    assert found.error == 0
    if n < 41:  # 2^n sums of 2^52 values: another subset is not to be expected
        assert np.array_equal(found.mask, hidden)


@pytest.mark.parametrize("kind", ["products", *AWKWARD])
def test_every_algorithm_has_the_same_answer(kind: str):
    rng = np.random.default_rng(11)
    space = kernels.make_space(40)
    for n in (12, 13, 17, 22):
        for _ in range(4):
            if kind == "products":
                x, t = rng.uniform(-1, 1, (2, n)).prod(axis=0), rng.uniform(-1, 1)
            else:
                x, t = awkward(kind, n, rng)
            q = np.rint(x * 2.0**53 / max(np.abs(x).max(), 1)).astype(np.int64)
            goal = int(np.clip(t * 2.0**53 / max(np.abs(x).max(), 1), -(2**59), 2**59))
            answer = kernels.search(q, n, goal, -1, space)
            assert answer == kernels._walk(q, n, goal, space)
            for shift in (0, 44, 50):
                for join in (kernels._join_lists, kernels._join_windows):
                    error, mask = join(q, n, goal, shift, space)
                    if 0 <= error <= 1 << shift:  # else the guard sends it elsewhere
                        assert (error, mask) == answer


def test_windows_find_what_lists_find():
    for n in (34, 36):
        x, t = products(2, n, seed=n)
        space = kernels.make_space(40)
        for b in range(2):
            q, goal = np.rint(x[b] * 2.0**55).astype(np.int64), int(t[b] * 2.0**55)
            answer = kernels.search(q, n, goal, -1, space)
            assert answer == kernels._join_windows(q, n, goal, 55 - n + 6, space)


# --- a size ---------------------------------------------------------------------------------------


@quick
@given(st.lists(NUMBERS, min_size=1, max_size=9), NUMBERS, st.data())
def test_a_size_is_kept_exactly(values: list[float], target: float, data: st.DataObject):
    size = data.draw(st.integers(0, len(values)))
    found = ut.subset_sum([values], [target], size=size)
    assert_best(found, [oracle.brute_force(values, target, size)])
    assert found.mask.sum() == size


@pytest.mark.parametrize("n", [12, 14, 16])
def test_all_sizes_of_larger_instances(n: int):
    x, t = products(20, n, seed=n)
    for size in range(0, n + 1, 3):
        found = ut.subset_sum(x, t, size=size)
        assert_best(found, [oracle.brute_force(x[b].tolist(), t[b], size) for b in range(1)])
        other = ut.subset_sum(x, t, size=size, backend="brute")
        assert np.array_equal(found.mask, other.mask)


def test_a_size_of_forty_items():
    x, t = products(2, 40)
    found = ut.subset_sum(x, t / 4, size=20)
    found.check()
    assert (found.mask.sum(axis=-1) == 20).all()
    assert (found.error < 1e-9).all()


# --- less than everything -------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-8])
def test_a_tolerance_is_met(tolerance: float):
    x, t = products(100, 36, seed=5)
    found = ut.subset_sum(x, t, tolerance=tolerance)
    found.check()
    assert (found.error <= tolerance).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 10, 14])
def test_a_tolerance_that_cannot_be_met_ends_with_the_best(n: int):
    x, t = products(60, n, seed=n)
    t *= 3
    exact, found = ut.subset_sum(x, t), ut.subset_sum(x, t, tolerance=1e-7)
    found.check()
    missed = found.error > 1e-7
    assert missed.any()
    assert np.array_equal(found.mask[missed], exact.mask[missed])
    assert found.optimal[missed].all()


def test_each_instance_may_have_its_tolerance():
    x, t = products(3, 30)
    found = ut.subset_sum(x, t, tolerance=[1e-1, 1e-4, 1e-7])
    assert (found.error <= [1e-1, 1e-4, 1e-7]).all()


def test_more_items_than_a_mask_has_bits():
    x, t = products(3, 112)
    found = ut.subset_sum(x, t, tolerance=1e-10)
    found.check()
    assert (found.error <= 1e-10).all()
    assert not found.optimal.any()


def test_a_greater_depth_is_not_worse():
    x, t = products(20, 100, seed=3)
    errors = [ut.subset_sum(x, t, depth=depth).error for depth in (8, 16, 24)]
    assert np.median(errors[0]) > 10 * np.median(errors[1]) > 100 * np.median(errors[2])
    assert np.array_equal(ut.subset_sum(x, t, depth=24).error, errors[2])


def test_a_depth_of_all_items_is_exact():
    x, t = products(20, 14)
    found = ut.subset_sum(x, t, depth=20)
    assert found.optimal.all()
    assert np.array_equal(found.mask, ut.subset_sum(x, t).mask)


def test_a_time_that_suffices_is_exact_and_none_gives_something():
    x, t = products(10, 22)
    assert np.array_equal(ut.subset_sum(x, t, seconds=60).mask, ut.subset_sum(x, t).mask)
    found = ut.subset_sum(*products(4, 62), seconds=1e-9)
    found.check()
    assert not found.optimal.any()
    assert (found.error < 1e-2).all()


# --- other solvers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "module"), [("cp-sat", "ortools"), ("highs", "scipy"), ("gurobi", "gurobipy")]
)
@pytest.mark.parametrize("size", [None, 4])
def test_another_solver_finds_the_same_error(backend: str, module: str, size: int | None):
    pytest.importorskip(module)
    x, t = products(6, 11, seed=2)
    x, t = (x * 2**20).round() / 2**20, (t * 2**20).round() / 2**20
    found = ut.subset_sum(x, t, backend=backend, size=size)
    found.check()
    assert np.array_equal(found.error, ut.subset_sum(x, t, size=size).error)
    assert found.optimal.all() == (backend == "cp-sat")


def test_cp_sat_agrees_about_integers():
    pytest.importorskip("ortools")
    rng = np.random.default_rng(0)
    x, t = rng.integers(-100, 100, (8, 14)), rng.integers(-600, 600, 8)
    found = ut.subset_sum(x, t, backend="cp-sat")
    assert found.optimal.all()
    assert np.array_equal(found.error, ut.subset_sum(x, t).error)


def test_a_missing_solver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    for name in [m for m in sys.modules if m.startswith("ortools")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(ut.ConstructError, match=r"needs ortools.*untrained\[cp-sat\]"):
        ut.subset_sum([1.0], 1.0, backend="cp-sat")


# --- shapes, kinds and threads --------------------------------------------------------------------


def test_instances_broadcast():
    x, t = products(6, 9)
    found = ut.subset_sum(x.reshape(2, 3, 9), t[:3])
    assert found.mask.shape == (2, 3, 9)
    assert found.error.shape == found.optimal.shape == found.resolution.shape == (2, 3)
    assert np.array_equal(found.mask[1], ut.subset_sum(x[3:], t[:3]).mask)
    one = ut.subset_sum(x[0], t)
    assert one.mask.shape == (6, 9)
    one.check()


def test_one_instance_has_no_shape():
    found = ut.subset_sum([0.5, 0.25, -1.0], 0.7)
    assert found.mask.tolist() == [True, True, False]
    assert found.error.shape == ()
    assert "1 subset sums of 3 items: 1 proven optimal, largest error 0.05" in str(found)


def test_no_items_and_no_instances():
    none = ut.subset_sum(np.zeros((2, 0)), [0.0, -3.0])
    assert none.error.tolist() == [0.0, 3.0]
    assert none.optimal.all()
    empty = ut.subset_sum(np.zeros((0, 5)), np.zeros(0))
    assert empty.mask.shape == (0, 5)
    assert "0 subset sums" in str(empty)


def test_the_kind_of_the_numbers_plays_no_part():
    x, t = products(20, 13)
    x, t = x.astype(np.float32), t.astype(np.float32)
    mask = ut.subset_sum(x, t).mask
    assert np.array_equal(mask, ut.subset_sum(torch.from_numpy(x), torch.from_numpy(t)).mask)
    assert np.array_equal(mask, ut.subset_sum(x.astype(np.float64), t.tolist()).mask)
    assert np.array_equal(mask, ut.subset_sum(np.asfortranarray(x), t).mask)
    graded = torch.from_numpy(x).to(torch.bfloat16).requires_grad_()
    ut.subset_sum(graded, torch.from_numpy(t)).check()


def test_threads_play_no_part():
    for n, count in ((10, 9000), (20, 300), (38, 3)):
        x, t = products(count, n)
        one, two = ut.subset_sum(x, t, threads=1), ut.subset_sum(x, t, threads=2)
        assert np.array_equal(one.mask, two.mask)
        assert np.array_equal(one.error, two.error)


def test_a_common_scale_plays_no_part():
    x, t = products(50, 14)
    mask = ut.subset_sum(x, t).mask
    for power in (-1000, -60, 60, 1000):
        scaled = ut.subset_sum(np.ldexp(x, power), np.ldexp(t, power))
        assert np.array_equal(scaled.mask, mask)


def test_an_unreachable_target_gets_the_end_of_the_range():
    x, _ = products(5, 18)
    assert np.array_equal(ut.subset_sum(x, 100.0).mask, x > 0)
    assert np.array_equal(ut.subset_sum(x, -100.0).mask, x < 0)
    assert np.array_equal(ut.subset_sum(x, 1e308).mask, x > 0)


@pytest.mark.parametrize("n", [24, 40])
def test_items_that_are_out_of_all_proportion_are_left_out(n: int):
    x, t = products(1, n)
    x = np.round(x * 2**36) / 2**36  # so that the unit is fine enough with the large ones too
    with_two = np.concatenate([x, [[2.0**20, -(2.0**22)]]], axis=1)
    found, alone = ut.subset_sum(with_two, t), ut.subset_sum(x, t)
    assert np.array_equal(found.mask[:, :n], alone.mask)
    assert not found.mask[:, n:].any()


def test_subnormal_numbers_are_numbers():
    tiny = 5e-324
    found = ut.subset_sum([tiny, 2 * tiny, 4 * tiny], 5 * tiny)
    assert found.mask.tolist() == [True, False, True]
    assert found.error == 0


def test_an_error_is_exact_whatever_cancels():
    values = [1e16, 1.0, -1e16, 1e-17]
    found = ut.subset_sum(values, 1.0)
    found.check()
    far = ut.subset_sum([1e300, 1e-300, 1.0], 1e300 + 1e284)
    far.check()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(bad: float):
    x, t = products(4, 3)
    x[2, 1] = bad
    with pytest.raises(ut.ConstructError, match=r"instance \(2,\): values holds"):
        ut.subset_sum(x, t)
    with pytest.raises(ut.ConstructError, match=r"instance \(1,\): target holds"):
        ut.subset_sum(np.zeros((2, 2)), [0.0, bad])


def test_sums_that_overflow_are_named():
    with pytest.raises(ut.ConstructError, match=r"instance \(1,\).*more than float64 can hold"):
        ut.subset_sum([[1.0, 1.0], [1.5e308, 1e308]], 0.0)
    assert ut.subset_sum([1.5e308, -1e307], 1e307).error == 1e307


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"at most 62 items, and these are 70.*tolerance=.*depth=.*seconds=.*backend="),
        ({"depth": 0}, "depth=0"),
        ({"depth": 63}, "depth=63"),
        ({"size": 71}, "size=71"),
        ({"size": 2}, "size=2 of 70 items"),
        ({"tolerance": -1.0}, ">= 0"),
        ({"tolerance": math.nan}, "tolerance holds nan"),
        ({"seconds": 0}, "seconds=0"),
        ({"tolerance": 0.1, "threads": 0}, "threads=0"),
        ({"depth": 40, "max_bytes": 1000}, "max_bytes is 1000; raise it, or give depth="),
        ({"backend": "abacus"}, "there are brute, cp-sat, highs, gurobi"),
        ({"backend": "brute"}, "at most 22 items"),
        ({"backend": "brute", "tolerance": 0.1}, "neither tolerance= nor depth="),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], message: str):
    with pytest.raises(ut.ConstructError, match=message):
        ut.subset_sum(np.ones(70), 1.0, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        (1.0, 1.0, r"has to be \(..., n\)"),
        (np.ones((2, 3)), np.ones(3), "do not broadcast"),
        (["a"], 1.0, "values is"),
        ([[1.0], [1.0, 2.0]], 1.0, "values is no array"),
        (np.ones(2, complex), 1.0, "complex128"),
        ([2**60 + 1], 1.0, "above 2\\^53"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: object, target: object, message: str):
    with pytest.raises(ut.ConstructError, match=message):
        ut.subset_sum(values, target)  # type: ignore[arg-type]


def test_a_wrong_result_does_not_pass_its_check():
    found = ut.subset_sum([0.5, 0.25], [0.5, 0.2], size=1)
    found.check()
    with pytest.raises(ut.ConstructError, match=r"instance \(1,\): the error is given as"):
        dataclasses.replace(found, error=np.zeros(2)).check()
    with pytest.raises(ut.ConstructError, match=r"instance \(0,\): the mask keeps 1 of 2"):
        dataclasses.replace(found, size=2).check()
