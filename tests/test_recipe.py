"""The language of recipes: what it reads, what it means, what it refuses."""

from __future__ import annotations

import pytest
from torch import nn

from models import LAYERS, mlp, tiny_gpt2
from untrained.errors import RecipeError
from untrained.layouts import Layout, layout_of, modules
from untrained.recipe import PRESETS, Recipe, recipe
from untrained.states import Frozen, Masked, State, Trained


@pytest.fixture(scope="module")
def gpt2() -> Layout:
    return layout_of(tiny_gpt2())


def states(text: str, layout: Layout) -> dict[str, State]:
    return {slot.role: state for slot, state in recipe(text).states(layout).items()}


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PRESETS.values())
def test_a_preset_prints_as_the_text_it_was_read_from(text: str) -> None:
    assert str(recipe(text)) == text


def test_reading_what_was_printed_gives_an_equal_recipe() -> None:
    rules = recipe("query , key=frozen ;mlp[0:1]= masked( keep=0.3,init = signed_constant ) ;;")
    assert recipe(str(rules)) == rules
    assert hash(recipe(str(rules))) == hash(rules)


def test_a_preset_is_read_by_its_name() -> None:
    assert recipe("frozen_qk") == recipe("query,key = frozen")


def test_an_empty_recipe_trains_everything(gpt2: Layout) -> None:
    assert set(states("", gpt2).values()) == {Trained()}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("query", "cannot read 'query'"),
        ("query = ", "cannot read"),
        ("query = asleep", "not a state"),
        ("query = mixing", "not a state"),
        ("query = masked", "masked needs keep"),
        ("query = masked(0.5)", "not an option"),
        ("query = masked(keep=0.5, prune=0.5)", "not an option of masked; it takes"),
        ("query = masked(keep=0.5, keep=0.4)", "given twice"),
        ("query = masked(keep=half)", "not a number"),
        ("query = masked(keep=0)", "above 0"),
        ("query = masked(keep=0.5, rescale=maybe)", "yes or no"),
        ("query = trained(keep=0.5)", "not an option of trained"),
        ("query, = frozen", "cannot read the component"),
        ("query[ = frozen", "cannot read"),
        ("mlp[a] = frozen", "cannot read the layers"),
        ("mlp[] = frozen", "cannot read the layers"),
        ("query = frozen; query = trained", "named twice"),
        ("query = frozen(init=as_is", "cannot read"),
    ],
)
def test_what_is_not_a_recipe_is_refused(text: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says.replace("(", r"\(")):
        recipe(text)


def test_a_recipe_is_text() -> None:
    with pytest.raises(RecipeError, match="is text, not dict"):
        recipe({"query": "frozen"})  # type: ignore[arg-type]


# --- combination --------------------------------------------------------------------------------


def test_the_right_side_of_a_union_wins() -> None:
    assert recipe("query,key = frozen") | "query = trained" == recipe(
        "key = frozen; query = trained"
    )


def test_a_union_with_nothing_changes_nothing() -> None:
    assert recipe("query = frozen") | Recipe() == recipe("query = frozen")


# --- meaning ------------------------------------------------------------------------------------


def test_the_more_specific_name_wins_whatever_the_order(gpt2: Layout) -> None:
    for text in ("all = frozen; mlp = trained", "mlp = trained; all = frozen"):
        found = states(text, gpt2)
        assert found["layers.0.mlp.up"] == Trained()
        assert found["layers.0.query"] == Frozen()


def test_a_part_of_a_component_wins_over_the_component(gpt2: Layout) -> None:
    found = states("mlp = frozen; mlp.up = trained", gpt2)
    assert found["layers.1.mlp.up"] == Trained()
    assert found["layers.1.mlp.down"] == Frozen()


@pytest.mark.parametrize(
    ("layers", "frozen"),
    [("[0]", {0}), ("[-1]", {1}), ("[0:1]", {0}), ("[1:]", {1}), ("[:]", {0, 1}), ("[:-1]", {0})],
)
def test_layers_are_named_like_a_python_slice(gpt2: Layout, layers: str, frozen: set[int]) -> None:
    found = states(f"query{layers} = frozen", gpt2)
    assert {i for i in range(LAYERS) if found[f"layers.{i}.query"] == Frozen()} == frozen


