"""How does a language model write?

Sampling by the library's own generator, so that a prompt, a seed and a ticket give the same text
again. A model with learned positions sees the last T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from untrained.errors import RunError
from untrained.random import words
from untrained.tasks.tokenizer import Tokenizer


@torch.inference_mode()
def generate(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
) -> str:
    """Continue a prompt.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompt: text; an empty one starts a document.
        tokens: how many tokens to add.
        temperature: divides the logits; 0 always takes the most likely token.
        top_k: sample among so many most likely tokens only.
        seed: of the samples.

    Returns:
        The prompt and its continuation.

    Raises:
        RunError: a temperature below 0, or a number of tokens below 1.
    """
    if not 0 <= temperature < float("inf"):
        raise RunError(f"temperature={temperature}: temperature is 0 or more")
    if tokens < 1 or (top_k is not None and top_k < 1):
        raise RunError(f"tokens={tokens}, top_k={top_k}: both are at least 1")
    model.eval()
    ids = [int(token) for token in tokenizer.encode(prompt)] or [tokenizer.separator]
    start = len(ids) if prompt else 0
    for draw in _uniforms(seed, tokens):
        ids.append(_next(_logits(model, ids), temperature, top_k, draw))
    return prompt + tokenizer.decode(np.asarray(ids[max(start, 1) if not prompt else start :]))


def _logits(model: nn.Module, ids: list[int]) -> Tensor:
    config: Any = model.config
    window = ids[-config.max_position_embeddings :]
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=torch.tensor([window], device=device)).logits
    return logits[0, -1].double().cpu()  # (V,)


def _next(logits: Tensor, temperature: float, top_k: int | None, uniform: float) -> int:
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < logits.numel():
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    cumulative = torch.softmax(logits / temperature, 0).cumsum(0)
    return int(
        torch.searchsorted(cumulative, uniform * float(cumulative[-1])).clamp(max=len(logits) - 1)
    )


def _uniforms(seed: int, count: int) -> Iterator[float]:
    """Uniform numbers in (0, 1), a function of the seed and their index."""
    for word in words(seed, "generate", 0, count):
        yield (int(word) + 0.5) / 2**32
