"""An ordinary optimiser searches, and what would search in vain is refused: first the fault."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from frameworks import batch, plain_loop, same, search, step
from models import tiny_gpt2
from untrained.apply import Applied, apply
from untrained.errors import ApplyError


def backward(applied: Applied) -> None:
    applied.model(**batch(0)).loss.backward()


def test_the_state_dict_carries_the_search() -> None:
    whole, first, second = search(), search(), search()
    plain_loop(whole, steps=4)
    saved = plain_loop(first, steps=2).state_dict()
    model = {name: tensor.clone() for name, tensor in first.model.state_dict().items()}
    second.model.load_state_dict(model)
    optimizer = second.optimizer(torch.optim.AdamW, lr=1e-2)
    optimizer.load_state_dict(copy.deepcopy(saved))
    for number in (2, 3):
        step(second, optimizer, batch(number))
    assert same(whole, second)


def test_without_the_latents_the_optimiser_would_go_on_from_other_masks() -> None:
    first, second = search(), search()
    saved = plain_loop(first, steps=6).state_dict()
    bare = {name: saved[name] for name in ("state", "param_groups")}
    # The fault: torch itself takes such a state, while the masks are still the first ones.
    stock = torch.optim.AdamW(
        [{**group, "params": list(group["params"])} for group in
         second.optimizer(torch.optim.AdamW, lr=1e-2).param_groups]
    )  # fmt: skip
    stock.load_state_dict(copy.deepcopy(bare))
    assert first.masks != second.masks
    with pytest.raises(ApplyError, match=r"holds no latents.*applied.optimizer\(\) did not build"):
        second.optimizer(torch.optim.AdamW, lr=1e-2).load_state_dict(bare)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    before = {name: tensor.clone() for name, tensor in applied.state_dict().items()}
    state = copy.deepcopy(optimizer.state_dict())
    role = next(iter(state["untrained"]["latents"]))
    state["untrained"]["latents"][role] = torch.zeros(3)
    with pytest.raises(ApplyError, match=r"is \(3,\) in the state and"):
        optimizer.load_state_dict(state)
    assert all(torch.equal(applied.state_dict()[name], before[name]) for name in before)


def test_a_trainer_clears_its_model_only_so_a_step_uses_gradients_up() -> None:
    ours, trainers = search(), search()
    plain_loop(ours, steps=3)
    optimizer = trainers.optimizer(torch.optim.AdamW, lr=1e-2)
    for number in range(3):
        trainers.model(**batch(number)).loss.backward()
        optimizer.step()
        trainers.model.zero_grad()
    assert same(ours, trainers)


def test_a_copied_optimiser_would_move_copies_and_is_refused() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    # The fault: a copy made behind the guard steps, and no mask moves.
    held = {name: vars(optimizer).pop(name) for name in ("__deepcopy__", "__reduce_ex__")}
    stray = copy.deepcopy(optimizer)
    vars(optimizer).update(held)
    before = applied.masks
    for group in stray.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.randn_like(parameter)
    stray.step()
    assert applied.masks == before
    for copies in (copy.deepcopy, pickle.dumps, copy.copy):
        with pytest.raises(ApplyError, match="would move copies of the scores"):
            copies(optimizer)


def test_a_step_without_any_gradient_is_refused() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    stranger = copy.deepcopy(applied.model)
    stranger(**batch(0)).loss.backward()  # the fault: the copy learns, the search does not
    with pytest.raises(ApplyError, match="no gradient has reached the masked weights"):
        optimizer.step()


class Leaving(nn.Module):
    """Two branches, of which a batch may take one."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor, *, both: bool) -> torch.Tensor:
        return self.left(inputs) + (self.right(inputs) if both else 0.0)


def test_a_mask_without_a_gradient_is_refused_unless_declared() -> None:
    recipe = "left,right = masked(keep=0.5)"
    applied = apply(Leaving(), recipe)
    strict = applied.optimizer(torch.optim.SGD, lr=0.1)
    applied.model(torch.ones(2, 4), both=False).sum().backward()
    with pytest.raises(ApplyError, match=r"reached right \(1 of 2\).*allow_unused=True"):
        strict.step()
    lenient = applied.optimizer(torch.optim.SGD, lr=0.1, allow_unused=True)
    applied.model(torch.ones(2, 4), both=False).sum().backward()
    lenient.step()


def test_a_scaler_would_leave_scaled_gradients_and_is_refused() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.SGD, lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = applied.model(**batch(0)).loss
    scaler.scale(loss).backward()
    with pytest.raises(ApplyError, match=r"GradScaler.*bf16.*applied.pull\(\) before"):
        scaler.step(optimizer)


def test_pulled_before_unscaling_a_scaler_is_right() -> None:
    scaled, plain = search(), search()
    for applied, factor in ((scaled, 1024.0), (plain, 1.0)):
        optimizer = applied.optimizer(torch.optim.SGD, lr=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=factor)
        scaler.scale(applied.model(**batch(0)).loss).backward()
        applied.pull()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
    one, two = scaled.state_dict(), plain.state_dict()
    assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)
    assert scaled.masks == plain.masks


def test_foreign_values_written_into_the_model_are_noticed_at_the_next_step() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    dense = tiny_gpt2().state_dict()
    applied.model.load_state_dict(dense)
    backward(applied)
    # The fault: this gradient is that of weights which the next push throws away.
    with pytest.raises(ApplyError, match="something wrote to it"):
        optimizer.step()


def test_its_own_values_written_into_the_model_are_taken() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    applied.model.load_state_dict({n: t.clone() for n, t in applied.model.state_dict().items()})
    backward(applied)
    optimizer.step()


def test_an_optimiser_in_backward_holds_the_masked_weight_and_is_refused() -> None:
    applied = search()
    weight = applied.model.transformer.h[0].mlp.c_fc.weight
    inner = torch.optim.SGD([weight], lr=0.1)

    def hook(_: torch.Tensor) -> None:
        inner.step()

    weight.register_post_accumulate_grad_hook(hook)
    with pytest.raises(ApplyError, match=r"SGD holds transformer.h.0.mlp.c_fc.weight"):
        backward(applied)


@pytest.mark.parametrize(
    ("make", "lr"), [(torch.optim.SGD, 1.0), (torch.optim.Adam, 0.03), (torch.optim.RMSprop, 0.01)]
)
def test_any_optimiser_will_do(make: Any, lr: float) -> None:
    applied = search()
    before = applied.masks
    optimizer = applied.optimizer(make, lr=lr)
    losses = [step(applied, optimizer, batch(0)) for _ in range(15)]
    assert losses[-1] < losses[0]
    assert applied.masks != before
    applied.check_intact()


def test_a_frozen_weight_that_would_be_trained_is_refused() -> None:
    applied = apply(tiny_gpt2(), "query = masked(keep=0.5); mlp = frozen(init=as_is)")
    applied.model.requires_grad_(True)  # the fault: it is now among what is trained
    assert "transformer.h.0.mlp.c_fc.weight" in applied.trained()
    with pytest.raises(ApplyError, match="c_fc.weight is frozen.*but somebody set requires_grad"):
        applied.optimizer(torch.optim.SGD, lr=0.1)
