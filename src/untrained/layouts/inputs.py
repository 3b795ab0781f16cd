"""What may a model be fed?"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def longest_input(model: nn.Module) -> int | None:
    """The most tokens that a model reads, or None if its configuration does not say.

    RoBERTa counts positions from behind the padding token's index.
    """
    config: Any = getattr(model, "config", None)
    longest = getattr(config, "max_position_embeddings", None)
    if longest is None:
        return None
    skipped = (
        module.padding_idx + 1
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    )
    return int(longest) - max(skipped, default=0)


def with_decoder_input(model: nn.Module, input_ids: Tensor) -> dict[str, Tensor]:
    """The tokens as the model takes them: an encoder-decoder's decoder reads the same ones."""
    config: Any = getattr(model, "config", None)
    if not getattr(config, "is_encoder_decoder", False):
        return {"input_ids": input_ids}
    vocabulary = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    return {"input_ids": input_ids, "decoder_input_ids": input_ids % vocabulary}
