"""A state is a value, checked when made."""

from __future__ import annotations

import pytest

from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.states import Frozen, Masked, Trained


def test_equal_states_print_alike() -> None:
    assert Masked(keep=0.5) == Masked(keep=0.5)
    assert str(Masked(keep=0.5, init="signed_constant", share="layers")) == (
        "masked(keep=0.5, init=signed_constant, share=layers)"
    )


def test_defaults_are_not_printed() -> None:
    assert (str(Trained()), str(Frozen()), str(Masked(keep=1.0))) == (
        "trained",
        "frozen",
        "masked(keep=1)",
    )


@pytest.mark.parametrize("keep", [0, -0.1, 1.5, float("nan"), float("inf"), True, "0.5"])
def test_keep_is_a_share_above_0(keep: object) -> None:
    with pytest.raises(RecipeError, match="keep"):
        Masked(keep=keep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [{"init": "orthogonal"}, {"share": "heads"}, {"by": "size"}, {"scope": "model"}, {"fan": "up"}],
)
def test_an_unknown_choice_names_the_known_ones(settings: dict[str, str]) -> None:
    with pytest.raises(RecipeError, match="is one of"):
        Masked(keep=0.5, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("init", ["as_is", "zeros"])
def test_a_scale_without_effect_is_refused(init: str) -> None:
    with pytest.raises(RecipeError, match="no effect"):
        Frozen(init=init, scale=2.0)


def test_the_scale_multiplies_the_models_own_law() -> None:
    assert Frozen(scale=2.0).law(Law("normal", 0.02)) == Law("normal", 0.04)


def test_values_kept_as_they_are_have_no_law() -> None:
    assert Frozen(init="as_is").law(Law("normal")) is None
