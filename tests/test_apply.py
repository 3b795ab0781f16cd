"""What `apply` makes of a model, and what is learned beside it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from models import LAYERS, D, V, mlp, tiny_gpt2
from untrained.apply import Applied, apply
from untrained.errors import ApplyError, RecipeError
from untrained.layouts import modules
from untrained.random import draw
from untrained.states import Frozen, Masked, Trained

SUPERMASK = "supermask"
MATRICES = ["query", "key", "value", "output", "mlp.up", "mlp.down"]


def loss_of(model: nn.Module) -> Tensor:
    tokens = torch.arange(20).reshape(2, 10) % V
    logits = model(input_ids=tokens).logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def step(applied: Applied, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss = loss_of(applied.model)
    loss.backward()
    optimizer.step()
    return loss.item()


# --- values -------------------------------------------------------------------------------------


def test_every_value_comes_from_the_seed() -> None:
    torch.manual_seed(1)
    one = apply(tiny_gpt2(), SUPERMASK, seed=5).model.state_dict()
    torch.manual_seed(2)
    two = apply(tiny_gpt2(), SUPERMASK, seed=5).model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_another_seed_gives_another_model() -> None:
    one, two = (apply(tiny_gpt2(), "", seed=seed).model.transformer.wte.weight for seed in (0, 1))
    assert not torch.equal(one, two)


def test_a_weight_is_drawn_by_its_role_in_logical_order() -> None:
    model = apply(tiny_gpt2(), "key = frozen(init=kaiming_uniform)", seed=3).model
    fused = model.transformer.h[1].attn.c_attn.weight
    drawn = draw(3, "layers.1.key/weights", (D, D), "kaiming_uniform")
    assert torch.equal(fused[:, D : 2 * D].T, drawn)


def test_the_supermask_recipe_is_signed_constants_under_masks() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    held = applied.model.transformer.h[0].mlp.c_proj.weight.detach()
    constant = 1 / math.sqrt(4 * D * 0.5)
    assert held.count_nonzero() == held.numel() // 2
    torch.testing.assert_close(held[held != 0].abs(), torch.full((held.numel() // 2,), constant))


def test_nothing_is_trained_under_the_supermask_recipe_but_scores() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    assert applied.trained() == {}
    roles = {f"layers.{i}.{c}" for i in range(LAYERS) for c in MATRICES}
    assert set(applied.latents()) == roles | {"embedding", "position"}


def test_values_kept_as_they_are_stay() -> None:
    model = tiny_gpt2()
    before = copy.deepcopy(model.state_dict())
    apply(model, "all = frozen(init=as_is)")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_sharing_gives_every_layer_one_random_tensor_under_its_own_mask() -> None:
    applied = apply(tiny_gpt2(), "query = masked(keep=0.5, share=layers)")
    one, two = applied.engine.masked
    assert one.weights is two.weights
    assert one.mask is not None
    assert two.mask is not None
    assert not torch.equal(one.mask, two.mask)


def test_a_frozen_tensor_may_be_sparse() -> None:
    model = apply(tiny_gpt2(), "mlp = frozen(keep=0.25)").model
    held = model.transformer.h[0].mlp.c_fc.weight
    assert held.count_nonzero() == held.numel() // 4


@pytest.mark.parametrize("state", ["trained", "frozen", "masked(keep=0.5)"])
@pytest.mark.parametrize("component", ["embedding,unembedding", "position", *MATRICES])
def test_every_matrix_can_be_in_every_state(component: str, state: str) -> None:
    applied = apply(tiny_gpt2(), f"{component} = {state}")
    step(applied, applied.optimizer(lr=0.01))
    applied.check_intact()


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_models_both_work(tied: bool) -> None:
    applied = apply(tiny_gpt2(tie_word_embeddings=tied), SUPERMASK)
    assert ("unembedding" in applied.masks) is not tied
    assert (applied.model.lm_head.weight is applied.model.transformer.wte.weight) is tied


def test_half_a_tie_is_refused_with_a_way_out() -> None:
    with pytest.raises(
        RecipeError, match="one tied tensor; give all of it one state: 'embedding,unembe"
    ):
        apply(tiny_gpt2(), "embedding = masked(keep=0.5)")


def test_a_model_has_one_search_at_a_time() -> None:
    model = tiny_gpt2()
    applied = apply(model, SUPERMASK)
    with pytest.raises(ApplyError, match="belongs to a search already"):
        apply(model, SUPERMASK)
    applied.release()
    apply(model, "all = trained")


# --- counts -------------------------------------------------------------------------------------


def test_the_report_counts_every_weight_once() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    masked = LAYERS * 12 * D * D + V * D + 12 * D
    assert f"0 trained, 0 frozen, {masked:,} masked ({masked // 2:,} kept)" in str(applied)


def test_the_report_puts_every_component_under_its_state() -> None:
    text = str(apply(tiny_gpt2(), "query,key = frozen; mlp = masked(keep=0.3)"))
    under: dict[str, set[str]] = {}
    state = ""
    for line in text.splitlines()[2:-1]:
        if line.startswith("  "):
            under[state].add(line.split()[0])
        else:
            state = line
            under[state] = set()
    assert under["frozen"] == {"query", "key", "bias"}
    assert under["masked(keep=0.3)"] == {"mlp.up", "mlp.down"}
    assert {"embedding", "value", "output", "norm"} <= under["trained"]


@pytest.mark.parametrize("keep", [0.01, 0.1, 1 / 3, 0.5, 0.9, 1.0])
def test_exactly_round_keep_n_weights_are_kept_after_every_step(keep: float) -> None:
    applied = apply(tiny_gpt2(), f"mlp.up = masked(keep={keep})")
    optimizer = applied.optimizer(lr=0.1)
    for _ in range(3):
        step(applied, optimizer)
        assert [int(mask.sum()) for mask in applied.masks.values()] == [round(keep * 4 * D * D)] * 2


# --- learning -----------------------------------------------------------------------------------


def test_fifty_steps_lower_the_loss_without_training_a_weight() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    optimizer = applied.optimizer(lr=0.02)
    losses = [step(applied, optimizer) for _ in range(50)]
    assert losses[-1] < losses[0] - 0.5


def test_score_gradients_are_those_of_the_effective_weights() -> None:
    applied = apply(tiny_gpt2(), "query,key,value,output,mlp = masked(keep=0.3)", seed=2)
    named = {n: p.detach().clone().requires_grad_() for n, p in applied.model.named_parameters()}
    tokens = torch.arange(20).reshape(2, 10) % V
    logits = functional_call(applied.model, named, (), {"input_ids": tokens}).logits
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()

    loss_of(applied.model).backward()
    applied.pull()
    for part in applied.engine.masked:
        gradient = named[part.slot.parameter].grad
        assert gradient is not None
        assert part.latent is not None
        assert part.weights is not None
        expected = part.slot.stored(gradient) * part.weights * part.latent.detach().sign()
        assert part.latent.grad is not None
        torch.testing.assert_close(part.latent.grad, expected)


def test_a_fused_tensor_may_differ_by_part() -> None:
    applied = apply(tiny_gpt2(), "query = frozen; key = masked(keep=0.5); value = trained")
    fused = applied.model.transformer.h[0].attn.c_attn.weight
    before = fused.detach().clone()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=0.05, weight_decay=0.5)
    for _ in range(5):
        step(applied, optimizer)
    query, key, value = (before[:, i * D : (i + 1) * D] for i in range(3))
    assert torch.equal(fused[:, :D], query)
    assert not torch.equal(fused[:, D : 2 * D], key)
    assert not torch.equal(fused[:, 2 * D :], value)
    kept = fused[:, D : 2 * D]
    assert kept.count_nonzero() == D * D // 2


def test_frozen_query_survives_weight_decay() -> None:
    applied = apply(tiny_gpt2(), "query = frozen; norm = frozen")
    named = applied.model.named_parameters(remove_duplicate=False)
    before = {name: parameter.detach().clone() for name, parameter in named}
    optimizer = applied.optimizer(torch.optim.AdamW, lr=0.1, weight_decay=1.0)
    for _ in range(3):
        step(applied, optimizer)
    for slot, state in applied.states.items():
        held = slot.stored(applied.model.get_parameter(slot.parameter))
        same = torch.equal(held, slot.stored(before[slot.parameter]))
        assert same == isinstance(state, Frozen), slot.role


def test_a_trained_part_moves_as_it_would_alone() -> None:
    """Fused with a frozen part, a trained part sees the same gradient and the same optimiser."""
    alone = apply(tiny_gpt2(), "all = frozen(init=as_is); value = trained(init=as_is)", seed=0)
    whole = copy.deepcopy(alone.model)
    optimizer = torch.optim.AdamW(
        [whole.transformer.h[0].attn.c_attn.weight.requires_grad_()], lr=0.1
    )
    loss_of(whole).backward()
    optimizer.step()
    step(alone, alone.optimizer(torch.optim.AdamW, lr=0.1))
    one, two = (m.transformer.h[0].attn.c_attn.weight[:, 2 * D :] for m in (alone.model, whole))
    torch.testing.assert_close(one, two)


def test_weight_decay_spares_scores() -> None:
    applied = apply(tiny_gpt2(), "mlp = masked(keep=0.5)")
    optimizer = applied.optimizer(lr=0.1, scores_lr=0.3, weight_decay=0.7)
    decay = {group["lr"]: group["weight_decay"] for group in optimizer.param_groups}
    assert decay == {0.1: 0.7, 0.3: 0.0}


def test_a_skipped_step_leaves_nothing_behind() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    optimizer = applied.optimizer(lr=0.1)
    loss_of(applied.model).backward()
    optimizer.zero_grad()
    assert all(tensor.parameter.grad is None for tensor in applied.engine.tensors)
    assert all(latent.grad is None for latent in applied.latents().values())


def test_pulling_twice_changes_nothing() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    loss_of(applied.model).backward()
    applied.pull()
    first = {n: p.grad.clone() for n, p in applied.latents().items() if p.grad is not None}
    applied.pull()
    assert first
    assert all(torch.equal(p.grad, first[n]) for n, p in applied.latents().items())


def test_gradients_add_up_over_two_backward_passes() -> None:
    once, twice = (apply(tiny_gpt2(), SUPERMASK) for _ in range(2))
    loss_of(once.model).backward()
    for _ in range(2):
        loss_of(twice.model).backward()
        twice.pull()
    once.pull()
    for name, latent in once.latents().items():
        torch.testing.assert_close(2 * latent.grad, twice.latents()[name].grad)


def test_the_state_goes_from_one_search_to_another() -> None:
    one, two = (apply(tiny_gpt2(), SUPERMASK) for _ in range(2))
    step(one, one.optimizer(lr=0.5))
    two.load_state_dict(one.state_dict())
    assert two.masks == one.masks
    two.check_intact()


def test_the_state_of_another_recipe_is_refused() -> None:
    applied = apply(tiny_gpt2(), SUPERMASK)
    with pytest.raises(ApplyError, match="another recipe or model"):
        applied.load_state_dict(apply(tiny_gpt2(), "").state_dict())


def test_a_search_over_nothing_is_refused() -> None:
    with pytest.raises(ApplyError, match="nothing is learned"):
        apply(tiny_gpt2(), "all = frozen").optimizer(lr=0.1)


# --- any module ---------------------------------------------------------------------------------


def test_any_module_can_be_searched() -> None:
    model = mlp()
    applied = apply(model, "0,2 = masked(keep=0.5)", seed=1)
    optimizer = applied.optimizer(torch.optim.SGD, lr=1.0)
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    applied.check_intact()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolutions_keep_exact_counts_in_every_memory_layout(
    memory_format: torch.memory_format,
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3))
    model = model.to(memory_format=memory_format)  # type: ignore[call-overload]
    applied = apply(model, "0,2 = masked(keep=0.3)")
    assert [int(mask.sum()) for mask in applied.masks.values()] == [
        round(0.3 * 135),
        round(0.3 * 90),
    ]
    plain = apply(nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3)), applied.recipe)
    assert plain.masks == applied.masks


def test_patterns_let_a_module_share_over_its_layers() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    layout = modules(model, {"mlp": "*"})
    applied = apply(model, "mlp = masked(keep=0.5, share=layers)", layout=layout)
    assert len({id(part.weights) for part in applied.engine.masked}) == 1


def test_states_are_known_by_slot() -> None:
    applied = apply(tiny_gpt2(), "query = frozen; mlp = masked(keep=0.5)")
    kinds = {type(state) for state in applied.states.values()}
    assert kinds == {Trained, Frozen, Masked}


def test_the_way_out_of_half_a_tie_is_the_state_that_was_asked_for() -> None:
    with pytest.raises(RecipeError, match=r"'embedding,unembedding = masked\(keep=0.5\)'"):
        apply(tiny_gpt2(), "unembedding = masked(keep=0.5)")
