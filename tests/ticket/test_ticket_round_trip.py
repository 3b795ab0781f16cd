"""A ticket becomes the model that it was taken of, bit for bit."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from models import D, V, mlp, tiny_gpt2
from tickets import TOKENS, logits, search
from untrained.apply import Applied, apply
from untrained.engine import guarded
from untrained.errors import ApplyError, TicketError
from untrained.layouts import Layout, layout_of, modules
from untrained.masks import Mask
from untrained.search.controls import random_mask, redrawn_weights
from untrained.tasks.tokenizer import byte_tokenizer
from untrained.ticket import Ticket

RECIPES = {
    "masked": "supermask",
    "fused": "query = frozen; key = masked(keep=0.3); value = trained",
    "frozen": "all = frozen",
    "trained": "all = trained",
    "as_is": (
        "all = trained(init=as_is); query = frozen(init=as_is); mlp = masked(keep=0.4, init=as_is)"
    ),
    "fixed": "query,mlp = frozen(keep=0.25); key = frozen(keep=0.5, init=as_is)",
    "shared": "one_layer",
    "global": "query,key,value,output,mlp = masked(keep=0.2, scope=global)",
    "erk": "query,key,value,output,mlp = masked(keep=0.2, scope=erk, by=value)",
}


def moved(applied: Applied) -> Applied:
    """The search after two steps, so that nothing is what the seed gave."""
    if not applied.latents():
        return applied
    optimizer = applied.optimizer(torch.optim.SGD, lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        applied.model(input_ids=TOKENS)[0].float().square().mean().backward()
        optimizer.step()
    return applied


def reloaded(ticket: Ticket, path: Path) -> Ticket:
    ticket.save(path)
    return Ticket.load(path)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("rules", RECIPES.values(), ids=RECIPES.keys())
def test_the_logits_are_bit_identical(rules: str, tied: bool, tmp_path: Path) -> None:
    applied = moved(search(rules, seed=3, tie_word_embeddings=tied))
    model = reloaded(Ticket.of(applied), tmp_path / "x.ticket").model()
    assert type(model) is type(applied.model)
    assert torch.equal(logits(model), logits(applied.model))
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in applied.model.named_parameters()]
    assert (model.lm_head.weight is model.transformer.wte.weight) is tied


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rules", ["masked", "fused", "as_is", "fixed"])
def test_half_precision_models_come_back_in_their_type(
    rules: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    applied = moved(apply(tiny_gpt2().to(dtype), RECIPES[rules], seed=1))
    model = reloaded(Ticket.of(applied), tmp_path / "x.ticket").model()
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert torch.equal(logits(model), logits(applied.model))


def test_norms_may_be_of_another_type(tmp_path: Path) -> None:
    plain = tiny_gpt2().to(torch.bfloat16)
    plain.transformer.ln_f.float()
    model = reloaded(Ticket.of(apply(plain, "supermask")), tmp_path / "x.ticket").model()
    assert model.transformer.ln_f.weight.dtype == torch.float32
    assert model.transformer.wte.weight.dtype == torch.bfloat16


def test_a_fresh_process_gives_the_same_logits(tmp_path: Path) -> None:
    for name, rules in RECIPES.items():
        applied = moved(search(rules, seed=5))
        ticket = Ticket.of(applied)
        ticket.save(tmp_path / f"{name}.ticket")
        ticket.write_probe(applied.model, tmp_path / f"{name}.probe")
    code = (
        "import sys; from untrained.ticket import Ticket\n"
        "for p in sys.argv[1:]: print(Ticket.load(p + '.ticket').verify(logits=p + '.probe'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / name) for name in RECIPES)],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("every checksum matches; logits (2, 12, 24) bit-identical") == len(
        RECIPES
    )


# --- the model that comes back ------------------------------------------------------------------


def test_the_model_is_free_and_in_eval_mode() -> None:
    applied = search()
    model = Ticket.of(applied).model()
    assert not model.training
    for parameter in model.parameters():
        assert parameter.requires_grad
        assert guarded(parameter) is None
    applied.release()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    optimizer.step()


def test_training_the_model_leaves_the_ticket_as_it_was() -> None:
    ticket = Ticket.of(search("query = frozen"))
    model = ticket.model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert ticket.verify().tensors == 36


def test_rebuilding_draws_nothing_from_the_global_generator() -> None:
    ticket = Ticket.of(search())
    before = torch.get_rng_state()
    ticket.model()
    ticket.verify()
    assert torch.equal(torch.get_rng_state(), before)


def test_taking_a_ticket_changes_nothing() -> None:
    applied = moved(search(RECIPES["fused"]))
    before = copy.deepcopy(applied.model.state_dict())
    latents = {name: (id(t), t.clone()) for name, t in applied.latents().items()}
    training = applied.model.training
    Ticket.of(applied)
    assert all(torch.equal(before[n], t) for n, t in applied.model.state_dict().items())
    for name, tensor in applied.latents().items():
        assert id(tensor) == latents[name][0]
        assert torch.equal(tensor, latents[name][1])
    assert applied.model.training is training


def test_a_ticket_does_not_follow_the_search() -> None:
    applied = search("query = frozen")
    ticket = Ticket.of(applied)
    moved(applied)
    assert ticket.verify().weights == 7168
    assert ticket.trained["layers.0.key"].shape == (D, D)


# --- what is refused ------------------------------------------------------------------------------


def test_a_written_weight_is_refused() -> None:
    applied = search()
    with torch.no_grad():
        applied.model.transformer.wte.weight[0, 0] = 9.0
    with pytest.raises(ApplyError, match="something wrote"):
        Ticket.of(applied)


def test_weights_of_another_seed_are_refused() -> None:
    applied = search()
    with redrawn_weights(applied, seed=1), pytest.raises(TicketError, match="end a control"):
        Ticket.of(applied)
    Ticket.of(applied)


def test_the_masks_in_force_are_those_of_the_ticket(tmp_path: Path) -> None:
    applied = search("query = masked(keep=0.5)")
    roles = {role: tuple(mask.shape) for role, mask in applied.masks.items()}
    chosen = Mask.random(roles, dict(zip(roles, (10, 200), strict=True)), seed=1)
    applied.engine.wear(chosen)
    ticket = reloaded(Ticket.of(applied), tmp_path / "x.ticket")
    assert list(ticket.masks.counts.values()) == [10, 200]
    assert torch.equal(logits(ticket.model()), logits(applied.model))


def test_a_control_can_be_a_ticket() -> None:
    applied = search()
    with random_mask(applied, seed=1):
        ticket = Ticket.of(applied)
        assert torch.equal(logits(ticket.model()), logits(applied.model))
    assert ticket.masks != applied.masks


def test_a_layout_that_has_no_name_is_refused() -> None:
    model = tiny_gpt2()
    layout = Layout("mine", layout_of(model).slots)
    with pytest.raises(TicketError, match=r"layout 'mine' cannot be found again by its name"):
        Ticket.of(apply(model, "supermask", layout=layout))


def test_a_model_that_is_not_its_configuration_is_refused() -> None:
    model = tiny_gpt2()
    model.transformer.h[0].extra = nn.Linear(2, 2)
    with pytest.raises(TicketError, match=r"the ticket holds a .*extra"):
        Ticket.of(apply(model, ""))


# --- any module -----------------------------------------------------------------------------------


class Net(nn.Module):
    """Two blocks with normalisation, which has buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(3, 3, 3), nn.BatchNorm1d(3)) for _ in range(2)
        )
        self.head = nn.Linear(3, 2)
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x.mean(-1)) * self.scratch


