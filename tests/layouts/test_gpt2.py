"""Where GPT-2's components lie, checked against Hugging Face."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2Model

from models import LAYERS, D, T, V, tiny_gpt2
from untrained.components import Slot
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts import layout_of


def slots(model: torch.nn.Module) -> dict[str, Slot]:
    return {slot.role: slot for slot in layout_of(model).slots}


def test_every_parameter_is_covered_exactly_once() -> None:
    model = tiny_gpt2()
    covered: dict[str, int] = {}
    for slot in layout_of(model).slots:
        covered[slot.parameter] = covered.get(slot.parameter, 0) + math.prod(slot.shape)
    named = dict(model.named_parameters(remove_duplicate=False))
    assert covered == {name: parameter.numel() for name, parameter in named.items()}


def test_the_query_slot_is_what_hugging_face_computes_queries_with() -> None:
    model = tiny_gpt2()
    attention = model.transformer.h[1].attn
    x = torch.randn(5, D)
    query, key, value = attention.c_attn(x).split(D, dim=-1)
    for role, expected in (("query", query), ("key", key), ("value", value)):
        slot = slots(model)[f"layers.1.{role}"]
        weight = slot.logical(slot.stored(attention.c_attn.weight))
        torch.testing.assert_close(x @ weight.T, expected)


def test_shapes_are_out_times_in() -> None:
    found = slots(tiny_gpt2())
    assert found["layers.0.mlp.up"].shape == (4 * D, D)
    assert found["layers.0.mlp.down"].shape == (D, 4 * D)
    assert found["embedding"].shape == (V, D)
    assert found["position"].shape == (T, D)


def test_the_own_law_is_hugging_faces() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=256, n_head=4, vocab_size=300))
    for slot in layout_of(model).slots:
        held = slot.stored(model.get_parameter(slot.parameter).detach())
        assert slot.own is not None
        if slot.own.name in ("ones", "zeros"):
            assert (held == (slot.own.name == "ones")).all()
        else:
            assert held.std().item() == pytest.approx(slot.own.scale, rel=0.02), slot.role


def test_a_head_of_its_own_is_named_after_its_module() -> None:
    config = GPT2Config(n_layer=1, n_embd=D, n_head=2, vocab_size=V, num_labels=3)
    assert slots(GPT2ForSequenceClassification(config))["score"].own == Law("normal", 0.02)


def test_a_body_without_a_head_has_no_unembedding() -> None:
    found = slots(GPT2Model(GPT2Config(n_layer=LAYERS, n_embd=D, n_head=2, vocab_size=V)))
    assert "unembedding" not in found
    assert found["layers.1.query"].parameter == "h.1.attn.c_attn.weight"


def test_cross_attention_is_refused() -> None:
    with pytest.raises(RecipeError, match="add_cross_attention"):
        layout_of(tiny_gpt2(add_cross_attention=True))


def test_an_unknown_family_is_refused_with_a_way_out() -> None:
    from transformers import BloomConfig, BloomModel

    config = BloomConfig(vocab_size=V, hidden_size=D, n_layer=1, n_head=2)
    with pytest.raises(RecipeError, match=r"BloomModel has no layout \(known: GPT2Model, .*regist"):
        layout_of(BloomModel(config))
