"""A control wears what it says, and the search is afterwards as it was."""

from __future__ import annotations

import pytest
import torch

from models import tiny_gpt2
from untrained.apply import apply
from untrained.recipe import recipe
from untrained.search import controls
from untrained.states import Frozen, Trained


def test_a_random_mask_keeps_the_keep_of_every_tensor() -> None:
    applied = apply(tiny_gpt2(), "supermask")
    found = applied.masks
    with controls.random_mask(applied, seed=1):
        worn = applied.masks
        assert worn.counts == found.counts
        assert worn != found
    assert applied.masks == found
    applied.check_intact()


def test_a_shuffled_mask_is_the_found_one_permuted() -> None:
    applied = apply(tiny_gpt2(), "query,mlp = masked(keep=0.3, scope=global)")
    found = applied.masks
    with controls.shuffled_mask(applied, seed=1):
        assert applied.masks.counts == found.counts
        assert applied.masks != found
    assert applied.masks == found


def test_redrawn_weights_keep_the_mask_and_change_the_weights() -> None:
    applied = apply(tiny_gpt2(), "supermask", seed=0)
    found, held = applied.masks, applied.model.transformer.h[0].mlp.c_fc.weight.clone()
    with controls.redrawn_weights(applied, seed=1):
        worn = applied.model.transformer.h[0].mlp.c_fc.weight.clone()
        assert applied.masks == found
        assert torch.equal(worn == 0, held == 0)
        assert not torch.equal(worn, held)
    assert torch.equal(applied.model.transformer.h[0].mlp.c_fc.weight, held)
    applied.check_intact()


def test_redrawn_shared_weights_stay_shared() -> None:
    applied = apply(tiny_gpt2(), "query = masked(keep=1, share=layers)", seed=0)
    with controls.redrawn_weights(applied, seed=1):
        one, two = (block.attn.c_attn.weight[:, :16] for block in applied.model.transformer.h)
        assert torch.equal(one, two)


def test_a_control_ends_even_if_its_evaluation_fails() -> None:
    applied = apply(tiny_gpt2(), "supermask")
    found = applied.masks
    with pytest.raises(ZeroDivisionError), controls.random_mask(applied, seed=1):
        raise ZeroDivisionError
    assert applied.masks == found


def test_controls_are_recipes_derived_from_the_one_under_test() -> None:
    rules = recipe("mlp = masked(keep=0.3, init=signed_constant, share=layers); norm = frozen")
    assert str(controls.untrained(rules)) == (
        "mlp = frozen(init=signed_constant, share=layers); norm = frozen"
    )
    assert str(controls.dense(rules)) == "mlp = trained; norm = frozen"


def test_the_embeddings_control_fixes_the_mask_at_random_and_trains_embeddings() -> None:
    applied = apply(tiny_gpt2(), "supermask")
    rules = controls.embeddings_only(applied.recipe, applied.layout)
    control = apply(tiny_gpt2(), rules)
    for slot, state in control.states.items():
        if slot.component in controls.EMBEDDINGS:
            assert state == Trained()
        elif slot.kind == "matrix":
            assert state == Frozen(keep=0.5, init="signed_constant")
    assert {"transformer.wte.weight", "transformer.wpe.weight"} == control.trained().keys()


def test_every_control_trains_what_is_trained_beside_the_mask() -> None:
    rules = recipe("query,key,value,output,mlp = masked(keep=0.3)")
    applied = apply(tiny_gpt2(), rules)
    beside = applied.trained().keys()
    for control in (controls.dense(rules), controls.embeddings_only(rules, applied.layout)):
        assert beside <= apply(tiny_gpt2(), control).trained().keys()
