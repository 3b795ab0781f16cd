"""A model under a recipe is an ordinary model: each framework against the plain loop."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from frameworks import batch, plain_loop, same, search
from frameworks import step as one_step
from models import tiny_gpt2
from untrained.apply import Applied, apply
from untrained.errors import ApplyError
from untrained.ticket import Ticket


def score_gradients(applied: Applied) -> dict[str, Tensor]:
    """By autograd through a functional call on W * (s + (mask - s)), apart from any engine."""
    scores, weights = {}, {}
    parameters = {n: p.detach().clone() for n, p in applied.model.named_parameters()}
    for part in applied.engine.masked:
        assert part.latent is not None
        assert part.weights is not None
        assert part.mask is not None
        s = part.latent.detach().clone().requires_grad_()
        through = part.mask.float() - s.abs().detach() + s.abs()
        scores[part.slot.role] = s
        weights[part.slot.parameter, part.slot.part] = part.weights * through
    for (name, place), value in weights.items():
        if place is None:
            parameters[name] = value
        else:
            start, stop = place
            held = parameters[name]
            parameters[name] = torch.cat([held[..., :start], value, held[..., stop:]], dim=-1)
    loss = functional_call(applied.model, parameters, kwargs=batch(0)).loss
    grads = torch.autograd.grad(loss, list(scores.values()))
    return dict(zip(scores, grads, strict=True))


def pulled(applied: Applied, step: Callable[[], Tensor]) -> dict[str, Tensor]:
    """The gradients of the scores after one backward pass."""
    step().backward()
    applied.pull()
    return {role: applied.latents()[role].grad for role in applied.scores}  # type: ignore[misc]


def close(first: dict[str, Tensor], second: dict[str, Tensor], atol: float = 1e-6) -> bool:
    return first.keys() == second.keys() and all(
        torch.allclose(first[name], second[name], atol=atol) for name in first
    )


def test_the_plain_loop_is_right() -> None:
    applied = search()
    expected = score_gradients(applied)
    assert close(pulled(applied, lambda: applied.model(**batch(0)).loss), expected)


def test_two_forwards_in_one_step_add_up() -> None:
    applied = search()
    expected = {role: 2 * grad for role, grad in score_gradients(applied).items()}

    def twice() -> Tensor:
        return applied.model(**batch(0)).loss + applied.model(**batch(0)).loss

    assert close(pulled(applied, twice), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    applied = search()
    expected = score_gradients(applied)
    model = applied.model  # transformers 5.20 gave the method another name
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})
    model.train()
    assert close(pulled(applied, lambda: applied.model(**batch(0)).loss), expected)


NEEDS_A_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[NEEDS_A_COMPILER, pytest.mark.slow])]
)
def test_compiled_whole_it_takes_new_masks_without_a_new_graph(backend: str) -> None:
    compiled, plain = search(), search()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.compile(compiled.model, fullgraph=True, backend=backend)
    optimizer = compiled.optimizer(torch.optim.AdamW, lr=1e-2)
    for step in range(5):
        inputs = batch(step)
        logits = model(inputs["input_ids"]).logits[:, :-1]
        cross_entropy(logits.flatten(0, 1), inputs["labels"][:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    plain_loop(plain, steps=5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert close(compiled.state_dict(), plain.state_dict(), atol=1e-3)
    compiled.check_intact()


def test_several_steps_in_one_autocast_context_see_new_masks() -> None:
    inside, outside = search(), search()
    optimizer = inside.optimizer(torch.optim.AdamW, lr=1e-2)
    with torch.autocast("cpu", torch.bfloat16):
        for step in range(4):
            inside.model(**batch(step)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer = outside.optimizer(torch.optim.AdamW, lr=1e-2)
    for step in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            loss = outside.model(**batch(step)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert same(inside, outside)


def test_an_autocast_cache_would_serve_the_weights_of_before_a_step() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        first = torch.ones(1, 4) @ weight
        with torch.no_grad():
            weight.zero_()
        assert torch.equal(torch.ones(1, 4) @ weight, first)  # the fault
        torch.clear_autocast_cache()
        assert not (torch.ones(1, 4) @ weight).any()


def test_accelerate_prepares_steps_and_schedules_it() -> None:
    prepared, plain = search(), search()
    accelerator = Accelerator(cpu=True)
    optimizer = prepared.optimizer(torch.optim.AdamW, lr=1e-2)
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, schedule = accelerator.prepare(prepared.model, optimizer, schedule)
    for step in range(4):
        accelerator.backward(model(**batch(step)).loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    theirs = plain.optimizer(torch.optim.AdamW, lr=1e-2)
    for step in range(4):
        theirs.param_groups[0]["lr"] = theirs.param_groups[1]["lr"] = 1e-2 / (1 + step)
        one_step(plain, theirs, batch(step))
    assert same(prepared, plain)


def test_accelerate_accumulates_as_the_plain_loop_does() -> None:
    prepared, plain = search(), search()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = prepared.optimizer(torch.optim.AdamW, lr=1e-2)
    model, optimizer = accelerator.prepare(prepared.model, optimizer)
    for step in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch(step)).loss)
            optimizer.step()
            optimizer.zero_grad()
    plain_loop(plain, steps=2, accumulate=2)
    assert same(prepared, plain)


def test_accelerate_saves_and_loads_the_search(tmp_path: Path) -> None:
    whole = search()
    plain_loop(whole, steps=4)
    for half in range(2):
        applied = search()
        accelerator = Accelerator(cpu=True)
        optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
        model, optimizer = accelerator.prepare(applied.model, optimizer)
        if half:
            accelerator.load_state(str(tmp_path))
        for step in range(2):
            accelerator.backward(model(**batch(2 * half + step)).loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.save_state(str(tmp_path))
    assert same(applied, whole)


def test_averaged_latents_make_a_ticket_and_averaged_weights_do_not() -> None:
    applied = search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=5e-2)
    states, weights = [], AveragedModel(applied.model)
    for step in range(4):
        one_step(applied, optimizer, batch(step))
        states.append({name: tensor.clone() for name, tensor in applied.state_dict().items()})
        weights.update_parameters(applied.model)
    kept = {role: int(mask.sum()) for role, mask in applied.masks.items()}
    mean = {n: torch.stack([state[n] for state in states]).mean(0) for n in states[0]}
    applied.load_state_dict(mean)
    assert {role: int(mask.sum()) for role, mask in applied.masks.items()} == kept
    Ticket.of(applied)
    # The fault: an average of weights under different masks is under no mask of that keep.
    block = weights.module.transformer.h[0].mlp.c_fc.weight
    assert block.count_nonzero() > kept["layers.0.mlp.up"]
    applied.model.load_state_dict(weights.module.state_dict())
    with pytest.raises(ApplyError, match="average and load latents"):
        Ticket.of(applied)


def test_a_pickled_or_saved_model_is_a_plain_dense_one() -> None:
    applied = search()
    tokens = batch(0)["input_ids"]
    expected = applied.model.eval()(tokens).logits
    buffer = io.BytesIO()
    torch.save(applied.model, buffer)
    buffer.seek(0)
    for plain in (
        copy.deepcopy(applied.model),
        pickle.loads(pickle.dumps(applied.model)),
        torch.load(buffer, weights_only=False),
    ):
        assert torch.equal(plain(tokens).logits, expected)
        torch.optim.SGD(plain.parameters(), lr=0.1)


def test_the_weights_go_to_a_plain_model_by_its_state_dict() -> None:
    applied, plain = search(), tiny_gpt2().eval()
    plain.load_state_dict(applied.model.state_dict())
    tokens = batch(0)["input_ids"]
    assert torch.equal(plain(tokens).logits, applied.model.eval()(tokens).logits)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_the_latents_follow_the_model_to_another_device() -> None:
    applied, plain = search(), search()
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    applied.model.to("cuda")
    inputs = {name: tensor.cuda() for name, tensor in batch(0).items()}
    applied.model(**inputs).loss.backward()
    optimizer.step()
    plain_loop(plain, steps=1)
    applied.model.to("cpu")
    applied.check_intact()
    assert close(applied.state_dict(), plain.state_dict(), atol=1e-3)


@pytest.mark.parametrize(
    "wrap", [torch.nn.DataParallel, lambda model: torch.compile(model, backend="eager")]
)
def test_applying_to_a_wrapper_is_refused(
    wrap: Callable[[torch.nn.Module], torch.nn.Module],
) -> None:
    with pytest.raises(ApplyError, match="is a wrapper around a model; apply"):
        apply(wrap(tiny_gpt2()), "mlp = masked(keep=0.5)")
