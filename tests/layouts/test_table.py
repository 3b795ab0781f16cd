"""A family that this library does not know is described by a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from untrained.apply import apply
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts import Layout, check, find, layout_of, register, table
from untrained.ticket import Ticket

T5 = hf.T5ForConditionalGeneration  # holds its stacks itself, without a T5Model
D, V, T, INNER = 32, 40, 20, 48
TOKENS = torch.arange(2, 12)[None]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is known to that test only."""
    monkeypatch.setattr(find, "_FAMILIES", dict(find._FAMILIES))


def neox(model: nn.Module) -> Layout:
    return table(
        model,
        hf.GPTNeoXModel,
        "neox",
        {
            "embedding": "embed_in",
            "norm.attention": "layers.*.input_layernorm",
            "qkv": "layers.*.attention.query_key_value",
            "output": "layers.*.attention.dense",
            "norm.mlp": "layers.*.post_attention_layernorm",
            "mlp.up": "layers.*.mlp.dense_h_to_4h",
            "mlp.down": "layers.*.mlp.dense_4h_to_h",
            "norm.final": "final_layer_norm",
            "unembedding": "embed_out",
        },
    )


def gemma(model: nn.Module) -> Layout:
    layer = "layers.*"
    parts = {
        "embedding": "embed_tokens",
        "norm.attention": f"{layer}.input_layernorm",
        "norm.mlp": f"{layer}.post_attention_layernorm",
        "norm.final": "norm",
        "unembedding": "lm_head",
    }
    parts |= {f"mlp.{part}": f"{layer}.mlp.{part}_proj" for part in ("gate", "up", "down")}
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    parts |= {part: f"{layer}.self_attn.{name}" for part, name in names.items()}
    return table(model, hf.GemmaModel, "gemma", parts, laws={"norm": Law("zeros")})


def t5(model: Any) -> Layout:
    config = model.config
    parts: dict[str, Any] = {
        "embedding": ("shared", "encoder.embed_tokens", "decoder.embed_tokens"),
        "unembedding": "lm_head",
    }
    laws = {
        "embedding": Law("normal", config.initializer_factor),
        "unembedding": Law("normal", config.initializer_factor),
        "output": Law("normal", (config.num_heads * config.d_kv) ** -0.5),
        "mlp.up": Law("normal", config.d_model**-0.5),
        "mlp.down": Law("normal", config.d_ff**-0.5),
        "position": Law("normal", config.d_model**-0.5),
    }
    for part, scale in (("query", config.d_kv), ("key", 1), ("value", 1)):
        laws[part] = Law("normal", (config.d_model * scale) ** -0.5)
    laws |= {f"cross.{part}": laws[part] for part in ("query", "key", "value", "output")}
    for stack, mlp in (("encoder", 1), ("decoder", 2)):
        block = f"{stack}.block.*.layer"
        attentions = {"": "0.SelfAttention", "cross.": "1.EncDecAttention"}
        for kind, module in list(attentions.items())[:mlp]:
            names = {"query": "q", "key": "k", "value": "v", "output": "o"}
            parts |= {f"{stack}.{kind}{p}": f"{block}.{module}.{n}" for p, n in names.items()}
        parts |= {
            f"{stack}.position": f"{block}.0.SelfAttention.relative_attention_bias",
            f"{stack}.norm.attention": f"{block}.0.layer_norm",
            f"{stack}.mlp.up": f"{block}.{mlp}.DenseReluDense.wi",
            f"{stack}.mlp.down": f"{block}.{mlp}.DenseReluDense.wo",
            f"{stack}.norm.mlp": f"{block}.{mlp}.layer_norm",
            f"{stack}.norm.final": f"{stack}.final_layer_norm",
        }
    parts["decoder.norm.cross"] = "decoder.block.*.layer.1.layer_norm"
    return table(model, hf.T5ForConditionalGeneration, "t5", parts, laws=laws)


def bart(model: nn.Module) -> Layout:
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    parts: dict[str, Any] = {
        "embedding": ("shared", "encoder.embed_tokens", "decoder.embed_tokens"),
        "unembedding": "lm_head",
    }
    for stack in ("encoder", "decoder"):
        layer = f"{stack}.layers.*"
        parts |= {f"{stack}.{p}": f"{layer}.self_attn.{n}" for p, n in names.items()}
        parts |= {
            f"{stack}.position": f"{stack}.embed_positions",
            f"{stack}.norm.embedding": f"{stack}.layernorm_embedding",
            f"{stack}.norm.attention": f"{layer}.self_attn_layer_norm",
            f"{stack}.mlp.up": f"{layer}.fc1",
            f"{stack}.mlp.down": f"{layer}.fc2",
            f"{stack}.norm.mlp": f"{layer}.final_layer_norm",
        }
    cross = "decoder.layers.*.encoder_attn"
    parts |= {f"decoder.cross.{p}": f"{cross}.{n}" for p, n in names.items()}
    parts |= {"decoder.norm.cross": f"{cross}_layer_norm"}
    return table(model, hf.BartModel, "bart", parts)


