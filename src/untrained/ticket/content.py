"""What does a ticket hold?

The header says what is small: recipe, seed, architecture, checksums. Sections hold what is large:
masks, trained tensors, values that no seed gives, buffers, the tokenizer. This module turns one
into the other; whether they fit a model is asked in `ticket`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from torch import Tensor

from untrained.errors import TicketError
from untrained.masks import Mask
from untrained.random import GENERATOR
from untrained.recipe import LONGEST, Recipe, recipe
from untrained.ticket.architecture import Architecture
from untrained.ticket.fields import Fields
from untrained.ticket.format import Section
from untrained.ticket.tensors import (
    DTYPES,
    FLOATS,
    checksum,
    dtype_name,
    from_bytes,
    to_bytes,
)

Scalar: TypeAlias = str | int | float | bool | None

_TENSORS = 2**18
_PATTERNS = 256
_METADATA = 1024
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Checksum:
    """What the effective weight of one role has to be."""

    shape: tuple[int, ...]
    """The logical shape, (out, in, ...)."""

    dtype: str
    sha256: str
    """Of its bytes, row-major over the logical shape, little-endian."""

    @classmethod
    def of(cls, value: Tensor) -> Checksum:
        return cls(tuple(value.shape), dtype_name(value.dtype), checksum(value))

    def as_json(self, role: str) -> dict[str, Any]:
        """This, as JSON values."""
        return {"role": role, "shape": list(self.shape), "dtype": self.dtype, "sha256": self.sha256}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Content:
    """All that a ticket holds. Tensors are logical, on the CPU, and not to be written to."""

    recipe: Recipe
    seed: int
    architecture: Architecture

    layout: str
    """The name of the layout that gave the roles."""

    patterns: tuple[tuple[str, str], ...] = ()
    """The (component, pattern) pairs of the layout `modules`."""

    masks: Mask
    """The learned masks by role; what they keep is theirs, it need not be the recipe's."""

    trained: Mapping[str, Tensor]
    """The effective weights of trained roles."""

    values: Mapping[str, Tensor]
    """The random weights of roles that were kept as they were, before any mask."""

    buffers: Mapping[str, Tensor]
    """The persistent buffers, by their names in the model."""

    checksums: Mapping[str, Checksum]
    """Of every role: what its effective weight has to be."""

    tokenizer: str | None = None
    """The text of a `tokenizer.json`."""

    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    """Whatever the writer wants to say, as scalars; it decides nothing."""

    generator: int = GENERATOR
    """The version of the map from seed to values."""

    @property
    def weights(self) -> int:
        """The number of weights of the model, a tied tensor once."""
        return sum(math.prod(held.shape) for held in self.checksums.values())

    # --- to a file ---

    def header(self) -> dict[str, Any]:
        """All that is small, as JSON values."""
        return {
            "architecture": self.architecture.as_json(),
            "generator": self.generator,
            "layout": {"name": self.layout, "patterns": [list(pair) for pair in self.patterns]},
            "metadata": dict(self.metadata),
            "recipe": str(self.recipe),
            "seed": self.seed,
            "tensors": [held.as_json(role) for role, held in self.checksums.items()],
        }

    def sections(self) -> list[Section]:
        """All that is large, in the order of the file."""
        shapes, packed = self.masks.shapes, self.masks.pack()
        found = [Section("mask", name, "bit", shapes[name], packed[name]) for name in packed]
        kinds = {"trained": self.trained, "value": self.values, "buffer": self.buffers}
        for kind, tensors in kinds.items():
            for name, tensor in tensors.items():
                dtype, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
                found.append(Section(kind, name, dtype, shape, to_bytes(tensor)))
        if self.tokenizer is not None:
            data = self.tokenizer.encode()
            found.append(Section("tokenizer", _TOKENIZER, "uint8", (len(data),), data))
        return found

    # --- from a file ---

    @classmethod
    def read(cls, header: Fields, sections: list[Section]) -> Self:
        """What `header` and `sections` gave.

        Raises:
            UntrainedError: a field that makes no sense, or another generator.
        """
        _check_generator(header.whole("generator"))
        layout = header.fields("layout")
        by_kind: dict[str, dict[str, Section]] = {}
        for section in sections:
            by_kind.setdefault(section.kind, {})[section.name] = section
        masks = by_kind.get("mask", {})
        content = cls(
            recipe=recipe(header.text("recipe", limit=LONGEST)),
            seed=header.whole("seed", limit=2**64 - 1),
            architecture=Architecture.read(header.fields("architecture")),
            layout=layout.name("name"),
            patterns=_read_patterns(layout),
            masks=Mask.unpack(
                {name: held.data for name, held in masks.items()},
                {name: held.shape for name, held in masks.items()},
            ),
            trained=_read_tensors(by_kind.get("trained", {}), FLOATS),
            values=_read_tensors(by_kind.get("value", {}), FLOATS),
            buffers=_read_tensors(by_kind.get("buffer", {}), tuple(DTYPES)),
            checksums=_read_checksums(header.items("tensors", limit=_TENSORS)),
            tokenizer=_read_tokenizer(by_kind.get("tokenizer", {})),
            metadata=_read_metadata(header.fields("metadata")),
        )
        layout.done()
        header.done()
        return content


def _check_generator(version: int) -> None:
    if version != GENERATOR:
        raise TicketError(
            f"its values were drawn by generator {version}; this untrained draws by generator "
            f"{GENERATOR}: install the version that wrote it"
        )


def _read_patterns(layout: Fields) -> tuple[tuple[str, str], ...]:
    pairs = layout.items("patterns", limit=_PATTERNS)
    for pair in pairs:
        texts = isinstance(pair, list) and len(pair) == 2
        if not texts or not all(isinstance(t, str) and len(t) <= 256 for t in pair):
            raise layout.refuse("patterns", pair, "a component and its pattern")
    return tuple((component, pattern) for component, pattern in pairs)


def _read_tensors(sections: Mapping[str, Section], dtypes: tuple[str, ...]) -> dict[str, Tensor]:
    for section in sections.values():
        if section.dtype not in dtypes:
            raise TicketError(f"{section.kind} {section.name} is {section.dtype}, not a float type")
    return {name: from_bytes(s.data, s.dtype, s.shape) for name, s in sections.items()}


def _read_checksums(entries: list[Any]) -> dict[str, Checksum]:
    checksums: dict[str, Checksum] = {}
    for number, entry in enumerate(entries):
        fields = Fields(entry, f"tensor {number}")
        role = fields.name("role")
        if role in checksums:
            raise TicketError(f"tensor {number} is {role}, which came before")
        held = Checksum(
            fields.shape("shape"), fields.choice("dtype", FLOATS), fields.digest("sha256")
        )
        fields.done()
        checksums[role] = held
    return checksums


def _read_tokenizer(sections: Mapping[str, Section]) -> str | None:
    if not sections:
        return None
    section = sections.get(_TOKENIZER)
    if section is None or len(sections) > 1 or section.dtype != "uint8":
        raise TicketError(f"the tokenizer is one section of uint8, {_TOKENIZER}")
    try:
        return section.data.decode()
    except UnicodeDecodeError as reason:
        raise TicketError(f"the tokenizer is not UTF-8: {reason}") from None


def _read_metadata(fields: Fields) -> dict[str, Scalar]:
    held = fields.rest()
    if len(held) > _METADATA:
        raise TicketError(f"the metadata has {len(held):,} entries, more than {_METADATA:,}")
    for key, value in held.items():
        if not isinstance(value, str | int | float | bool | None):
            raise fields.refuse(key[:80], value, "text, a number, true, false or null")
    return held
