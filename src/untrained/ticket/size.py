"""How many bytes is a ticket, part by part, and how few could its masks be?

A mask that keeps a share k of n weights, and nothing else known, needs at least n H(k) bits, with
H(k) = -k log2 k - (1 - k) log2 (1 - k). Here H is taken per tensor, with the tensor's own share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from untrained.ticket.format import Section

_PARTS = {"mask": "masks", "trained": "trained", "value": "values", "buffer": "values"}


def entropy(share: float) -> float:
    """H, in bits: 1 at one half, 0 where nothing is left to say."""
    rest = 1 - share
    return -sum(p * math.log2(p) for p in (share, rest) if p > 0)


@dataclass(frozen=True)
class Size:
    """The bytes of a ticket by part, and what they compare with."""

    masks: int
    trained: int
    """Trained tensors."""

    values: int
    """Buffers, and values kept as they were, which no seed gives."""

    config: int
    """The header: recipe, architecture, checksums, and what begins the file."""

    tokenizer: int
    padding: int

    weights: int
    """All weights of the model, a tied tensor once."""

    masked: int
    """Those under a learned mask."""

    kept: int
    """Those of the masked that are kept."""

    bound: float
    """The entropy of the masks, in bits."""

    @classmethod
    def of(cls, total: int, header: int, sections: Iterable[Section], weights: int) -> Size:
        """Measure a file.

        Args:
            total: bytes of the file.
            header: bytes of its header and of what comes before it.
            sections: all its sections.
            weights: weights of the model.
        """
        parts = dict.fromkeys(("masks", "trained", "values", "tokenizer"), 0)
        masked = kept = 0
        bound = 0.0
        for section in sections:
            parts[_PARTS.get(section.kind, section.kind)] += len(section.data)
            if section.kind == "mask" and (count := math.prod(section.shape)):
                masked, kept = masked + count, kept + section.kept
                bound += count * entropy(section.kept / count)
        padding = total - header - sum(parts.values())
        return cls(
            **parts,
            config=header,
            padding=padding,
            weights=weights,
            masked=masked,
            kept=kept,
            bound=bound,
        )

    @property
    def total(self) -> int:
        """The bytes of the file."""
        return self.masks + self.trained + self.values + self.config + self.tokenizer + self.padding

    @property
    def keep(self) -> float:
        """The share of the masked weights that is kept."""
        return self.kept / self.masked if self.masked else 1.0

    @property
    def bits_per_masked_weight(self) -> float:
        """What a mask takes."""
        return 8 * self.masks / self.masked if self.masked else 0.0

    @property
    def bound_per_masked_weight(self) -> float:
        """What a mask takes at least: H(keep)."""
        return self.bound / self.masked if self.masked else 0.0

    @property
    def bits_per_weight(self) -> float:
        """What the whole file takes for each weight of the model."""
        return 8 * self.total / self.weights if self.weights else 0.0

    def dense(self, bytes_per_weight: int) -> int:
        """The bytes of a dense checkpoint of the same model, with the same tokenizer."""
        return bytes_per_weight * self.weights + self.tokenizer

    def as_dict(self) -> dict[str, Any]:
        """All numbers, as JSON values."""
        parts = ("masks", "trained", "values", "config", "tokenizer", "padding")
        return {
            "bytes": {part: getattr(self, part) for part in parts} | {"total": self.total},
            "weights": self.weights,
            "masked": self.masked,
            "kept": self.kept,
            "bits_per_masked_weight": self.bits_per_masked_weight,
            "bound_per_masked_weight": self.bound_per_masked_weight,
            "bits_per_weight": self.bits_per_weight,
            "dense_fp32_bytes": self.dense(4),
            "dense_bf16_bytes": self.dense(2),
            "ratio_fp32": self.dense(4) / self.total,
            "ratio_bf16": self.dense(2) / self.total,
        }

    def __str__(self) -> str:
        parts = (
            ("masks", self.masks),
            ("trained tensors", self.trained),
            ("values and buffers", self.values),
            ("config", self.config),
            ("tokenizer", self.tokenizer),
            ("padding", self.padding),
        )
        lines = [f"{name:20}{size:15,} bytes" for name, size in parts if size]
        lines.append(
            f"{'total':20}{self.total:15,} bytes, {self.bits_per_weight:.4g} bits per weight"
        )
        if self.masked:
            lines.append(
                f"{'masks':20}{self.bits_per_masked_weight:15.4f} bits per masked weight, where "
                f"H(keep) is {self.bound_per_masked_weight:.4f} at keep {self.keep:.4g}"
            )
        lines += [
            f"{'dense ' + name:20}{self.dense(width):15,} bytes, "
            f"{self.dense(width) / self.total:.1f} times the ticket"
            for name, width in (("fp32", 4), ("bf16", 2))
        ]
        return "\n".join(lines)
