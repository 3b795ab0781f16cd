"""Does the model compute with the tensor that a mask lies on?

Fused and fast paths of a framework can read a weight behind a module's back, or not at all. So
one mask bit of every masked tensor is flipped, the one that the output is most sensitive to, and
the output must change, in train mode and in eval mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from untrained.engine import Effective, Engine, Part
from untrained.errors import ApplyError
from untrained.layouts.inputs import longest_input, with_decoder_input
from untrained.random import draw


def check_liveness(engine: Engine, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> int:
    """Flip one mask bit of every masked tensor; returns how many tensors were checked.

    Raises:
        ApplyError: a tensor whose mask the model ignores.
    """
    model, masked = engine.model, engine.masked
    if not masked:
        return 0
    if not args and not inputs:
        inputs = _made_up_ids(model)
    with _same_buffers(model):
        for mode in ("train", "eval"):
            model.train(mode == "train")
            gradients = _gradients(engine, args, inputs)
            before = _output(model, args, inputs)
            for tensor, gradient in zip(engine.tensors, gradients, strict=True):
                for part in filter(lambda part: part.masked, tensor.parts):
                    changed = _flip(engine, tensor, part, gradient, args, inputs, before)
                    _require(changed, part, mode)
    return len(masked)


def _require(changed: bool, part: Part, mode: str) -> None:
    if not changed:
        raise ApplyError(
            f"{part.slot.parameter} ({part.slot.role}) is masked, but flipping a bit of its mask "
            f"does not change the output in {mode} mode: the model does not compute with it, or "
            "this batch does not reach it. Give a batch that does, or leave it out of the recipe"
        )


def _flip(
    engine: Engine,
    tensor: Effective,
    part: Part,
    gradient: Tensor | None,
    args: tuple[Any, ...],
    inputs: Mapping[str, Any],
    before: Tensor,
) -> bool:
    """Whether flipping the most sensitive bit of one mask changes the output."""
    if gradient is None:
        return False
    assert part.weights is not None and part.mask is not None
    sensitivity = (part.slot.stored(gradient).float() * part.weights).abs()
    place = torch.unravel_index(sensitivity.argmax(), sensitivity.shape)
    view = part.slot.stored(tensor.parameter.detach())
    held = view[place].clone()
    view[place] = 0 if part.mask[place] else part.weights[place]
    try:
        return not torch.equal(_output(engine.model, args, inputs), before)
    finally:
        view[place] = held


def _gradients(
    engine: Engine, args: tuple[Any, ...], inputs: Mapping[str, Any]
) -> tuple[Tensor | None, ...]:
    """The gradient of a fixed random projection of the output with respect to every E."""
    with torch.enable_grad(), _same_dropout():
        output = _tensor(engine.model(*args, **inputs)).float()
        if not output.requires_grad:
            return (None,) * len(engine.tensors)
        weights = draw(0, "liveness", tuple(output.shape), "signed_constant").to(output.device)
        parameters = [tensor.parameter for tensor in engine.tensors]
        return torch.autograd.grad((output * weights).sum(), parameters, allow_unused=True)


@torch.no_grad()
def _output(model: nn.Module, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> Tensor:
    with _same_dropout():
        return _tensor(model(*args, **inputs)).clone()


@contextmanager
def _same_dropout() -> Iterator[None]:
    """The same dropout in every forward pass, and the caller's random state left alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@contextmanager
def _same_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics and the mode are left as they were."""
    training = model.training
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        model.train(training)
        for buffer, held in buffers:
            buffer.copy_(held)


_OUTPUTS = ("last_hidden_state", "pooler_output")


def _tensor(output: Any) -> Tensor:
    """All logits of a Hugging Face output, or what its body gives; the first tensor of any other.

    What an encoder gives beside is left out: a decoder that ignores it has to be noticed.
    """
    named = output if isinstance(output, Mapping) else {}
    chosen = [k for k in named if k.endswith("logits")] or [k for k in named if k in _OUTPUTS]
    tensors = [named[key] for key in chosen if isinstance(named[key], Tensor)]
    if tensors:
        return torch.cat([tensor.flatten() for tensor in tensors])
    found = getattr(output, "logits", output)
    while not isinstance(found, Tensor):
        found = next(iter(found.values() if isinstance(found, Mapping) else found))
    return found


def _made_up_ids(model: nn.Module) -> dict[str, Tensor]:
    """A batch of token ids for a language model, with no token twice."""
    config: Any = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary is None:
        raise ApplyError(f"{type(model).__name__} takes no token ids; give check_liveness a batch")
    length = min(vocabulary, longest_input(model) or 16, 16)
    device = next(model.parameters()).device
    return with_decoder_input(model, torch.arange(length, device=device)[None])