def test_a_bias_follows_its_component(gpt2: Layout) -> None:
    found = states("query = frozen", gpt2)
    assert found["layers.0.bias.query"] == Frozen()
    assert found["layers.0.bias.key"] == Trained()


def test_a_named_bias_follows_its_name(gpt2: Layout) -> None:
    found = states("query[0] = frozen; bias = trained(init=as_is)", gpt2)
    assert found["layers.0.bias.query"] == Trained(init="as_is")


def test_the_law_of_a_component_says_nothing_about_its_bias(gpt2: Layout) -> None:
    found = states("norm = frozen(init=ones)", gpt2)
    assert found["layers.0.norm.mlp"] == Frozen(init="ones")
    assert found["layers.0.bias.norm.mlp"] == Frozen()


def test_the_bias_of_a_masked_component_is_frozen(gpt2: Layout) -> None:
    assert states("query = masked(keep=0.5)", gpt2)["layers.0.bias.query"] == Frozen()


def test_all_leaves_no_slot_out(gpt2: Layout) -> None:
    assert set(states("all = frozen", gpt2).values()) == {Frozen()}


# --- what has no meaning ------------------------------------------------------------------------


def test_a_component_that_does_not_exist_is_an_error_that_lists_those_that_do(gpt2: Layout) -> None:
    with pytest.raises(
        RecipeError, match=r"'?cross.query'? does not exist in gpt2; it has emb.*bias"
    ):
        states("cross.query = frozen", gpt2)


def test_a_layer_that_does_not_exist_is_an_error(gpt2: Layout) -> None:
    with pytest.raises(RecipeError, match="layers 0 to 1"):
        states("mlp[2:4] = frozen", gpt2)


def test_a_clause_that_decides_nothing_is_an_error(gpt2: Layout) -> None:
    with pytest.raises(RecipeError, match="no effect"):
        states("mlp = frozen; mlp.up = trained; mlp.down = masked(keep=0.5); bias = trained", gpt2)


def test_two_clauses_that_contradict_each_other_are_an_error(gpt2: Layout) -> None:
    with pytest.raises(RecipeError, match="neither is more specific"):
        states("mlp[0] = frozen; mlp.up = trained", gpt2)


def test_two_clauses_that_agree_are_no_contradiction(gpt2: Layout) -> None:
    assert states("mlp[0] = frozen; mlp.up = frozen", gpt2)["layers.0.mlp.up"] == Frozen()


@pytest.mark.parametrize("name", ["norm", "bias"])
def test_a_vector_cannot_be_masked(gpt2: Layout, name: str) -> None:
    with pytest.raises(RecipeError, match="cannot be masked"):
        states(f"{name} = masked(keep=0.5)", gpt2)


def test_masking_all_says_what_to_do_about_norms(gpt2: Layout) -> None:
    with pytest.raises(RecipeError, match="add 'norm = frozen'"):
        states("all = masked(keep=0.5)", gpt2)


def test_sharing_outside_the_layers_is_an_error(gpt2: Layout) -> None:
    with pytest.raises(RecipeError, match="share=layers has no effect"):
        states("position = masked(keep=0.5, share=layers)", gpt2)


def test_a_module_is_named_by_its_own_names() -> None:
    found = states("0 = masked(keep=0.5)", modules(mlp()))
    assert found == {
        "0": Masked(keep=0.5),
        "bias.0": Frozen(),
        "2": Trained(),
        "bias.2": Trained(),
    }


def test_sharing_over_tensors_of_different_shapes_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    layout = modules(model, {"layer": "*"})
    with pytest.raises(RecipeError, match="no two layers hold a tensor of one shape"):
        recipe("layer = masked(keep=0.5, share=layers)").states(layout)


def test_a_budget_by_layer_outside_the_layers_is_refused() -> None:
    with pytest.raises(RecipeError, match="scope=layer has no effect, embedding is outside"):
        recipe("embedding = masked(keep=0.5, scope=layer)").states(layout_of(tiny_gpt2()))


def test_a_recipe_that_no_ticket_could_hold_is_refused() -> None:
    text = "; ".join(f"mlp[{layer}] = masked(keep=0.5, init=gpt2)" for layer in range(120))
    with pytest.raises(RecipeError, match="is too long for a ticket, which holds 4,096"):
        recipe(text)
