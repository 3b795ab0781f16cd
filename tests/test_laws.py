"""Which law means which distribution: formulas, fans, rescaling, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from untrained.errors import RandomError
from untrained.laws import LAWS, LEAST, MOST, Distribution, Law, Place

OUT, IN = 12, 40
PLACE = Place((OUT, IN), keep=0.3, layers=6, head_width=64)

# At keep 1, in the letters of the papers.
EXPECTED = {
    "signed_constant": ("signs", 1 / math.sqrt(IN)),
    "unsigned_constant": ("constant", 1 / math.sqrt(IN)),
    "kaiming_uniform": ("uniform", math.sqrt(2) * math.sqrt(3 / IN)),
    "kaiming_normal": ("normal", math.sqrt(2) / math.sqrt(IN)),
    "xavier_uniform": ("uniform", math.sqrt(6 / (IN + OUT))),
    "xavier_normal": ("normal", math.sqrt(2 / (IN + OUT))),
    "linear": ("uniform", 1 / math.sqrt(IN)),
    "gpt2": ("normal", 0.02),
    "theory": ("uniform", 64**0.25),
    "uniform": ("uniform", 1.0),
    "normal": ("normal", 1.0),
    "ones": ("constant", 1.0),
    "zeros": ("constant", 0.0),
}
OF_A_FAN = ("signed_constant", "unsigned_constant", "kaiming_uniform", "kaiming_normal")
RESCALED = (*OF_A_FAN, "xavier_uniform", "xavier_normal", "linear")


def scale(law: Law, place: Place = PLACE) -> float:
    return law.distribution(place).scale


def test_every_law_has_an_expectation_here():
    assert EXPECTED.keys() == LAWS.keys()


@pytest.mark.parametrize("name", LAWS)
def test_a_law_means_its_formula(name: str):
    found = Law(name).distribution(Place((OUT, IN), head_width=64))
    kind, size = EXPECTED[name]
    assert found == Distribution(kind, pytest.approx(size, rel=1e-15))


@pytest.mark.parametrize("name", LAWS)
def test_only_laws_that_divide_by_a_fan_rescale_unasked(name: str):
    factor = 1 / math.sqrt(0.3) if name in RESCALED else 1.0
    assert scale(Law(name)) == pytest.approx(EXPECTED[name][1] * factor, rel=1e-15)


@pytest.mark.parametrize("name", sorted(LAWS.keys() - {"ones", "zeros"}))
def test_rescale_is_as_asked(name: str):
    size = EXPECTED[name][1]
    assert scale(Law(name, rescale=False)) == pytest.approx(size, rel=1e-15)
    assert scale(Law(name, rescale=True)) == pytest.approx(size / math.sqrt(0.3), rel=1e-15)


@pytest.mark.parametrize("name", ["ones", "zeros"])
def test_a_fixed_value_cannot_be_rescaled(name: str):
    assert scale(Law(name, rescale=False)) == EXPECTED[name][1]
    with pytest.raises(RandomError, match=f"{name} is the same value at every keep"):
        Law(name, rescale=True)


@pytest.mark.parametrize("name", LAWS)
def test_scale_is_a_factor(name: str):
    assert scale(Law(name, 2.5)) == pytest.approx(2.5 * scale(Law(name)), rel=1e-15)


@pytest.mark.parametrize("name", OF_A_FAN)
@pytest.mark.parametrize(("mode", "fan"), [("in", IN), ("out", OUT), ("avg", (IN + OUT) / 2)])
def test_a_fan_is_the_one_asked_for(name: str, mode: Any, fan: float):
    expected = EXPECTED[name][1] * math.sqrt(IN / fan)
    assert scale(Law(name, fan=mode, rescale=False)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", sorted(LAWS.keys() - set(OF_A_FAN)))
def test_the_other_laws_do_not_look_at_the_fan(name: str):
    assert scale(Law(name, fan="out")) == scale(Law(name))


@pytest.mark.parametrize(
    "module", [nn.Linear(7, 5), nn.Conv1d(4, 6, 3), nn.Conv2d(4, 6, (3, 5)), nn.Embedding(9, 4)]
)
def test_fans_are_those_of_torch(module: nn.Module):
    shape = tuple(module.weight.shape)
    both = nn.init._calculate_fan_in_and_fan_out(module.weight)
    assert (Place(shape).fan("in"), Place(shape).fan("out")) == both
    assert Place(shape).fan("avg") == sum(both) / 2


@pytest.mark.parametrize("module", [nn.Linear(300, 200), nn.Conv2d(30, 40, 3)])
def test_bounds_are_those_of_torch(module: nn.Module):
    """Torch's own Linear, Kaiming and Xavier, by the largest of many values."""
    weight, place = module.weight.detach(), Place(tuple(module.weight.shape))
    torch.manual_seed(0)
    for law, fill in {
        "linear": lambda _: module.reset_parameters(),
        "kaiming_uniform": lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"),
        "xavier_uniform": nn.init.xavier_uniform_,
    }.items():
        fill(weight)
        assert float(weight.abs().max()) == pytest.approx(scale(Law(law), place), rel=1e-3)