def cases() -> Iterator[Any]:
    decoder: dict[str, Any] = {
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": INNER,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": T,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    both: dict[str, Any] = {
        "vocab_size": V,
        "d_model": D,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER,
        "max_position_embeddings": T,
        "dropout": 0.0,
    }
    relative = {"vocab_size": V, "d_model": D, "d_kv": 8, "d_ff": INNER, "num_layers": 2}
    relative |= {"num_heads": 4, "dropout_rate": 0.0}
    for name, body, layout, make, config in (
        ("neox", hf.GPTNeoXModel, neox, hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**decoder | quiet)),
        (
            "gemma",
            hf.GemmaModel,
            gemma,
            hf.GemmaForCausalLM,
            hf.GemmaConfig(**decoder, num_key_value_heads=2, head_dim=8),
        ),
        ("t5", T5, t5, T5, hf.T5Config(**relative)),
        ("bart", hf.BartModel, bart, hf.BartForConditionalGeneration, hf.BartConfig(**both)),
    ):
        yield pytest.param(body, layout, lambda m=make, c=config: m(c), id=name)


@pytest.mark.parametrize(("body", "layout", "make"), [*cases()])
def test_a_family_is_taught_in_one_call(
    body: type[nn.Module],
    layout: Callable[[nn.Module], Layout],
    make: Callable[[], Any],
) -> None:
    with pytest.raises(RecipeError, match="has no layout"):
        layout_of(make())
    register(body, layout)
    torch.manual_seed(0)
    assert check(make()) > 10
    rules = "all = masked(keep=0.5); norm,bias = frozen"
    applied = apply(make(), rules)
    applied.check_liveness()
    rebuilt = Ticket.of(applied).model(make())
    inputs = {"input_ids": TOKENS}
    if applied.model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TOKENS
    with torch.no_grad():
        assert torch.equal(rebuilt(**inputs)[0], applied.model.eval()(**inputs)[0])


def test_a_word_that_is_misspelt_is_an_error() -> None:
    def misspelt(model: nn.Module) -> Layout:
        return table(model, hf.GPTNeoXModel, "neox", {"embedding": "embed_im"})

    register(hf.GPTNeoXModel, misspelt)
    config = hf.GPTNeoXConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(RecipeError, match="does not know gpt_neox.embed_in.weight, .* register"):
        layout_of(hf.GPTNeoXForCausalLM(config))


def test_a_model_without_the_body_is_an_error() -> None:
    config = hf.GPT2Config(vocab_size=V, n_embd=D, n_layer=1, n_head=2)
    with pytest.raises(RecipeError, match="GPT2Model holds no GPTNeoXModel"):
        neox(hf.GPT2Model(config))


def test_two_tensors_of_one_name_are_refused() -> None:
    def twice(model: nn.Module) -> Layout:
        return table(
            model, hf.BertModel, "bert", {"query": ("embeddings.word_embeddings", "pooler.dense")}
        )

    config = hf.BertConfig(vocab_size=D, hidden_size=D, num_hidden_layers=0, num_attention_heads=2)
    model = hf.BertModel(config)
    del model.embeddings.position_embeddings, model.embeddings.token_type_embeddings
    del model.embeddings.LayerNorm
    with pytest.raises(RecipeError, match="but they are two tensors; give each its own component"):
        twice(model)


def test_a_law_that_is_not_the_models_is_found() -> None:
    def plain(model: nn.Module) -> Layout:
        found = gemma(model)
        return Layout("plain", tuple(_with_ones(slot) for slot in found.slots))

    register(hf.GemmaModel, plain)
    config = hf.GemmaConfig(
        vocab_size=V,
        hidden_size=D,
        intermediate_size=INNER,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    with pytest.raises(
        RecipeError, match=r"is not 1 everywhere, but its layout says Law\('ones'\)"
    ):
        check(hf.GemmaForCausalLM(config))


def _with_ones(slot: Any) -> Any:
    return replace(slot, own=Law("ones")) if slot.path[0] == "norm" else slot


def test_only_a_class_of_modules_is_registered() -> None:
    with pytest.raises(RecipeError, match="is not a class of modules"):
        register("OPTModel", neox)  # type: ignore[arg-type]


def test_a_family_can_be_described_anew() -> None:
    def renamed(model: nn.Module) -> Layout:
        return Layout("mine", layout_of_gpt2(model).slots)

    layout_of_gpt2 = find._FAMILIES[hf.GPT2Model]
    register(hf.GPT2Model, renamed)
    config = hf.GPT2Config(vocab_size=V, n_embd=D, n_layer=1, n_head=2)
    assert layout_of(hf.GPT2Model(config)).name == "mine"
