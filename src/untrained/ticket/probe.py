"""Does a rebuilt model give the same logits, bit for bit?

A *probe* is a safetensors file of inputs and the logits that a model gave for them. Bits are
promised for the same build of torch, the same device, number of threads and batch: a sum over
threads rounds by how it was shared out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel

from untrained.errors import TicketError
from untrained.files import write_atomic
from untrained.layouts.inputs import longest_input, with_decoder_input
from untrained.ticket.format import open_file
from untrained.ticket.tensors import same_bits


def write_probe(model: nn.Module, path: Path, *, input_ids: Tensor | None = None) -> None:
    """Write inputs and the logits of a model, in eval mode, for them.

    Args:
        model: any module; left in the mode it was in.
        path: the file to write.
        input_ids: what to feed it, (B, T) tokens for a language model; made up if not given.

    Raises:
        TicketError: the model does not take them, or the file cannot be written.
    """
    inputs = _make_up(model) if input_ids is None else input_ids
    tensors = {"input_ids": inputs.cpu().contiguous(), "logits": _logits(model, inputs)}
    write_atomic(path, safetensors.torch.save(tensors, _here()), error=TicketError)


def check_probe(model: nn.Module, path: Path) -> str:
    """Require that a model gives the logits of a probe, bit for bit; returns what was compared.

    Raises:
        TicketError: other logits, with the largest difference; or a file that is no probe.
    """
    try:
        with open_file(path), safetensors.safe_open(path, "pt") as file:
            there = file.metadata() or {}
            inputs, wanted = file.get_tensor("input_ids"), file.get_tensor("logits")
    except (SafetensorError, ValueError, RuntimeError) as reason:
        raise TicketError(f"{path} is no probe of input_ids and logits: {reason}") from reason
    found = _logits(model, inputs)
    if not same_bits(found, wanted):
        raise TicketError(f"{path}: {_difference(found, wanted, there)}")
    return f"logits {tuple(found.shape)} bit-identical"


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    modes = [(module, module.training) for module in model.modules()]
    fed = inputs.to(next(model.parameters(), inputs).device)
    try:
        model.eval()
        with torch.inference_mode():
            language = isinstance(model, PreTrainedModel)
            output: Any = model(**with_decoder_input(model, fed)) if language else model(fed)
    except (RuntimeError, ValueError, TypeError, IndexError) as reason:
        raise TicketError(
            f"the model does not take inputs of {tuple(inputs.shape)}, {inputs.dtype}: {reason}"
        ) from reason
    finally:
        for module, training in modes:
            module.training = training
    logits: Tensor = output if isinstance(output, Tensor) else output[0]
    return logits.cpu().clone()


def _make_up(model: nn.Module) -> Tensor:
    """Two sequences of tokens, the same on every call."""
    config: Any = getattr(model, "config", None)
    longest = longest_input(model)
    if not hasattr(config, "vocab_size") or longest is None:
        raise TicketError(f"{type(model).__name__} has no vocabulary; pass input_ids")
    vocabulary, length = int(config.vocab_size), min(64, longest)
    return (torch.arange(2 * length) * 7919 % vocabulary).reshape(2, length)


def _here() -> dict[str, str]:
    """What bits depend on, beside the model."""
    return {"torch": torch.__version__, "threads": str(torch.get_num_threads())}


def _difference(found: Tensor, wanted: Tensor, there: dict[str, str]) -> str:
    """How logits differ, and when they may."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return (
            f"the model gives logits of {tuple(found.shape)}, {found.dtype}, the file has "
            f"{tuple(wanted.shape)}, {wanted.dtype}"
        )
    largest = (found.double() - wanted.double()).abs().max().item()
    here = _here()
    sides = ", ".join(
        f"{key} {there.get(key, 'unknown')[:40]} there, {here[key]} here" for key in here
    )
    return (
        f"the logits differ by up to {largest:.3g}; they are the same bits only with the same "
        f"build of torch, threads and batch ({sides})"
    )
