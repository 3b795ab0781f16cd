"""Where do the components lie in Marian?

An encoder and a decoder, each a stack of its own: `encoder.query`, `decoder.query`. The decoder's
attention to the encoder is `decoder.cross.query` and so on, which a bare `query` does not name.
With one vocabulary there is one `embedding`, tied to `unembedding`; with two, `encoder.embedding`
and `decoder.embedding`, the latter tied. Positions are sinusoids that the model computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import MarianModel

from untrained.errors import RecipeError
from untrained.layouts.layout import Fixed, Layout
from untrained.layouts.table import find_body, table

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def marian(model: nn.Module) -> Layout:
    """Describe any Hugging Face model built around one `MarianModel`.

    Raises:
        RecipeError: a shared embedding that nothing is tied to, so that nothing reads it.
    """
    prefix, body = find_body(model, MarianModel)
    config: Any = body.config
    if config.share_encoder_decoder_embeddings and not config.tie_word_embeddings:
        raise RecipeError(
            "marian with share_encoder_decoder_embeddings=True and tie_word_embeddings=False has "
            "an embedding that nothing reads; set share_encoder_decoder_embeddings=False"
        )
    parts = _embeddings(config.share_encoder_decoder_embeddings)
    parts |= _stack("encoder") | _stack("decoder") | {"unembedding": "lm_head"}
    fixed = tuple(_positions(body, prefix))
    return table(model, MarianModel, "marian", parts, fixed=fixed)


def _embeddings(shared: bool) -> dict[str, str | tuple[str, ...]]:
    """The tables of tokens: one under three names, or one a stack."""
    if shared:
        return {"embedding": ("shared", "encoder.embed_tokens", "decoder.embed_tokens")}
    return {f"{stack}.embedding": f"{stack}.embed_tokens" for stack in ("encoder", "decoder")}


def _stack(stack: str) -> dict[str, str | tuple[str, ...]]:
    """The parts of every layer of a stack."""
    parts = {component: f"self_attn.{module}" for component, module in _ATTENTION.items()}
    parts |= {"norm.attention": "self_attn_layer_norm"}
    if stack == "decoder":
        parts |= {f"cross.{part}": f"encoder_attn.{module}" for part, module in _ATTENTION.items()}
        parts |= {"norm.cross": "encoder_attn_layer_norm"}
    parts |= {"mlp.up": "fc1", "mlp.down": "fc2", "norm.mlp": "final_layer_norm"}
    return {f"{stack}.{part}": f"{stack}.layers.*.{module}" for part, module in parts.items()}


def _positions(body: Any, prefix: str) -> Iterator[Fixed]:
    """The sinusoids of each stack, which no weight enters."""
    for stack in ("encoder", "decoder"):
        yield Fixed(
            name=f"{stack}.position",
            parameter=f"{prefix}{stack}.embed_positions.weight",
            shape=(body.config.max_position_embeddings, body.config.d_model),
            compute=getattr(body, stack).embed_positions.create_weight,
        )