PATTERNS = {"conv": "blocks.*.0", "norm": "blocks.*.1"}


def network() -> Applied:
    torch.manual_seed(0)
    net = Net()
    layout = modules(net, PATTERNS)
    applied = apply(net, "conv = masked(keep=0.5, share=layers); head = trained", layout=layout)
    applied.model(torch.randn(8, 3, 9))  # moves the running statistics
    return applied


def test_a_module_comes_back_with_its_buffers(tmp_path: Path) -> None:
    applied = network()
    ticket = reloaded(Ticket.of(applied), tmp_path / "x.ticket")
    skeleton = Net()
    assert ticket.model(skeleton) is skeleton
    x = torch.randn(4, 3, 9)
    assert torch.equal(skeleton(x), applied.model.eval()(x))
    assert int(skeleton.blocks[0][1].num_batches_tracked) == 1
    assert ticket.verify(skeleton=Net()).tensors == 10


def test_a_skeleton_may_lie_on_the_meta_device() -> None:
    applied = network()
    with torch.device("meta"):
        skeleton = Net()
    skeleton.scratch = torch.ones(2)
    model = Ticket.of(applied).model(skeleton)
    x = torch.randn(4, 3, 9)
    assert torch.equal(model(x), applied.model.eval()(x))


def test_the_probe_of_a_module_takes_any_input(tmp_path: Path) -> None:
    applied, path = network(), tmp_path / "probe"
    ticket = Ticket.of(applied)
    ticket.write_probe(applied.model, path, input_ids=torch.randn(4, 3, 9))
    assert "logits (4, 2) bit-identical" in str(ticket.verify(logits=path, skeleton=Net()))


