"""Where do the components lie in a Llama-shaped model?

LLaMA, Mistral, Qwen2, Qwen3 and others share the names. Query, key, value and output are four
matrices; with grouped heads, key and value have fewer rows. The MLP is gated: `mlp.gate` beside
`mlp.up`. Positions are rotations, which hold no weights. Norms scale only. Qwen2 has biases on
query, key and value; Qwen3 norms on query and key. A head is `unembedding`, tied or not.
"""

from __future__ import annotations

from torch import nn
from transformers import LlamaModel, MistralModel, Qwen2Model, Qwen3Model

from untrained.layouts.layout import Layout
from untrained.layouts.table import table

BODIES: tuple[type[nn.Module], ...] = (LlamaModel, MistralModel, Qwen2Model, Qwen3Model)
"""The classes that this layout describes."""

_PARTS = {
    "embedding": "embed_tokens",
    "norm.attention": "layers.*.input_layernorm",
    "query": "layers.*.self_attn.q_proj",
    "norm.query": "layers.*.self_attn.q_norm",
    "key": "layers.*.self_attn.k_proj",
    "norm.key": "layers.*.self_attn.k_norm",
    "value": "layers.*.self_attn.v_proj",
    "output": "layers.*.self_attn.o_proj",
    "norm.mlp": "layers.*.post_attention_layernorm",
    "mlp.gate": "layers.*.mlp.gate_proj",
    "mlp.up": "layers.*.mlp.up_proj",
    "mlp.down": "layers.*.mlp.down_proj",
    "norm.final": "norm",
    "unembedding": "lm_head",
}


def llama(model: nn.Module) -> Layout:
    """Describe any Hugging Face model built around one Llama-shaped body.

    Raises:
        RecipeError: a body with parameters beside these.
    """
    body = next(type(module) for module in model.modules() if isinstance(module, BODIES))
    return table(model, body, "llama", _PARTS)
