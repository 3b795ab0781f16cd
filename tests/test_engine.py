"""Each way in which a model and its search can come apart: first the fault, then the error."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from models import V, sentence, tiny_gpt2
from untrained.apply import apply
from untrained.errors import ApplyError

SUPERMASK = "supermask"


def backward(model: nn.Module) -> None:
    model(**sentence()).loss.backward()


def test_a_foreign_optimiser_would_undo_the_mask_and_is_refused() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    foreign = torch.optim.AdamW(applied.model.parameters(), lr=0.1)
    backward(applied.model)
    with pytest.raises(ApplyError, match=r"AdamW holds transformer.*applied.optimizer\(AdamW"):
        foreign.step()
    applied.check_intact()
    # The fault itself, once the guard is gone: nothing stays pruned.
    applied.release()
    foreign.step()
    assert applied.model.transformer.h[0].mlp.c_fc.weight.count_nonzero() > 0.9 * 4 * 16 * 16


def test_writing_to_an_effective_weight_is_noticed() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    with torch.no_grad():
        applied.model.transformer.h[1].attn.c_proj.weight.add_(1e-3)
    with pytest.raises(ApplyError, match=r"h.1.attn.c_proj.weight is not its random weights times"):
        applied.check_intact()


def test_writing_to_a_frozen_weight_is_noticed() -> None:
    applied = apply(tiny_gpt2(), "mlp = frozen")
    with torch.no_grad():
        applied.model.transformer.h[1].mlp.c_fc.weight.add_(1e-3)
    with pytest.raises(ApplyError, match=r"h.1.mlp.c_fc.weight is frozen, but no longer"):
        applied.check_intact()


def test_a_replaced_parameter_is_noticed() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    optimizer = applied.optimizer(lr=0.1)
    block = applied.model.transformer.h[0].mlp.c_fc
    block.weight = nn.Parameter(block.weight.detach().clone())
    backward(applied.model)
    with pytest.raises(ApplyError, match="no longer the tensor that apply"):
        optimizer.step()


def test_resized_embeddings_are_noticed() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    optimizer = applied.optimizer(lr=0.1)
    applied.model.resize_token_embeddings(V + 8, mean_resizing=False)
    backward(applied.model)
    with pytest.raises(ApplyError, match=r"is Parameter\(32, 16\) float32 and was"):
        optimizer.step()


def test_a_broken_tie_is_noticed() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    applied.model.lm_head.weight = nn.Parameter(applied.model.lm_head.weight.detach().clone())
    with pytest.raises(ApplyError, match="lm_head.weight is no longer"):
        applied.check_intact()


def test_a_cast_after_apply_is_noticed() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    optimizer = applied.optimizer(lr=0.1)
    applied.model.to(torch.bfloat16)
    backward(applied.model)
    with pytest.raises(ApplyError, match=r"bfloat16 and was .* float32"):
        optimizer.step()


def test_a_cast_before_apply_is_fine_and_scores_stay_float32() -> None:
    applied = apply(tiny_gpt2().to(torch.bfloat16), SUPERMASK)
    optimizer = applied.optimizer(lr=0.1)
    backward(applied.model)
    optimizer.step()
    applied.check_intact()
    assert {latent.dtype for latent in applied.latents().values()} == {torch.float32}


def test_a_closure_is_refused() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    losses: list[float] = []

    def closure() -> torch.Tensor:
        loss: torch.Tensor = applied.model(**sentence()).loss
        loss.backward()
        applied.pull()
        losses.append(float(loss.detach()))
        return loss

    # The fault: no push lies between two evaluations, so that all see the same masks.
    torch.optim.LBFGS(applied.latents().values(), lr=1.0, max_iter=4).step(closure)
    assert len(losses) > 1
    assert len(set(losses)) == 1
    with pytest.raises(ApplyError, match="LBFGS"):
        applied.optimizer(torch.optim.LBFGS, lr=0.1)
    optimizer = applied.optimizer(torch.optim.SGD, lr=0.1)
    with pytest.raises(ApplyError, match="closure"):
        optimizer.step(lambda: 0.0)


def test_a_copy_of_the_model_is_a_plain_dense_model() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    dense = copy.deepcopy(applied.model)
    optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
    backward(dense)
    optimizer.step()
    applied.check_intact()


def test_a_copy_of_the_search_goes_its_own_way() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    other = copy.deepcopy(applied)
    optimizer = other.optimizer(lr=0.5)
    backward(other.model)
    optimizer.step()
    other.check_intact()
    applied.check_intact()
    assert other.masks != applied.masks
    with pytest.raises(ApplyError, match="holds transformer"):
        torch.optim.SGD(other.model.parameters(), lr=0.1).step()


def test_the_model_can_be_pickled_and_saved_like_any_other() -> None:
    model = apply(tiny_gpt2(), SUPERMASK).model
    again = pickle.loads(pickle.dumps(model))
    assert all(torch.equal(again.state_dict()[n], t) for n, t in model.state_dict().items())


def test_a_search_that_is_gone_guards_nothing() -> None:
    model = tiny_gpt2()
    applied = apply(model, "mlp = masked(keep=0.5)")
    names = {tensor.names[0] for tensor in applied.engine.tensors}
    applied.release()
    backward(model)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert names


def test_a_sparse_gradient_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 9))
    applied = apply(model, "0 = masked(keep=0.5)")
    model(torch.arange(5)).sum().backward()
    assert model[0].weight.grad.layout is not applied.latents()["0"].layout  # the fault
    with pytest.raises(ApplyError, match="sparse=False"):
        applied.pull()
