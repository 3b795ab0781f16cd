"""A state is a value, checked when made."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Masked(keep=0.5, init="gpt2", fan="out"), "fan has no effect on gpt2"),
        (lambda: Masked(keep=0.5, fan="out"), "fan has no effect on own"),
        (lambda: Frozen(init="zeros", share="layers"), "share has no effect"),
        (lambda: Masked(keep=0.5, scores="zeros", scores_scale=4.0), "scores_scale has no effect"),
        (lambda: Masked(keep=0.5, rescale=1), r"rescale=1: rescale is yes or no \(True or False\)"),
        (lambda: Masked(keep="0.5"), "keep='0.5': keep is a number above 0"),
    ],
)
def test_an_option_without_effect_or_sense_is_refused(make: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make()
