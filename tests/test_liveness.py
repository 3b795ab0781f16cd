"""A mask that the model ignores is found."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.utils import ModelOutput

from families import FAMILIES
from models import V, tiny_gpt2
from untrained.apply import apply
from untrained.errors import ApplyError


class Bypass(nn.Module):
    """Uses a layer in train mode only, as a fast path may."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.bypassed = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bypassed(self.used(x)) if self.training else self.used(x)


def test_every_masked_tensor_of_gpt2_is_alive() -> None:
    applied = apply(tiny_gpt2(), "supermask")
    assert applied.check_liveness() == 2 * 6 + 2


def test_liveness_leaves_the_model_as_it_was() -> None:
    applied = apply(tiny_gpt2(resid_pdrop=0.1), "supermask")
    applied.model.train()
    state = torch.random.get_rng_state()
    applied.check_liveness(input_ids=torch.arange(8)[None] % V)
    applied.check_intact()
    assert applied.model.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is None for p in applied.model.parameters())


class DeafDecoder(nn.Module):
    """Gives out what its encoder says, and does not listen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> ModelOutput:
        return ModelOutput(logits=self.decoder(x), encoder_last_hidden_state=self.encoder(x))


def test_an_encoder_that_the_decoder_ignores_is_named() -> None:
    applied = apply(DeafDecoder(), "encoder,decoder = masked(keep=0.5)")
    with pytest.raises(ApplyError, match=r"encoder.weight .* does not change the output"):
        applied.check_liveness(torch.randn(3, 4))


def test_every_head_of_a_model_is_looked_at() -> None:
    model = FAMILIES["bert-pretraining"].model()
    applied = apply(model, "cls.seq_relationship,pooler = masked(keep=0.5)")
    assert applied.check_liveness() == 2


def test_running_statistics_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    applied = apply(model, "0 = masked(keep=0.5)")
    applied.check_liveness(torch.randn(8, 4))
    assert torch.equal(model[1].running_mean, torch.zeros(4))


def test_a_tensor_ignored_in_eval_mode_is_named() -> None:
    applied = apply(Bypass(), "used,bypassed = masked(keep=0.5)")
    with pytest.raises(ApplyError, match=r"bypassed.weight .* does not change .* in eval mode"):
        applied.check_liveness(torch.randn(3, 4))


def test_a_batch_that_does_not_reach_a_tensor_is_an_error() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    model.forward = lambda x: model["a"](x)  # type: ignore[method-assign]
    with pytest.raises(ApplyError, match="in train mode"):
        apply(model, "b = masked(keep=0.5)").check_liveness(torch.randn(3, 4))


def test_a_model_without_token_ids_needs_a_batch() -> None:
    with pytest.raises(ApplyError, match="give check_liveness a batch"):
        apply(nn.Linear(3, 3), "weight = masked(keep=0.5)").check_liveness()
