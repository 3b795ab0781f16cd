"""A model's shape is recorded and made again without running anything that a file names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2ForQuestionAnswering,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
)

from models import mlp, tiny_gpt2
from tickets import logits, search
from untrained.apply import apply
from untrained.errors import TicketError
from untrained.ticket import Ticket
from untrained.ticket.architecture import CLASSES, Architecture

SMALL: dict[str, Any] = {
    "vocab_size": 24,
    "n_positions": 12,
    "n_layer": 1,
    "n_embd": 8,
    "n_head": 2,
    "bos_token_id": None,
    "eos_token_id": None,
}


@pytest.mark.parametrize(
    "make",
    [
        GPT2Model,
        GPT2LMHeadModel,
        GPT2ForSequenceClassification,
        GPT2ForTokenClassification,
        GPT2ForQuestionAnswering,
    ],
)
def test_every_known_class_comes_back(make: type[nn.Module]) -> None:
    config = GPT2Config(**SMALL, pad_token_id=0, id2label={0: "no", 1: "yes", 2: "both"})
    applied = apply(make(config), "query,key = masked(keep=0.5)")
    model = Ticket.of(applied).model()
    assert type(model) is make
    assert torch.equal(logits(model), logits(applied.model))


def test_labels_come_back() -> None:
    labels = {0: "no", 1: "yes", 2: "both"}
    config = GPT2Config(**SMALL, pad_token_id=0, id2label=labels)
    model: Any = Ticket.of(apply(GPT2ForSequenceClassification(config), "")).model()
    assert model.config.id2label == labels
    assert model.config.label2id == {"no": 0, "yes": 1, "both": 2}


def test_the_attention_function_comes_back() -> None:
    model = GPT2LMHeadModel(GPT2Config(**SMALL, attn_implementation="eager"))
    rebuilt: Any = Ticket.of(apply(model, "supermask")).model()
    assert rebuilt.config._attn_implementation == "eager"
    default: Any = Ticket.of(search()).model()
    assert default.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    "settings",
    [
        {"n_inner": 20},
        {"activation_function": "relu"},
        {"scale_attn_by_inverse_layer_idx": True},
        {"eos_token_id": [1, 2]},
        {"layer_norm_epsilon": 1e-3},
    ],
    ids=str,
)
def test_settings_that_change_the_function_come_back(settings: dict[str, Any]) -> None:
    applied = search("supermask", **settings)
    assert torch.equal(logits(Ticket.of(applied).model()), logits(applied.model))


def test_buffers_that_are_not_saved_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface/transformers #48892 and others: they came back as garbage."""

    class WithBuffer(GPT2LMHeadModel):
        def __init__(self, config: GPT2Config) -> None:
            super().__init__(config)
            self.register_buffer("factor", torch.arange(24.0), persistent=False)

        def forward(self, **inputs: Any) -> Any:
            return (super().forward(**inputs)[0] * self.factor,)

    WithBuffer.__qualname__ = "GPT2LMHeadModel"
    monkeypatch.setitem(CLASSES, "GPT2LMHeadModel", WithBuffer)
    applied = apply(WithBuffer(tiny_gpt2().config), "supermask")
    model: Any = Ticket.of(applied).model()
    assert torch.equal(model.factor, torch.arange(24.0))
    assert torch.equal(logits(model), logits(applied.model))


def test_a_subclass_is_only_named() -> None:
    class Mine(GPT2LMHeadModel):
        pass

    assert Architecture.of(Mine(GPT2Config(**SMALL))).library == "module"
    assert Architecture.of(mlp()) == Architecture("module", "Sequential")


def test_an_activation_with_its_own_code_is_refused() -> None:
    with pytest.raises(TicketError, match="activation_function is 'xielu', not one of gelu"):
        Architecture.of(GPT2LMHeadModel(GPT2Config(**SMALL, activation_function="xielu")))


def test_what_is_in_the_configuration_beside_is_left_behind() -> None:
    config = GPT2Config(**SMALL, auto_map={"AutoModel": "evil--evil.Evil"})
    held = Architecture.of(GPT2LMHeadModel(config)).as_json()
    assert "evil" not in str(held)


def test_the_outline_has_shapes_and_no_memory() -> None:
    config = GPT2Config(n_layer=2, n_embd=2**14, n_head=2, vocab_size=2**20, n_positions=2**20)
    with torch.device("meta"):
        architecture = Architecture.of(GPT2LMHeadModel(config))
    outline = architecture.outline(tensors=36, max_weights=2**40)
    assert {parameter.device.type for parameter in outline.parameters()} == {"meta"}
    with pytest.raises(TicketError, match="more than max_weights"):
        architecture.outline(tensors=36, max_weights=2**30)
    with pytest.raises(TicketError, match="at least 24 tensors, but the ticket lists only 20"):
        architecture.outline(tensors=20, max_weights=2**40)
