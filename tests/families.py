"""Small models of every family, for tests; their counts, by arithmetic from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor

D, V, V2, T, LAYERS, INNER, HEADS, GROUPS = 16, 24, 28, 20, 2, 20, 4, 2
"""Width, tokens, tokens of another language, positions, layers, MLP, heads, key/value heads."""

_PLAIN: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": T,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_GROUPED = _PLAIN | {"num_key_value_heads": GROUPS, "num_labels": 3}
_QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 3}
_MARIAN: dict[str, Any] = {
    "vocab_size": V,
    "d_model": D,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS + 1,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS // 2,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER + 4,
    "max_position_embeddings": T,
    "dropout": 0.0,
    "pad_token_id": V - 1,
    "decoder_start_token_id": V - 1,
    "eos_token_id": 0,
}
_TWO = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V2}


def _decoder(head: int, *, norms: int = 2 * D, biases: int = 0) -> int:
    """A Llama-shaped model; grouped heads have smaller keys and values."""
    wide, narrow = D * D, D * D * GROUPS // HEADS
    return V * D + LAYERS * (2 * wide + 2 * narrow + 3 * D * INNER + norms + biases) + D + head


def _attention() -> int:
    return 4 * (D * D + D)


def _mlp(inner: int) -> int:
    return 2 * D * inner + inner + D


def _encoder(head: int) -> int:
    """BERT: three tables, a norm, and layers of two norms."""
    return (V + T + 2) * D + 2 * D + LAYERS * (_attention() + _mlp(INNER) + 4 * D) + head


def _both(tables: int) -> int:
    """Marian: the decoder has one layer more, and in each a cross-attention and its norm."""
    encoder = LAYERS * (_attention() + _mlp(INNER) + 4 * D)
    return tables + encoder + (LAYERS + 1) * (2 * _attention() + _mlp(INNER + 4) + 6 * D)


_DENSE = D * D + D
_MASKED_HEAD = _DENSE + 2 * D + V  # transform, its norm, and the bias of the tied decoder
_QKV_BIASES = D + 2 * D * GROUPS // HEADS


@dataclass(frozen=True)
class Family:
    """How to make a small model of a family, and how many weights it has."""

    make: Callable[[Any], Any]
    config: Callable[..., Any]
    settings: dict[str, Any]
    weights: int
    layout: str

    def model(self, **settings: Any) -> Any:
        """A fresh model of the family."""
        torch.manual_seed(0)
        return self.make(self.config(**self.settings | settings))


def _llama(made: str, weights: int, **settings: Any) -> Family:
    kind = made.partition("For")[0]
    config = getattr(hf, f"{kind}Config")
    return Family(getattr(hf, made), config, _GROUPED | settings, weights, "llama")


def _bert(made: str, weights: int, **settings: Any) -> Family:
    kind = made.partition("For")[0]
    config = getattr(hf, f"{kind}Config")
    return Family(getattr(hf, made), config, _PLAIN | _QUIET | settings, weights, "bert")


FAMILIES: dict[str, Family] = {
    "llama": _llama("LlamaForCausalLM", _decoder(V * D)),
    "llama-tied": _llama("LlamaForCausalLM", _decoder(0), tie_word_embeddings=True),
    "llama-biased": _llama(
        "LlamaForCausalLM",
        _decoder(V * D, biases=_QKV_BIASES + D + 2 * INNER + D),
        attention_bias=True,
        mlp_bias=True,
    ),
    "llama-classifier": _llama("LlamaForSequenceClassification", _decoder(3 * D)),
    "mistral": _llama("MistralForCausalLM", _decoder(V * D)),
    "qwen2": _llama("Qwen2ForCausalLM", _decoder(V * D, biases=_QKV_BIASES)),
    "qwen3": _llama(
        "Qwen3ForCausalLM",
        _decoder(V * D, norms=2 * D + 2 * (D // HEADS)),
        head_dim=D // HEADS,
    ),
    "bert": _bert("BertForMaskedLM", _encoder(_MASKED_HEAD)),
    "bert-pretraining": _bert("BertForPreTraining", _encoder(_MASKED_HEAD + _DENSE + 2 * D + 2)),
    "bert-classifier": _bert("BertForSequenceClassification", _encoder(_DENSE + 3 * D + 3)),
    "roberta": _bert("RobertaForMaskedLM", _encoder(_MASKED_HEAD)),
    "roberta-classifier": _bert("RobertaForSequenceClassification", _encoder(_DENSE + 3 * D + 3)),
    "marian": Family(hf.MarianMTModel, hf.MarianConfig, _MARIAN, _both(V * D), "marian"),
    "marian-two": Family(
        hf.MarianMTModel, hf.MarianConfig, _MARIAN | _TWO, _both((V + V2) * D), "marian"
    ),
}
"""By name; each is small, has no dropout, and differs from the others in what its layout says."""


def batch(model: Any) -> dict[str, Tensor]:
    """Two texts of ten tokens, none of them padding, and what to learn of them."""
    tokens = 1 + torch.arange(20).reshape(2, 10) * 7 % (V - 2)
    name = type(model).__name__
    if name.endswith("ForSequenceClassification"):
        return {"input_ids": tokens, "labels": torch.tensor([0, 2])}
    if name.endswith("ForPreTraining"):
        return {
            "input_ids": tokens,
            "labels": tokens.flip(1),
            "next_sentence_label": torch.tensor([0, 1]),
        }
    return {"input_ids": tokens, "labels": tokens.flip(1)}


@torch.inference_mode()
def logits(model: Any) -> Tensor:
    """What a model says of the batch, in eval mode."""
    output = model.eval()(**batch(model))
    found = output["prediction_logits"] if "prediction_logits" in output else output["logits"]
    return found.clone()
