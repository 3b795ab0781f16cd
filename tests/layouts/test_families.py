"""Every family: where its components lie, and that a recipe acts on all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    MarianConfig,
    MarianMTModel,
    Qwen3Config,
    Qwen3Model,
)

from families import FAMILIES, GROUPS, HEADS, LAYERS, D, Family, V, batch
from untrained.apply import apply
from untrained.components import Slot
from untrained.errors import RecipeError
from untrained.layouts import Layout, layout_of
from untrained.recipe import PRESETS
from untrained.states import Masked

EVERY = [pytest.param(family, id=name) for name, family in FAMILIES.items()]
MASKED = "all = masked(keep=0.3); norm,bias = frozen"
OF_MARIAN = [pytest.param(FAMILIES[name], id=name) for name in ("marian", "marian-two")]

TIED = [
    pytest.param(FAMILIES[name], id=name)
    for name in ("llama-tied", "bert", "bert-pretraining", "roberta", "marian")
]


def slots(model: Any) -> dict[str, Slot]:
    """The slots by role, of a tied tensor the first."""
    found: dict[str, Slot] = {}
    for slot in layout_of(model).slots:
        found.setdefault(slot.role, slot)
    return found


def selectors(layout: Layout) -> list[str]:
    """All that a recipe can name, with what is tied to it."""
    names = [name for name in layout.components if not name.startswith("bias.")]
    if any(slot.kind == "bias" for slot in layout.slots):
        names.append("bias")
    if "unembedding" not in names:
        return names
    tied = {"embedding": "embedding,unembedding"}
    if any(slot.name == "decoder.embedding" for slot in layout.slots):
        tied["decoder"] = "decoder,unembedding"
    return [tied.get(name, name) for name in names if name != "unembedding"]


@pytest.mark.parametrize("family", EVERY)
def test_the_layout_is_found_by_the_models_type(family: Family) -> None:
    assert layout_of(family.model()).name == family.layout


@pytest.mark.parametrize("family", EVERY)
def test_every_parameter_is_named_once_or_computed_by_the_model(family: Family) -> None:
    model = family.model()
    layout = layout_of(model)
    named = [slot.parameter for slot in layout.slots] + [held.parameter for held in layout.fixed]
    assert sorted(named) == sorted(dict(model.named_parameters(remove_duplicate=False)))


@pytest.mark.parametrize("family", EVERY)
def test_the_counts_are_the_arithmetic_of_the_configuration(family: Family) -> None:
    model = family.model()
    rows = list(apply(model, "all = trained").rows())
    assert sum(row.weights for row in rows) == family.weights
    computed = {held.parameter for held in layout_of(model).fixed}
    drawn = [p.numel() for name, p in model.named_parameters() if name not in computed]
    assert sum(drawn) == family.weights


@pytest.mark.parametrize("family", EVERY)
def test_the_own_law_is_that_of_transformers(family: Family) -> None:
    name = "d_model" if family.layout == "marian" else "hidden_size"
    size = {"head_dim": 64} if "head_dim" in family.settings else {}
    model = family.model(**{name: 256}, **size)
    named = dict(model.named_parameters(remove_duplicate=False))
    for slot in layout_of(model).slots:
        held = named[slot.parameter].detach()
        assert slot.own is not None, slot.role
        if slot.own.name in ("ones", "zeros"):
            assert (held == (slot.own.name == "ones")).all(), slot.role
        else:
            drawn = held[held.abs().sum(-1) > 0]  # without the row of the padding token
            error = 5 / math.sqrt(2 * drawn.numel())
            assert drawn.std().item() == pytest.approx(slot.own.scale, rel=error), slot.role
            assert len(held) - len(drawn) <= 1


@pytest.mark.parametrize("family", EVERY)
def test_every_component_can_be_in_every_state_that_it_allows(family: Family) -> None:
    for named in selectors(layout_of(family.model())):
        for state in ("trained", "frozen", "masked(keep=0.5)"):
            model = family.model()
            layout = layout_of(model)
            parts = [
                slot
                for slot in layout.slots
                if any(slot.is_part_of(tuple(name.split("."))) for name in named.split(","))
            ]
            if state.startswith("masked") and not all(
                s.maskable or s.kind == "bias" for s in parts
            ):
                with pytest.raises(RecipeError, match="cannot be masked"):
                    apply(model, f"{named} = {state}")
                continue
            if state.startswith("masked") and named == "bias":
                continue
            applied = apply(model, f"{named} = {state}")
            words = {applied.states[slot].word for slot in parts if slot.kind != "bias"}
            assert words <= {state.partition("(")[0]}, named
            assert torch.isfinite(model(**batch(model))[0]).all()


@pytest.mark.parametrize("family", EVERY)
def test_the_mask_keeps_exactly_its_share_of_every_tensor(family: Family) -> None:
    for role, mask in apply(family.model(), MASKED).masks.items():
        assert int(mask.sum()) == round(0.3 * mask.numel()), role


@pytest.mark.parametrize("family", EVERY)
def test_every_masked_tensor_is_alive_in_train_and_eval_mode(family: Family) -> None:
    applied = apply(family.model(), MASKED)
    masked = [state for state in applied.distinct().values() if isinstance(state, Masked)]
    assert applied.check_liveness() == len(masked) > 10


@pytest.mark.parametrize("family", EVERY)
def test_fifty_steps_lower_the_loss(family: Family) -> None:
    applied = apply(
        family.model(), "all = masked(keep=0.5, init=kaiming_uniform); norm,bias = frozen"
    )
    optimizer = applied.optimizer(lr=0.02)
    inputs, losses = batch(applied.model), []
    for _ in range(50):
        loss = applied.model(**inputs).loss
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.8 * losses[0]
    applied.check_intact()


@pytest.mark.parametrize("family", EVERY)
def test_the_layers_of_a_stack_share_one_random_tensor(family: Family) -> None:
    applied = apply(family.model(), "mlp,query = masked(keep=0.5, share=layers)")
    held: dict[str, set[int]] = defaultdict(set)
    for part in applied.engine.masked:
        held[part.slot.name].add(id(part.weights))
    assert all(len(tensors) == 1 for tensors in held.values()), held
    assert len(set.union(*held.values())) == len(held)  # each stack and component its own
    masks = applied.masks
    first, second = [r for r in masks if r.endswith((".0.mlp.up", ".1.mlp.up"))][:2]
    assert not torch.equal(masks[first], masks[second])


@pytest.mark.parametrize("family", EVERY)
def test_what_writes_to_the_residual_stream_is_marked(family: Family) -> None:
    layout = layout_of(family.model())
    marked = {slot.component for slot in layout.slots if slot.residual}
    cross = {"cross.output"} if family.layout == "marian" else set()
    assert marked == {"output", "mlp.down"} | cross


@pytest.mark.parametrize("family", TIED)
def test_a_tied_head_is_masked_together_with_its_embedding(family: Family) -> None:
    model = family.model()
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    with pytest.raises(RecipeError, match="they are one tied tensor"):
        apply(model, "unembedding = masked(keep=0.5)")
    applied = apply(model, "embedding,unembedding = masked(keep=0.5)")
    assert sum(mask.numel() == V * D for mask in applied.masks.values()) == 1


def test_the_head_of_a_second_vocabulary_is_tied_to_it() -> None:
    model = FAMILIES["marian-two"].model()
    with pytest.raises(RecipeError, match="decoder.embedding is .* but they are one tied tensor"):
        apply(model, "unembedding = masked(keep=0.5)")
    applied = apply(model, "decoder.embedding,unembedding = masked(keep=0.5)")
    assert list(applied.masks) == ["decoder.embedding"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["llama", "qwen2", "bert", "roberta", "marian"])
def test_every_preset_fits_every_language_model(name: str, preset: str) -> None:
    model = FAMILIES[name].model()
    applied = apply(model, preset)
    assert torch.isfinite(model(**batch(model)).loss)
    applied.check_intact()


# --- Llama-shaped ---


def test_keys_and_values_of_grouped_heads_are_smaller() -> None:
    found = slots(FAMILIES["llama"].model())
    narrow = D * GROUPS // HEADS
    assert found["layers.0.query"].shape == (D, D)
    assert found["layers.0.key"].shape == found["layers.0.value"].shape == (narrow, D)
    assert found["layers.0.key"].head_width == D // HEADS
    applied = apply(FAMILIES["llama"].model(), "query,key = masked(keep=0.25)")
    kept = {role: int(mask.sum()) for role, mask in applied.masks.items()}
    assert kept["layers.1.query"] == D * D // 4
    assert kept["layers.1.key"] == narrow * D // 4


def test_heads_of_a_width_of_their_own_are_counted() -> None:
    config = Qwen3Config(**FAMILIES["qwen3"].settings | {"head_dim": 32})
    found = slots(Qwen3Model(config))
    assert found["layers.1.query"].shape == (HEADS * 32, D)
    assert found["layers.1.query"].head_width == 32
    assert found["layers.1.norm.query"].shape == (32,)


def test_frozen_biases_may_be_absent_and_others_not() -> None:
    assert apply(FAMILIES["llama"].model(), "supermask").check_liveness() == 7 * LAYERS + 2
    with pytest.raises(RecipeError, match="component bias does not exist in llama"):
        apply(FAMILIES["llama"].model(), "bias = trained")


def test_the_gate_has_a_name() -> None:
    applied = apply(FAMILIES["llama"].model(), "mlp = frozen; mlp.gate = masked(keep=0.5)")
    assert list(applied.masks) == ["layers.0.mlp.gate", "layers.1.mlp.gate"]


# --- BERT ---


def test_an_untied_head_has_a_bias_that_nothing_reads() -> None:
    model = FAMILIES["bert"].model(tie_word_embeddings=False)
    found = slots(model)
    assert found["bias.unembedding"].parameter == "cls.predictions.decoder.bias"
    assert found["bias.cls.predictions"].parameter == "cls.predictions.bias"
    applied = apply(model, "unembedding = masked(keep=0.5); embedding = frozen")
    assert applied.check_liveness() == 1


def test_token_types_are_part_of_the_embedding_or_named_alone() -> None:
    rule = "embedding,unembedding = masked(keep=0.5)"
    both = apply(FAMILIES["bert"].model(), rule)
    assert set(both.masks) == {"embedding", "embedding.type"}
    one = apply(FAMILIES["bert"].model(), f"{rule}; embedding.type = frozen")
    assert set(one.masks) == {"embedding"}


def test_bert_with_cross_attention_is_refused() -> None:
    config = BertConfig(**FAMILIES["bert"].settings, is_decoder=True, add_cross_attention=True)
    with pytest.raises(RecipeError, match="add_cross_attention"):
        layout_of(BertModel(config))


def test_two_models_joined_into_one_are_refused() -> None:
    settings = FAMILIES["bert"].settings
    decoder = BertConfig(**settings, is_decoder=True, add_cross_attention=True)
    both = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**settings), decoder)
    with pytest.raises(RecipeError, match="EncoderDecoderModel joins encoder and decoder"):
        layout_of(EncoderDecoderModel(both))


# --- Marian ---


def named(rules: str) -> set[str]:
    """The masked roles of a Marian model under a recipe."""
    return set(apply(FAMILIES["marian"].model(), rules).masks)


def roles(stack: str, component: str) -> set[str]:
    depth = LAYERS + (stack == "decoder")
    return {f"{stack}.layers.{layer}.{component}" for layer in range(depth)}


def test_a_bare_name_is_that_component_in_every_stack() -> None:
    assert named("query = masked(keep=0.5)") == roles("encoder", "query") | roles(
        "decoder", "query"
    )


def test_a_stack_may_be_named() -> None:
    assert named("encoder.query = masked(keep=0.5)") == roles("encoder", "query")
    assert named("decoder.cross.value = masked(keep=0.5)") == roles("decoder", "cross.value")


def test_cross_attention_has_a_word_of_its_own() -> None:
    parts = ("query", "key", "value", "output")
    crossed = set.union(*(roles("decoder", f"cross.{part}") for part in parts))
    assert named("cross = masked(keep=0.5)") == crossed
    assert named("cross.key = masked(keep=0.5)") == roles("decoder", "cross.key")


def test_the_stack_is_more_specific_than_the_bare_name() -> None:
    for rules in (
        "query = masked(keep=0.5); encoder.query = frozen",
        "encoder.query = frozen; query = masked(keep=0.5)",
    ):
        assert named(rules) == roles("decoder", "query")


def test_a_whole_stack_can_be_frozen() -> None:
    applied = apply(FAMILIES["marian"].model(), "encoder = frozen")
    frozen = {slot.stack for slot, state in applied.states.items() if state.word == "frozen"}
    assert frozen == {"encoder"}
    learned = applied.trained()
    assert learned
    assert not any(name.startswith("model.encoder.layers") for name in learned)


def test_a_stack_and_a_component_contradict_each_other() -> None:
    with pytest.raises(RecipeError, match="neither is more specific"):
        named("encoder = frozen; query = masked(keep=0.5)")


def test_layers_are_counted_within_their_stack() -> None:
    assert named("query[-1] = masked(keep=0.5)") == {
        "encoder.layers.1.query",
        "decoder.layers.2.query",
    }


def test_a_budget_of_a_layer_is_that_of_one_stack() -> None:
    """Encoder and decoder differ in size, so a budget over both would be held by neither."""
    masks = apply(FAMILIES["marian"].model(), "mlp = masked(keep=0.5, scope=layer)").masks
    for stack in ("encoder", "decoder"):
        held = [masks[f"{stack}.layers.0.mlp.{part}"] for part in ("up", "down")]
        assert sum(int(mask.sum()) for mask in held) == sum(mask.numel() for mask in held) // 2


def test_the_biases_of_a_stack_can_be_named() -> None:
    applied = apply(FAMILIES["marian"].model(), "bias = frozen; encoder.bias = trained")
    trained = {
        s.stack
        for s, state in applied.states.items()
        if s.kind == "bias" and state.word == "trained"
    }
    assert trained == {"encoder"}


def test_the_biases_of_cross_attention_follow_it() -> None:
    applied = apply(FAMILIES["marian"].model(), "cross = frozen")
    frozen = {s.role for s, state in applied.states.items() if state.word == "frozen"}
    assert "decoder.layers.0.bias.cross.query" in frozen
    assert "decoder.layers.0.bias.query" not in frozen


@pytest.mark.parametrize("family", OF_MARIAN)
def test_positions_are_computed_not_learned(family: Family) -> None:
    model = family.model()
    before = model.model.encoder.embed_positions.weight.clone()
    applied = apply(model, "all = trained")
    assert torch.equal(model.model.encoder.embed_positions.weight, before)
    assert not any("embed_positions" in name for name in applied.trained())
    assert "position" not in str(applied)


def test_a_recipe_cannot_speak_of_computed_positions() -> None:
    with pytest.raises(RecipeError, match=r"encoder.position, decoder.position computed by"):
        apply(FAMILIES["marian"].model(), "position = frozen")


def test_one_vocabulary_is_one_embedding_and_two_are_two() -> None:
    assert "embedding" in slots(FAMILIES["marian"].model())
    two = slots(FAMILIES["marian-two"].model())
    assert {"encoder.embedding", "decoder.embedding", "unembedding"} <= two.keys()
    with pytest.raises(RecipeError, match="encoder.embedding does not exist in marian"):
        named("encoder.embedding = frozen")


def test_heads_of_each_stack_have_their_width() -> None:
    found = slots(FAMILIES["marian"].model())
    assert found["encoder.layers.0.query"].head_width == D // HEADS
    assert found["decoder.layers.0.cross.key"].head_width == 2 * D // HEADS


def test_a_shared_embedding_that_nothing_reads_is_refused() -> None:
    config = MarianConfig(**FAMILIES["marian"].settings, tie_word_embeddings=False)
    with pytest.raises(RecipeError, match="share_encoder_decoder_embeddings=False"):
        layout_of(MarianMTModel(config))
