"""Where do the components lie in BERT and RoBERTa?

Both share the names of the body. `embedding` is the table of tokens together with that of token
types, `embedding.type`. Of a head for masked tokens, `transform` is the layer before the decoder;
the decoder is `unembedding`, tied to the table of tokens unless the configuration unties it, and
its bias has two names. The pooler is `pooler`; a classifier is called after its module.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import BertModel, RobertaModel

from untrained.errors import RecipeError
from untrained.layouts.layout import Layout
from untrained.layouts.table import table

BODIES: tuple[type[nn.Module], ...] = (BertModel, RobertaModel)
"""The classes that this layout describes."""

_BODY = {
    "embedding": "embeddings.word_embeddings",
    "embedding.type": "embeddings.token_type_embeddings",
    "position": "embeddings.position_embeddings",
    "norm.embedding": "embeddings.LayerNorm",
    "query": "encoder.layer.*.attention.self.query",
    "key": "encoder.layer.*.attention.self.key",
    "value": "encoder.layer.*.attention.self.value",
    "output": "encoder.layer.*.attention.output.dense",
    "norm.attention": "encoder.layer.*.attention.output.LayerNorm",
    "mlp.up": "encoder.layer.*.intermediate.dense",
    "mlp.down": "encoder.layer.*.output.dense",
    "norm.mlp": "encoder.layer.*.output.LayerNorm",
    "pooler": "pooler.dense",
}

_HEAD = {
    "transform": ("cls.predictions.transform.dense", "lm_head.dense"),
    "norm.transform": ("cls.predictions.transform.LayerNorm", "lm_head.layer_norm"),
    "unembedding": ("cls.predictions.decoder", "lm_head.decoder"),
}

_BIASES = ("cls.predictions.bias", "lm_head.bias")
"""The second name of the decoder's bias; a tensor that nothing reads if the head is untied."""


def bert(model: nn.Module) -> Layout:
    """Describe any Hugging Face model built around one `BertModel` or `RobertaModel`.

    Raises:
        RecipeError: for cross-attention, which this layout does not know.
    """
    body: Any = next(module for module in model.modules() if isinstance(module, BODIES))
    if body.config.add_cross_attention:
        raise RecipeError("bert with add_cross_attention=True has no layout; use it without")
    tied = body.config.tie_word_embeddings
    unembedding = (*_HEAD["unembedding"], *(_BIASES if tied else ()))
    return table(model, type(body), "bert", _BODY | _HEAD | {"unembedding": unembedding})
