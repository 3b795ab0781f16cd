"""Which models may a ticket name, and what may their configurations say?

A family is a few Hugging Face classes of one configuration. Every field that decides what the
model computes is listed with the values that it may have; what is not listed is left behind. The
limits are wide enough for any model that fits a machine, and keep a lying file from asking for
more work than its own size: `least_tensors` bounds the layers before any is made, and `refuse`
what a constructor computes before the number of weights is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import transformers as hf
from torch import nn

Config: TypeAlias = Mapping[str, Any]


class Kind(NamedTuple):
    """What a field of a configuration may be."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Family:
    """Some classes that share a configuration."""

    config: type[Any]
    """The class of the configuration."""

    classes: tuple[type[nn.Module], ...]

    fields: Mapping[str, Kind]
    """The configuration, all of it that decides what the model computes."""

    least_tensors: Callable[[Config], int]
    """How many tensors the layers of a configuration have at least."""

    refuse: Callable[[Config], str | None] = lambda _: None
    """Why a configuration, whose fields are each within their limits, asks for too much."""


def _whole(low: int, high: int) -> Kind:
    return Kind(
        f"a whole number from {low} to {high}", lambda v: type(v) is int and low <= v <= high
    )


def _number(low: float, high: float) -> Kind:
    return Kind(
        f"a number from {low:g} to {high:g}",
        lambda v: type(v) in (int, float) and low <= v <= high,
    )


def _word(*words: str) -> Kind:
    return Kind(f"one of {', '.join(words)}", lambda v: isinstance(v, str) and v in words)


def _optional(kind: Kind) -> Kind:
    return Kind(f"nothing or {kind.text}", lambda v: v is None or kind.holds(v))


def _some(kind: Kind, most: int = 256) -> Kind:
    def holds(value: Any) -> bool:
        several = value if isinstance(value, list) and 0 < len(value) <= most else [value]
        return all(kind.holds(one) for one in several)

    return Kind(f"{kind.text}, or a list of them", holds)


_FLAG = Kind("true or false", lambda v: isinstance(v, bool))
_TOKEN = _whole(0, 2**31 - 1)
_WIDTH = _whole(1, 2**24)
_SHARE = _number(0, 1)
_ACTIVATIONS = _word(
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python"),
    *("gelu_pytorch_tanh", "hardswish", "leaky_relu", "linear", "mish", "quick_gelu", "relu"),
    *("relu2", "relu6", "sigmoid", "silu", "swish", "tanh"),
)
_LAYERS = _whole(1, 1024)
_HEADS = _whole(1, 2**16)
_COUNT = _whole(1, 2**31 - 1)

_TOKENS: dict[str, Kind] = {
    "bos_token_id": _optional(_TOKEN),
    "eos_token_id": _optional(_some(_TOKEN)),
    "pad_token_id": _optional(_TOKEN),
}

# --- GPT-2 ---

_GPT2 = Family(
    hf.GPT2Config,
    (
        hf.GPT2LMHeadModel,
        hf.GPT2Model,
        hf.GPT2ForSequenceClassification,
        hf.GPT2ForTokenClassification,
        hf.GPT2ForQuestionAnswering,
    ),
    {
        "vocab_size": _COUNT,
        "n_positions": _COUNT,
        "n_embd": _WIDTH,
        "n_layer": _LAYERS,
        "n_head": _HEADS,
        "n_inner": _optional(_WIDTH),
        "activation_function": _ACTIVATIONS,
        "resid_pdrop": _SHARE,
        "embd_pdrop": _SHARE,
        "attn_pdrop": _SHARE,
        "layer_norm_epsilon": _number(0, 1),
        "initializer_range": _number(0, 1e6),
        "scale_attn_weights": _FLAG,
        "scale_attn_by_inverse_layer_idx": _FLAG,
        "reorder_and_upcast_attn": _FLAG,
        "tie_word_embeddings": _FLAG,
        "use_cache": _FLAG,
        **_TOKENS,
    },
    lambda config: 12 * config["n_layer"],
)

# --- Llama-shaped ---

_ROPE: dict[str, Kind] = {
    "rope_type": _word("default", "linear", "llama3", "yarn"),
    "rope_theta": _number(1e-6, 1e12),
    "partial_rotary_factor": _SHARE,
    "factor": _number(1e-6, 1e6),
    "low_freq_factor": _number(1e-6, 1e6),
    "high_freq_factor": _number(1e-6, 1e6),
    "original_max_position_embeddings": _COUNT,
    "attention_factor": _optional(_number(1e-6, 1e6)),
    "beta_fast": _number(1e-6, 1e6),
    "beta_slow": _number(1e-6, 1e6),
    "mscale": _number(1e-6, 1e6),
    "mscale_all_dim": _number(1e-6, 1e6),
    "truncate": _FLAG,
}
"""The rotations of positions; of the types that are tables, not functions of the text's length."""


def _is_rope(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key in _ROPE and _ROPE[key].holds(one) for key, one in value.items()
    )