@pytest.mark.parametrize(("shape", "fan"), [((), 1), ((5,), 5), ((0,), 1), ((3, 0), 1)])
def test_a_fan_is_defined_for_every_shape(shape: tuple[int, ...], fan: float):
    assert Place(shape).fan("in") == fan


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0), (4, 0, 3), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_defined_at_every_shape(name: str, shape: tuple[int, ...]):
    assert math.isfinite(scale(Law(name), Place(shape)))


def test_gpt2_divides_what_writes_to_the_residual_stream():
    assert scale(Law("gpt2"), Place((4, 4), layers=12)) == 0.02
    inside = Place((4, 4), layers=12, residual=True)
    assert scale(Law("gpt2"), inside) == pytest.approx(0.02 / math.sqrt(24), rel=1e-15)


def test_theory_is_wide_for_query_and_key_only():
    assert scale(Law("theory"), Place((64, 64), head_width=16)) == 2.0
    assert scale(Law("theory"), Place((64, 64))) == 1.0


# --- values, printing ---


def test_laws_of_the_same_settings_are_equal():
    assert Law("normal", 2) == Law("normal", 2.0) == Law("normal", np.float32(2))
    assert len({Law("normal", 2), Law("normal", 2.0), Law("normal")}) == 2


def test_a_law_prints_what_is_not_usual():
    assert repr(Law("gpt2")) == "Law('gpt2')"
    law = Law("kaiming_normal", 2, "avg", rescale=False)
    assert repr(law) == "Law('kaiming_normal', scale=2.0, fan='avg', rescale=False)"
    assert eval(repr(law), {"Law": Law}) == law


def test_a_law_cannot_be_changed():
    with pytest.raises(AttributeError):
        Law("gpt2").scale = 2.0  # type: ignore[misc]


def test_a_shape_may_be_torchs_or_numpys():
    assert Place(torch.Size([3, 4])) == Place((3, 4)) == Place((np.int64(3), 4))


# --- refusals ---


@pytest.mark.parametrize("name", ["Normal", "kaiming", "", "as_is", None, 3, ["normal"]])
def test_an_unknown_law_lists_the_known(name: Any):
    with pytest.raises(RandomError, match=r"is not a law; there are signed_constant, .*, zeros"):
        Law(name)


@pytest.mark.parametrize(
    "wrong", [0, 0.0, -1.0, math.inf, -math.inf, math.nan, True, "2", None, 1j, 10**400]
)
def test_a_scale_is_a_number_above_0(wrong: Any):
    with pytest.raises(RandomError, match="the scale of gpt2"):
        Law("gpt2", wrong)


@pytest.mark.parametrize("name", sorted(LAWS.keys() - {"zeros"}))
@pytest.mark.parametrize("wrong", [1e-300, 5e-324, 1e-30, 1e30, 1e300])
def test_what_float32_cannot_hold_is_refused_with_the_numbers(name: str, wrong: float):
    with pytest.raises(RandomError, match=rf"{name}.*comes to a scale of .*\(12, 40\).*5\.42e-20"):
        Law(name, wrong).distribution(PLACE)


def test_the_ends_of_what_can_be_drawn():
    assert scale(Law("uniform", LEAST)) == 2.0**-64
    assert scale(Law("uniform", MOST)) == 2.0**64
    for beyond in (math.nextafter(LEAST, 0), math.nextafter(MOST, math.inf)):
        with pytest.raises(RandomError):
            scale(Law("uniform", beyond))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"keep": 0}, r"in \(0, 1\]"),
        ({"keep": 1.5}, r"in \(0, 1\]"),
        ({"keep": math.nan}, r"in \(0, 1\]"),
        ({"keep": "0.3"}, "keep is a number"),
        ({"layers": 0}, "layers is a whole number, at least 1"),
        ({"head_width": 0}, "head_width is a whole number"),
        ({"shape": (2, -1)}, "a size in a shape is a whole number, at least 0"),
        ({"shape": (2, 3.0)}, "a size in a shape"),
        ({"shape": (True, 3)}, "a size in a shape"),
        ({"shape": "34"}, "a size in a shape"),
        ({"shape": 5}, "is not a shape"),
        ({"shape": (2**32, 2**31)}, "at most"),
    ],
)
def test_a_place_that_cannot_be_is_refused(facts: dict[str, Any], said: str):
    with pytest.raises(RandomError, match=said):
        Place(**{"shape": (3, 4), **facts})


@pytest.mark.parametrize(("setting", "wrong"), [("fan", "both"), ("fan", None), ("rescale", "yes")])
def test_a_setting_out_of_its_choices_is_refused(setting: str, wrong: Any):
    with pytest.raises(RandomError, match=setting):
        Law("kaiming_normal", **{setting: wrong})
