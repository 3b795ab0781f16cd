"""What is a layout?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from untrained.components import Slot


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A tensor that the model's own constructor computes, such as sinusoidal positions.

    It is neither random nor learned: no recipe speaks of it, no count holds it, and a ticket
    computes it again.
    """

    name: str
    """What it is, with its stack: `encoder.position`."""

    parameter: str
    """The tensor's name in `model.named_parameters()`."""

    shape: tuple[int, ...]

    compute: Callable[[], Tensor] = field(compare=False, repr=False)
    """What the model's constructor computes, float32."""


@dataclass(frozen=True)
class Layout:
    """Every slot of one model, in the model's own order."""

    name: str
    """The layout's name, as an error message and a ticket say it: `gpt2`, `modules`."""

    slots: tuple[Slot, ...]
    """Each component of each layer; with `fixed` they cover every parameter of the model."""

    patterns: tuple[tuple[str, str], ...] = ()
    """For `modules`: the (component, pattern) pairs that named the slots."""

    fixed: tuple[Fixed, ...] = ()
    """The tensors that the model computes itself."""

    @property
    def layers(self) -> int:
        """The number of layers, at least 1; of several stacks the deepest."""
        return 1 + max((slot.layer or 0 for slot in self.slots), default=0)

    @property
    def components(self) -> tuple[str, ...]:
        """The names that a recipe can say, in order of first use; then those of the stacks."""
        tops = (".".join(slot.path[:n]) for slot in self.slots for n in range(1, len(slot.path)))
        whole = (slot.component for slot in self.slots)
        stacks = (slot.stack for slot in self.slots if slot.stack)
        return tuple(dict.fromkeys([*whole, *tops, *stacks]))
