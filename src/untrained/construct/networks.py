"""Which networks does the theory speak of?

Multi-head attention without norms or biases, of free widths: the one network of this library that
is not the ecosystem's, since nobody else has it.

Source: arXiv 2511.04217, section 2. Letters: B batch, T tokens, H heads, d1 inputs, d2 outputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from untrained.errors import ConstructError


class NormFreeAttention(nn.Module):
    """softmax(x W_Q (x W_K)^T / sqrt(key_width)) x W_V W_O, summed over heads; no biases."""

    def __init__(
        self, inputs: int, outputs: int, *, heads: int = 1, key_width: int, value_width: int
    ) -> None:
        """
        Args:
            inputs, outputs: d1 and d2.
            heads: H.
            key_width, value_width: the widths of one head.

        Raises:
            ConstructError: a width below 1.
        """
        super().__init__()
        widths = {
            "inputs": inputs,
            "outputs": outputs,
            "heads": heads,
            "key_width": key_width,
            "value_width": value_width,
        }
        for name, width in widths.items():
            if width < 1:
                raise ConstructError(f"{name}={width}: {name} is at least 1")
        self.heads, self.key_width, self.value_width = heads, key_width, value_width
        self.query = nn.Linear(inputs, heads * key_width, bias=False)
        self.key = nn.Linear(inputs, heads * key_width, bias=False)
        self.value = nn.Linear(inputs, heads * value_width, bias=False)
        self.output = nn.Linear(heads * value_width, outputs, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend.

        Args:
            tokens: (..., T, d1).
            mask: bool, broadcast against (..., H, T, T): which tokens (last axis) each token sees.
                Every token sees at least one. All see all if not given.

        Returns:
            (..., T, d2).
        """
        query, key, value = (
            linear(tokens).reshape(*tokens.shape[:-1], self.heads, -1).transpose(-3, -2)
            for linear in (self.query, self.key, self.value)
        )  # (..., H, T, width)
        logits = query @ key.mT / math.sqrt(self.key_width)  # (..., H, T, T)
        if mask is not None:
            logits = logits.masked_fill(~mask, -math.inf)
        mixed = logits.softmax(-1) @ value  # (..., H, T, value_width)
        summed: Tensor = self.output(mixed.transpose(-3, -2).flatten(-2))
        return summed


def merged(attention: NormFreeAttention) -> tuple[Tensor, Tensor]:
    """What a head computes with: W_Q W_K^T / sqrt(key_width) and W_V W_O, in float64.

    Returns:
        (H, d1, d1) and (H, d1, d2).
    """
    H = attention.heads
    inputs, outputs = attention.query.in_features, attention.output.out_features
    with torch.no_grad():
        query, key, value = (
            linear.weight.double().reshape(H, -1, inputs)
            for linear in (attention.query, attention.key, attention.value)
        )  # (H, width, d1)
        output = attention.output.weight.double().reshape(outputs, H, -1).movedim(0, 1)
        return query.mT @ key / math.sqrt(attention.key_width), value.mT @ output.mT
