"""Of which shape is the model, and how is it made again without its weights?

A Hugging Face model is named by its class, one of a short list, and its configuration, of which
every field is listed in `families` with the values it may have. So nothing that a file says is
imported, looked up or run. Any other module is named only: whoever loads its ticket brings an
instance.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn

from untrained.errors import TicketError
from untrained.ticket.families import CLASSES, FAMILY_OF, Config, Family
from untrained.ticket.fields import Fields

_ATTENTION = ("eager", "sdpa")
"""The attention functions that give the same bits again; another one is the default on loading."""


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
        fields = self.family.fields
        if differ := sorted(self.config.keys() ^ fields.keys()):
            there = "holds" if differ[0] in self.config else "lacks"
            raise TicketError(f"the configuration {there} {differ[0][:80]!r}")
        for key, kind in fields.items():
            value = self.config[key]
            if not kind.holds(value):
                said = reprlib.repr(value)
                raise TicketError(f"the configuration's {key} is {said}, not {kind.text}")
        if reason := self.family.refuse(self.config):
            raise TicketError(f"the configuration asks for too much: {reason}")

    def __str__(self) -> str:
        return f"{self.name} ({self.library})"

    @property
    def alone(self) -> bool:
        """Whether the model can be made from the ticket alone."""
        return self.library == "transformers"

    @property
    def family(self) -> Family:
        """What the class's configuration may say."""
        return FAMILY_OF[self.name]

    # --- words ---

    @classmethod
    def of(cls, model: nn.Module) -> Architecture:
        """Describe a model."""
        name = type(model).__qualname__
        if type(model) is not CLASSES.get(name):
            return cls("module", name)
        settings: Any = model.config
        config = {key: deepcopy(getattr(settings, key)) for key in FAMILY_OF[name].fields}
        attention = settings._attn_implementation
        labels = settings.id2label if _is_labelled(name) else {}
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
            held |= {"labels": list(self.labels)} if _is_labelled(self.name) else {}
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
        labels = fields.items("labels", limit=2**16) if _is_labelled(name) else []
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
        least = self.family.least_tensors(self.config)
        if least > tensors:
            raise TicketError(
                f"the configuration has layers of at least {least:,} tensors, but the ticket "
                f"lists only {tensors:,} tensors"
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
            config = self.family.config(**settings, attn_implementation=self.attention)
            return CLASSES[self.name](config)
        except Exception as reason:  # whatever the library says of numbers that do not fit
            raise TicketError(f"the configuration makes no {self.name}: {reason}") from reason


def _is_labelled(name: str) -> bool:
    """Whether a class gives names to what it tells apart."""
    return name.endswith(("ForSequenceClassification", "ForTokenClassification"))


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
