"""What is a layout?"""

from __future__ import annotations

from dataclasses import dataclass

from untrained.components import Slot


@dataclass(frozen=True)
class Layout:
    """Every slot of one model, in the model's own order."""

    name: str
    """The layout's name, as an error message and a ticket say it: `gpt2`, `modules`."""

    slots: tuple[Slot, ...]
    """Each component of each layer; together they cover every parameter of the model."""

    patterns: tuple[tuple[str, str], ...] = ()
    """For `modules`: the (component, pattern) pairs that named the slots."""

    @property
    def layers(self) -> int:
        """The number of layers, at least 1."""
        return 1 + max((slot.layer or 0 for slot in self.slots), default=0)

    @property
    def components(self) -> tuple[str, ...]:
        """The names that a recipe can say, in order of first use."""
        tops = (".".join(slot.path[:n]) for slot in self.slots for n in range(1, len(slot.path)))
        whole = (slot.component for slot in self.slots)
        return tuple(dict.fromkeys([*whole, *tops]))
