"""Where do the components lie in GPT-2?

GPT-2 stores its matrices as `Conv1D`, (in, out), and fuses query, key and value along `out`.
Its own law is N(0, initializer_range), with the projections that write to the residual stream
scaled by 1/sqrt(2 * layers); biases start at 0 and norms at 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn
from transformers import GPT2Model

from untrained.components import Slot
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts.layout import Layout
from untrained.layouts.modules import rest
from untrained.layouts.table import find_body, usual_law


def gpt2(model: nn.Module) -> Layout:
    """Describe any Hugging Face model built around one `GPT2Model`.

    Raises:
        RecipeError: for cross-attention, which this layout does not know.
    """
    prefix, body = find_body(model, GPT2Model)
    config: Any = body.config
    if config.add_cross_attention:
        raise RecipeError("gpt2 with add_cross_attention=True has no layout; use it without")
    slots = [
        *_embeddings(config, prefix),
        *_blocks(config, prefix),
        *_norm(config, f"{prefix}ln_f"),
    ]
    if isinstance(getattr(model, "lm_head", None), nn.Linear):
        slots.append(_table(config, "unembedding", "lm_head.weight", config.vocab_size))
    taken = {slot.parameter for slot in slots}
    heads = (replace(head, own=usual_law(head, model, config)) for head in rest(model, taken))
    return Layout("gpt2", (*slots, *heads))


def _embeddings(config: Any, prefix: str) -> Iterator[Slot]:
    yield _table(config, "embedding", f"{prefix}wte.weight", config.vocab_size)
    yield _table(config, "position", f"{prefix}wpe.weight", config.n_positions)


def _table(config: Any, component: str, parameter: str, rows: int) -> Slot:
    return Slot(
        component=component,
        parameter=parameter,
        shape=(rows, config.n_embd),
        kind="matrix" if component == "unembedding" else "embedding",
        own=Law("normal", config.initializer_range),
    )


def _blocks(config: Any, prefix: str) -> Iterator[Slot]:
    D = config.n_embd
    inner = config.n_inner or 4 * D
    for layer in range(config.n_layer):
        block = f"{prefix}h.{layer}"
        yield from _norm(config, f"{block}.ln_1", "attention", layer)
        for i, component in enumerate(("query", "key", "value")):
            fused = f"{block}.attn.c_attn"
            yield from _linear(config, component, fused, D, D, layer, part=(i * D, (i + 1) * D))
        yield from _linear(config, "output", f"{block}.attn.c_proj", D, D, layer)
        yield from _norm(config, f"{block}.ln_2", "mlp", layer)
        yield from _linear(config, "mlp.up", f"{block}.mlp.c_fc", inner, D, layer)
        yield from _linear(config, "mlp.down", f"{block}.mlp.c_proj", D, inner, layer)


def _linear(
    config: Any,
    component: str,
    module: str,
    out: int,
    inputs: int,
    layer: int,
    part: tuple[int, int] | None = None,
) -> Iterator[Slot]:
    """The weight and the bias of one projection."""
    residual = component in ("output", "mlp.down")
    sd = config.initializer_range / (math.sqrt(2 * config.n_layer) if residual else 1.0)
    yield Slot(
        component=component,
        layer=layer,
        parameter=f"{module}.weight",
        shape=(out, inputs),
        kind="matrix",
        own=Law("normal", sd),
        part=part,
        transposed=True,
        residual=residual,
        head_width=config.n_embd // config.n_head if component in ("query", "key") else None,
    )
    yield Slot(
        component=f"bias.{component}",
        layer=layer,
        parameter=f"{module}.bias",
        shape=(out,),
        kind="bias",
        own=Law("zeros"),
        part=part,
    )


def _norm(
    config: Any, module: str, where: str = "final", layer: int | None = None
) -> Iterator[Slot]:
    for tail, kind, law in (("weight", "vector", "ones"), ("bias", "bias", "zeros")):
        yield Slot(
            component=f"bias.norm.{where}" if kind == "bias" else f"norm.{where}",
            layer=layer,
            parameter=f"{module}.{tail}",
            shape=(config.n_embd,),
            kind=kind,  # type: ignore[arg-type]
            own=Law(law),
        )
