"""Small models for tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

D, V, T, LAYERS = 16, 24, 12, 2


def tiny_gpt2(**settings: Any) -> GPT2LMHeadModel:
    """A GPT-2 of two layers, width 16, without dropout."""
    config: dict[str, Any] = {
        "vocab_size": V,
        "n_positions": T,
        "n_layer": LAYERS,
        "n_embd": D,
        "n_head": 2,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return GPT2LMHeadModel(GPT2Config(**config | settings))


def sentence() -> dict[str, Tensor]:
    """Ten tokens, to be predicted."""
    tokens = torch.arange(10)[None] % V
    return {"input_ids": tokens, "labels": tokens}


def mlp() -> nn.Sequential:
    """Linear, ReLU, Linear."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
