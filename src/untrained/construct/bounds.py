"""How far can a pruned attention be from its target, and how wide does the theory want it?

Two constants for each bound: the paper's, and a sharp one that needs no condition. Widths come as
multiples of the universal constant C of Lueker's theorem, which nobody has put a number on.

Source: arXiv 2511.04217, Lemma 8, Theorems 9, 11 and 14. Letters: H heads, d1 inputs, d2 outputs,
L linear layers of an MLP, B blocks; `radius` is alpha, the largest norm of a token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from untrained.errors import ConstructError


def softmax_bound(logit_error: float, radius: float) -> float:
    """How far an average of tokens moves if every logit moves by at most `logit_error`.

    2 radius tanh(e / 2): tight, for two antipodal tokens, and free of the number of tokens and of
    the attention mask. (A mean of tokens moves by radius * |p - p'|_1, and of all logits within
    +-e those that are +e on one set and -e off it move p farthest.)
    """
    return 2 * radius * math.tanh(logit_error / 2)


def softmax_bound_of_the_paper(logit_error: float, radius: float, d1: int) -> float:
    """Lemma 8: sqrt(d1) radius (exp(2 e) - 1)."""
    return math.sqrt(d1) * radius * math.expm1(2 * logit_error)


@dataclass(frozen=True, kw_only=True)
class AttentionBound:
    """How far one pruned attention layer can be from its target, for tokens up to a norm."""

    logits: float
    """The part of the logits: what A's entry errors do through the softmax."""

    values: float
    """The part of the values: what D's entry errors do."""

    @property
    def total(self) -> float:
        """The Euclidean distance of an output token, at most."""
        return self.logits + self.values


def attention_bound(
    logit_errors: list[float],
    value_errors: list[float],
    *,
    radius: float,
    d1: int,
    d2: int,
    value_norms: list[float] | None = None,
) -> AttentionBound:
    """The sharp bound, from the largest entry errors of every head.

    Args:
        logit_errors: dK of each head, the largest |entry| by which A is off.
        value_errors: dV of each head, the same for D.
        radius: the largest norm of a token.
        d1, d2: inputs and outputs.
        value_norms: the spectral norm of D of each head; 1 unless given, as the theory assumes.
    """
    norms = value_norms or [1.0] * len(logit_errors)
    logits = sum(
        norm * softmax_bound(radius**2 * d1 * error, radius)
        for norm, error in zip(norms, logit_errors, strict=True)
    )
    return AttentionBound(
        logits=logits, values=sum(radius * math.sqrt(d1 * d2) * error for error in value_errors)
    )


def attention_bound_of_the_paper(
    logit_error: float, value_error: float, *, heads: int, radius: float, d1: int, d2: int
) -> AttentionBound:
    """The bound in the proof of Theorem 9, from the largest entry errors over all heads."""
    moved = softmax_bound_of_the_paper(radius**2 * d1 * logit_error, radius, d1)
    return AttentionBound(
        logits=heads * moved, values=heads * d1 * math.sqrt(d2) * radius * value_error
    )


def attention_widths(
    *, heads: int, radius: float, d1: int, d2: int, epsilon: float
) -> tuple[float, float]:
    """Theorem 9: the widths n_K and n_V of a source's head, as multiples of C.

    Raises:
        ConstructError: what the theorem does not speak of.
    """
    _check(radius, epsilon, d1, d2, heads)
    keys = d1 * math.log(8 * heads * radius**3 * d1**1.5 / epsilon)
    values = d1 * math.log(2 * heads * radius * d1 * math.sqrt(d2) / epsilon)
    return keys, values


def transformer_widths(
    *, blocks: int, heads: int, radius: float, d: int, epsilon: float, layers: int = 1
) -> list[tuple[float, float]]:
    """Theorems 11 and 14: n_MHA and n_FC of every block, as multiples of C.

    Args:
        blocks, heads, radius, d, epsilon: B, H, alpha, the width and the accuracy.
        layers: L, the linear layers of a block's MLP.

    Raises:
        ConstructError: what the theorems do not speak of.
    """
    _check(radius, epsilon, d, d, heads)
    if blocks < 1 or layers < 1:
        raise ConstructError(f"blocks={blocks}, layers={layers}: both are at least 1")
    growth = 4 * heads * math.sqrt(d)  # the norm of tokens, from one block to the next

    def log_norm(b: int) -> float:
        return math.log(radius) + (b - 1) * math.log(growth)

    widths = []
    for b in range(1, blocks + 1):
        passes = blocks - 1 if b == 1 else blocks - b + 1
        log_k = passes * math.log(2) + sum(
            math.log(4 * growth) + 2 * log_norm(j) for j in range(b + 1, blocks + 1)
        )
        norm = log_norm(b) + (math.log(2) if b > 1 else 0.0)
        attention = math.log(32 * heads * d**1.5 / epsilon) + 3 * norm + log_k
        mlp = math.log(24 * layers * heads * d**2.5 / epsilon) + norm + log_k
        widths.append((d * attention, d * mlp))
    return widths


def _check(radius: float, epsilon: float, d1: int, d2: int, heads: int) -> None:
    if not 0 < epsilon < 1:
        raise ConstructError(f"epsilon={epsilon}: the accuracy is in (0, 1)")
    if heads < 1 or d1 < 1 or d2 < 1:
        raise ConstructError(f"heads={heads}, d1={d1}, d2={d2}: all are at least 1")
    least = math.sqrt(max(d1, d2))
    if not (math.isfinite(radius) and radius >= least * (1 - 1e-12)):
        raise ConstructError(
            f"radius={radius}: the theorem wants it to be at least sqrt(max(d1, d2)) = {least:.4g}"
        )