def test_a_module_needs_its_skeleton() -> None:
    ticket = Ticket.of(network())
    with pytest.raises(TicketError, match=r"only names Net \(module\); pass an instance"):
        ticket.model()
    with pytest.raises(TicketError, match=r"is of Net \(module\), the skeleton is Sequential"):
        ticket.model(mlp())


def test_another_module_of_that_name_is_refused() -> None:
    ticket = Ticket.of(apply(mlp(), "0 = masked(keep=0.5)"))
    with pytest.raises(TicketError, match=r"checksum of 0 is \(8, 6\), the model has \(4, 6\)"):
        ticket.model(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)))


def test_a_skeleton_under_a_search_is_refused() -> None:
    ticket = Ticket.of(apply(mlp(), "0 = masked(keep=0.5)"))
    held = apply(mlp(), "0 = masked(keep=0.5)")
    with pytest.raises(TicketError, match="belongs to a search"):
        ticket.model(held.model)


def test_a_model_of_its_own_needs_no_skeleton() -> None:
    with pytest.raises(TicketError, match="leave it out"):
        Ticket.of(search()).model(tiny_gpt2())


def test_tied_modules_stay_tied() -> None:
    def tied() -> nn.Sequential:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        net[1].weight = net[0].weight
        return net

    applied = apply(tied(), "0,1 = masked(keep=0.5)")
    with torch.device("meta"):
        hollow = tied()
    for skeleton in (tied(), hollow):
        model = Ticket.of(applied).model(skeleton)
        assert torch.equal(model[0].weight, applied.model[0].weight)
        assert torch.equal(model[1].weight, applied.model[0].weight)


# --- what is beside the weights -------------------------------------------------------------------


def test_tokenizer_and_metadata_come_back(tmp_path: Path) -> None:
    metadata = {"bits": 2.5, "steps": 10, "data": "sotu é\n", "done": True, "note": None}
    ticket = Ticket.of(search(), tokenizer=byte_tokenizer(), metadata=metadata)
    again = reloaded(ticket, tmp_path / "x.ticket")
    assert again.metadata == metadata
    assert again.read_tokenizer() == byte_tokenizer()
    assert Ticket.of(search(), tokenizer=again.tokenizer).tokenizer == again.tokenizer


def test_a_ticket_without_tokenizer_says_so() -> None:
    with pytest.raises(TicketError, match="holds no tokenizer"):
        Ticket.of(search()).read_tokenizer()


def test_recipe_seed_and_generator_come_back(tmp_path: Path) -> None:
    applied = search(RECIPES["fused"], seed=2**64 - 1)
    again = reloaded(Ticket.of(applied), tmp_path / "x.ticket")
    assert (again.recipe, again.seed, again.generator) == (applied.recipe, applied.seed, 1)
    assert again.masks == applied.masks


def test_a_printed_ticket_says_what_it_holds() -> None:
    text = str(Ticket.of(search()))
    assert "GPT2LMHeadModel (transformers), seed 0, generator 1: all = masked" in text
    assert "6,720 masked (3,360 kept)" in text
    assert "times the ticket" in text
    assert "Net (module)" in str(Ticket.of(network()))
    assert V == 24
