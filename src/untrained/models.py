"""Which model does a name stand for?"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from untrained.errors import RunError

SIZES: dict[str, tuple[int, int, int]] = {
    "gpt2-pico": (1, 32, 2),
    "gpt2-nano": (2, 128, 4),
    "gpt2-micro": (4, 256, 4),
    "gpt2-mini": (6, 512, 8),
    "gpt2": (12, 768, 12),
}
"""GPT-2 shaped models by name: layers, width D, heads H."""


def gpt2_config(name: str, *, vocabulary: int, length: int) -> GPT2Config:
    """The configuration of a GPT-2 shaped model, without dropout.

    Args:
        name: a name of `SIZES`; `LAYERSxWIDTHxHEADS` such as `3x192x6`; or the path of a
            Hugging Face `config.json`, whose vocabulary and length are then replaced.
        vocabulary: tokens, V.
        length: positions, T.

    Raises:
        RunError: an unknown name, a width that the heads do not divide, or an unreadable file.
    """
    if name.endswith(".json"):
        return _from_file(Path(name), vocabulary, length)
    layers, width, heads = SIZES.get(name) or _numbers(name)
    if width % heads:
        raise RunError(f"{name}: {heads} heads do not divide a width of {width}")
    return GPT2Config(
        vocab_size=vocabulary,
        n_positions=length,
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        # The same function as GPT-2's own `gelu_new`, in one kernel instead of eight.
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )


def build(config: GPT2Config) -> GPT2LMHeadModel:
    """A language model whose values do not matter: `apply` draws every one of them.

    Raises:
        RunError: a configuration whose parts do not fit together.
    """
    with torch.random.fork_rng():
        try:
            return GPT2LMHeadModel(config)
        except (ValueError, TypeError, KeyError) as reason:
            raise RunError(f"this configuration makes no GPT-2: {reason}") from reason


def _numbers(name: str) -> tuple[int, int, int]:
    parts = name.split("x")
    if len(parts) != 3 or not all(
        part.isascii() and part.isdigit() and int(part) for part in parts
    ):
        raise RunError(
            f"unknown model {name!r}; name one of {', '.join(SIZES)}, or layers x width x heads "
            "as in 3x192x6, or a config.json"
        )
    layers, width, heads = map(int, parts)
    return layers, width, heads


def _from_file(path: Path, vocabulary: int, length: int) -> GPT2Config:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if settings.get("model_type") != "gpt2":
            raise RunError(f"{path}: model_type is {settings.get('model_type')!r}, not 'gpt2'")
    except (OSError, ValueError, AttributeError) as reason:
        if isinstance(reason, RunError):
            raise
        raise RunError(f"cannot read the model configuration {path}: {reason}") from None
    try:
        config = GPT2Config(**settings)
    except Exception as reason:  # whatever the library says of values that make no sense
        raise RunError(f"{path} makes no GPT-2: {reason}") from None
    config.vocab_size, config.n_positions = vocabulary, length
    return config
