"""Of which shape is the model, and how is it made again without its weights?

A Hugging Face model is named by its class, one of a short list, and its configuration, of which
every field is listed here with the values it may have. So nothing that a file says is imported,
looked up or run. Any other module is named only: whoever loads its ticket brings an instance.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import (
    GPT2Config,
    GPT2ForQuestionAnswering,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
)

from untrained.errors import TicketError
from untrained.ticket.fields import Fields

Config: TypeAlias = Mapping[str, Any]

CLASSES: dict[str, type[nn.Module]] = {
    made.__name__: made
    for made in (
        GPT2LMHeadModel,
        GPT2Model,
        GPT2ForSequenceClassification,
        GPT2ForTokenClassification,
        GPT2ForQuestionAnswering,
    )
}
"""The Hugging Face classes that are made again from a ticket alone."""

_LABELLED = ("GPT2ForSequenceClassification", "GPT2ForTokenClassification")
_ATTENTION = ("eager", "sdpa")
"""The attention functions that give the same bits again; another one is the default on loading."""

_SLOTS_PER_LAYER = 12
"""A GPT-2 layer has at least so many tensors."""


class _Kind(NamedTuple):
    """What a field of a configuration may be."""

    text: str
    holds: Callable[[Any], bool]


def _whole(low: int, high: int) -> _Kind:
    return _Kind(
        f"a whole number from {low} to {high}", lambda v: type(v) is int and low <= v <= high
    )


def _number(low: float, high: float) -> _Kind:
    return _Kind(
        f"a number from {low:g} to {high:g}",
        lambda v: type(v) in (int, float) and low <= v <= high,
    )


def _word(*words: str) -> _Kind:
    return _Kind(f"one of {', '.join(words)}", lambda v: isinstance(v, str) and v in words)


def _optional(kind: _Kind) -> _Kind:
    return _Kind(f"nothing or {kind.text}", lambda v: v is None or kind.holds(v))


def _some(kind: _Kind) -> _Kind:
    def holds(value: Any) -> bool:
        several = value if isinstance(value, list) and 0 < len(value) <= 256 else [value]
        return all(kind.holds(one) for one in several)

    return _Kind(f"{kind.text}, or a list of them", holds)


_FLAG = _Kind("true or false", lambda v: isinstance(v, bool))
_TOKEN = _whole(0, 2**31 - 1)
_WIDTH = _whole(1, 2**24)
_SHARE = _number(0, 1)
_ACTIVATIONS = _word(
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python"),
    *("gelu_pytorch_tanh", "hardswish", "leaky_relu", "linear", "mish", "quick_gelu", "relu"),
    *("relu2", "relu6", "sigmoid", "silu", "swish", "tanh"),
)

_GPT2: dict[str, _Kind] = {
    "vocab_size": _whole(1, 2**31 - 1),
    "n_positions": _whole(1, 2**31 - 1),
    "n_embd": _WIDTH,
    "n_layer": _whole(1, 1024),
    "n_head": _whole(1, 2**16),
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
    "bos_token_id": _optional(_TOKEN),
    "eos_token_id": _optional(_some(_TOKEN)),
    "pad_token_id": _optional(_TOKEN),
}
"""The configuration of GPT-2, all of it that decides what the model computes."""


@dataclass(frozen=True)
class Architecture:
    """The shape of a model.

    Raises:
        TicketError: a class that is not known, or a configuration outside the limits.
    """

    library: str
    """`transformers` or `module`."""

    name: str
    """The model's class."""

    config: Config = field(default_factory=dict)
    """The configuration; empty for a module."""

    attention: str | None = None
    """The attention function: eager, sdpa, or None for the default."""

    labels: tuple[str, ...] = ()
    """The names of a classifier's labels."""

    def __post_init__(self) -> None:
        if self.library == "module":
            return
        if self.name not in CLASSES:
            raise TicketError(
                f"the class {self.name!r} is not one that a ticket may name ({', '.join(CLASSES)})"
            )
        if differ := sorted(self.config.keys() ^ _GPT2.keys()):
            there = "holds" if differ[0] in self.config else "lacks"
            raise TicketError(f"the configuration {there} {differ[0][:80]!r}")
        for key, kind in _GPT2.items():
            value = self.config[key]
            if not kind.holds(value):
                said = reprlib.repr(value)
                raise TicketError(f"the configuration's {key} is {said}, not {kind.text}")

    def __str__(self) -> str:
        return f"{self.name} ({self.library})"

    @property
    def alone(self) -> bool:
        """Whether the model can be made from the ticket alone."""
        return self.library == "transformers"

    # --- words ---

    @classmethod
    def of(cls, model: nn.Module) -> Architecture:
        """Describe a model."""
        name = type(model).__qualname__
        if type(model) is not CLASSES.get(name):
            return cls("module", name)
        settings: Any = model.config
        config = {key: deepcopy(getattr(settings, key)) for key in _GPT2}
        attention = settings._attn_implementation
        labels = settings.id2label if name in _LABELLED else {}
        return cls(
            "transformers",
            name,
            config,
            attention if attention in _ATTENTION else None,
            tuple(str(labels.get(number)) for number in range(len(labels))),
        )

    def as_json(self) -> dict[str, Any]:
        """This, as JSON values."""
        held: dict[str, Any] = {"library": self.library, "class": self.name}
        if self.alone:
            held |= {"config": dict(self.config), "attention": self.attention}
            held |= {"labels": list(self.labels)} if self.name in _LABELLED else {}
        return held

    @classmethod
    def read(cls, fields: Fields) -> Architecture:
        """What `as_json` gave.

        Raises:
            TicketError: words that make no sense.
        """
        library = fields.choice("library", ("transformers", "module"))
        name = fields.name("class")
        if library == "module":
            fields.done()
            return cls(library, name)
        attention = fields.take("attention")
        if attention not in (None, *_ATTENTION):
            raise fields.refuse("attention", attention, f"null or one of {', '.join(_ATTENTION)}")
        labels = fields.items("labels", limit=2**16) if name in _LABELLED else []
        if not all(isinstance(label, str) for label in labels):
            raise fields.refuse("labels", labels, "a list of text")
        config = fields.fields("config").rest()
        fields.done()
        return cls(library, name, config, attention, tuple(labels))

    # --- models ---

    def outline(self, *, tensors: int, max_weights: int) -> nn.Module:
        """The model on the meta device, where weights have shapes but no memory.

        Args:
            tensors: how many tensors the ticket lists; bounds the layers before any is made.
            max_weights: refuse a model of more weights, or buffers of more elements.

        Raises:
            TicketError: a configuration that does not fit together or exceeds a limit.
        """
        layers = self.config["n_layer"]
        if layers * _SLOTS_PER_LAYER > tensors:
            raise TicketError(
                f"the configuration has {layers:,} layers, but the ticket lists only {tensors:,} "
                "tensors"
            )
        with torch.device("meta"):
            model = self._make()
        check_size(model.parameters(), max_weights, "weights")
        check_size(model.buffers(), max_weights, "buffers")
        return model

    def hollow(self) -> nn.Module:
        """The model with its buffers, and parameters on the meta device, which are not tied."""
        with init_empty_weights(include_buffers=False):
            return self._make()

    def _make(self) -> nn.Module:
        """Call the class. Draws no random number, since weights on the meta device have none."""
        labels: dict[str, Any] = {}
        if self.labels:
            labels["id2label"] = dict(enumerate(self.labels))
            labels["label2id"] = {label: number for number, label in enumerate(self.labels)}
        try:
            settings = deepcopy(dict(self.config)) | labels
            config = GPT2Config(**settings, attn_implementation=self.attention)
            return CLASSES[self.name](config)
        except Exception as reason:  # whatever the library says of numbers that do not fit
            raise TicketError(f"the configuration makes no {self.name}: {reason}") from reason


def check_size(tensors: Iterable[torch.Tensor], limit: int, what: str) -> None:
    """Refuse tensors of more elements than the limit.

    Raises:
        TicketError: there are more.
    """
    total = sum(math.prod(tensor.shape) for tensor in tensors)
    if total > limit:
        raise TicketError(
            f"the model has {total:,} {what}, more than max_weights={limit:,}; if you trust the "
            "file, load it with a larger max_weights"
        )