_LLAMA_SHAPED: dict[str, Kind] = {
    "vocab_size": _COUNT,
    "hidden_size": _WIDTH,
    "intermediate_size": _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "hidden_act": _ACTIVATIONS,
    "max_position_embeddings": _COUNT,
    "initializer_range": _SHARE,
    "rms_norm_eps": _number(0, 1),
    "use_cache": _FLAG,
    "tie_word_embeddings": _FLAG,
    "rope_parameters": Kind(f"a table of {', '.join(_ROPE)} within their limits", _is_rope),
    "attention_dropout": _SHARE,
    **_TOKENS,
}
_HEAD_DIM = {"head_dim": _optional(_WIDTH)}
_WINDOW = {"sliding_window": _optional(_COUNT)}
_QWEN: dict[str, Kind] = {
    **_WINDOW,
    "use_sliding_window": _FLAG,
    "max_window_layers": _whole(0, 2**16),
    "layer_types": _some(_word("full_attention", "sliding_attention"), most=1024),
}


def _llama_shaped(name: str, config: type[Any], fields: Mapping[str, Kind]) -> Family:
    """LLaMA itself or one that shares its names; 9 tensors a layer, biases and norms aside."""
    heads = ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
    classes = tuple(getattr(hf, f"{name}{head}") for head in heads)
    everything = _LLAMA_SHAPED | dict(fields)
    return Family(config, classes, everything, lambda config: 9 * config["num_hidden_layers"])


_BIASED = {"attention_bias": _FLAG}

# --- BERT and RoBERTa ---

_BERT_SHAPED: dict[str, Kind] = {
    "vocab_size": _COUNT,
    "hidden_size": _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "intermediate_size": _WIDTH,
    "hidden_act": _ACTIVATIONS,
    "hidden_dropout_prob": _SHARE,
    "attention_probs_dropout_prob": _SHARE,
    "max_position_embeddings": _COUNT,
    "type_vocab_size": _COUNT,
    "initializer_range": _number(0, 1e6),
    "layer_norm_eps": _number(0, 1),
    "use_cache": _FLAG,
    "classifier_dropout": _optional(_SHARE),
    "is_decoder": _FLAG,
    "tie_word_embeddings": _FLAG,
    **_TOKENS,
}


def _bert_shaped(config: type[Any], classes: tuple[type[nn.Module], ...]) -> Family:
    return Family(config, classes, _BERT_SHAPED, lambda config: 16 * config["num_hidden_layers"])


# --- Marian ---

_POSITIONS = 2**21
"""The sinusoids that Marian's constructor may compute, one number at a time."""


def _long_sinusoids(config: Config) -> str | None:
    size = config["max_position_embeddings"] * config["d_model"]
    if size <= _POSITIONS:
        return None
    return f"max_position_embeddings times d_model is {size:,}, more than {_POSITIONS:,}"


_MARIAN = Family(
    hf.MarianConfig,
    (hf.MarianMTModel, hf.MarianModel),
    {
        "vocab_size": _COUNT,
        "decoder_vocab_size": _COUNT,
        "max_position_embeddings": _COUNT,
        "d_model": _WIDTH,
        **{
            f"{stack}_{field}": kind
            for stack in ("encoder", "decoder")
            for field, kind in (
                ("layers", _LAYERS),
                ("ffn_dim", _WIDTH),
                ("attention_heads", _HEADS),
                ("layerdrop", _SHARE),
            )
        },
        "activation_function": _ACTIVATIONS,
        "dropout": _SHARE,
        "attention_dropout": _SHARE,
        "activation_dropout": _SHARE,
        "init_std": _number(0, 1e6),
        "scale_embedding": _FLAG,
        "share_encoder_decoder_embeddings": _FLAG,
        "tie_word_embeddings": _FLAG,
        "use_cache": _FLAG,
        "decoder_start_token_id": _TOKEN,
        "forced_eos_token_id": _optional(_some(_TOKEN)),
        **_TOKENS,
    },
    lambda config: 16 * config["encoder_layers"] + 26 * config["decoder_layers"],
    _long_sinusoids,
)

FAMILIES: tuple[Family, ...] = (
    _GPT2,
    _llama_shaped(
        "Llama",
        hf.LlamaConfig,
        {**_HEAD_DIM, **_BIASED, "mlp_bias": _FLAG, "pretraining_tp": _optional(_whole(1, 1))},
    ),
    _llama_shaped("Mistral", hf.MistralConfig, {**_HEAD_DIM, **_WINDOW}),
    _llama_shaped("Qwen2", hf.Qwen2Config, _QWEN),
    _llama_shaped("Qwen3", hf.Qwen3Config, {**_HEAD_DIM, **_BIASED, **_QWEN}),
    _bert_shaped(
        hf.BertConfig,
        (
            hf.BertModel,
            hf.BertForMaskedLM,
            hf.BertForPreTraining,
            hf.BertForSequenceClassification,
            hf.BertForTokenClassification,
            hf.BertForQuestionAnswering,
        ),
    ),
    _bert_shaped(
        hf.RobertaConfig,
        (
            hf.RobertaModel,
            hf.RobertaForMaskedLM,
            hf.RobertaForSequenceClassification,
            hf.RobertaForTokenClassification,
            hf.RobertaForQuestionAnswering,
        ),
    ),
    _MARIAN,
)

CLASSES: dict[str, type[nn.Module]] = {
    made.__name__: made for family in FAMILIES for made in family.classes
}
"""The Hugging Face classes that are made again from a ticket alone."""

FAMILY_OF: dict[str, Family] = {
    made.__name__: family for family in FAMILIES for made in family.classes
}
