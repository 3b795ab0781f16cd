"""Which parts does a model have, and where do they lie?

A *component* is a part by its role (`query`, `mlp.up`, `norm`, ...), the same word for every model.
A *slot* is one component of one layer in one tensor of the model: a fused query/key/value matrix
holds three slots. A slot knows how the module stores it; everything else in this library sees its
*logical* form, (out, in), whose row-major order numbers the elements.

A bias follows the component it belongs to, unless a recipe names `bias`.

A model with several stacks of layers, such as an encoder and a decoder, says in which one a slot
lies: `encoder.layers.3.query`, `decoder.layers.3.cross.query`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from untrained.laws import Law

VOCABULARY: tuple[str, ...] = (
    "embedding",
    "position",
    "query",
    "key",
    "value",
    "output",
    "mlp",
    "norm",
    "unembedding",
    "bias",
)
"""The components every transformer layout speaks of. A module's own layout may add names."""

STACKS: tuple[str, ...] = ("encoder", "decoder")
"""The stacks that a recipe may name before a component: `encoder.query`."""

Kind: TypeAlias = Literal["matrix", "embedding", "vector", "bias"]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One component of one layer, and its place in the model."""

    component: str
    """The component's name, dotted where it is a part of another: `query`, `mlp.up`."""

    parameter: str
    """The tensor's name in `model.named_parameters()`."""

    shape: tuple[int, ...]
    """The logical shape, (out, in, ...)."""

    kind: Kind
    """matrix, embedding, vector (norms and other one-dimensional weights) or bias."""

    own: Law | None
    """The law by which the model itself draws this slot; None where only its values are known."""

    layer: int | None = None
    """The layer's index in its stack, or None outside the stack of layers."""

    stack: str | None = None
    """One of `STACKS` in a model that has several; None in a model of one, and outside of all."""

    depth: int | None = None
    """The number of layers of its stack, in a model of several; None is the model's number."""

    part: tuple[int, int] | None = None
    """The (start, stop) along the stored tensor's last axis, in a tensor fused of several parts."""

    transposed: bool = False
    """Whether the module stores (in, out), as `Conv1D` does."""

    residual: bool = False
    """Whether the slot writes to the residual stream (GPT-2's law scales these)."""

    head_width: int | None = None
    """The width of one head, for query and key (the `theory` law needs it)."""

    @property
    def name(self) -> str:
        """The component and its stack, as a recipe says them: `query`, `decoder.cross.query`."""
        return self._within_stack(self.component)

    @property
    def role(self) -> str:
        """The slot's name apart from any model: `layers.3.query`, `encoder.layers.3.query`."""
        layer = "" if self.layer is None else f"layers.{self.layer}."
        return self._within_stack(f"{layer}{self.component}")

    @property
    def shared_role(self) -> str:
        """The role apart from the layer: what layers that share a tensor call it."""
        layer = "" if self.layer is None else "layers.*."
        return self._within_stack(f"{layer}{self.component}")

    @property
    def layer_number(self) -> int | None:
        """The layer's index, of two stacks never the same."""
        if self.layer is None or self.stack is None:
            return self.layer
        return self.layer * len(STACKS) + STACKS.index(self.stack)

    @property
    def path(self) -> tuple[str, ...]:
        """The component's name in parts: `mlp.up` is ("mlp", "up")."""
        return tuple(self.component.split("."))

    @property
    def owner(self) -> tuple[str, ...]:
        """The path of the component whose state this slot follows: for a bias, its component."""
        return self.path[1:] if self.kind == "bias" else self.path

    def is_part_of(self, path: tuple[str, ...]) -> bool:
        """Whether a path names this slot, with its stack or without: `query`, `encoder.query`."""
        return _starts(self.path, path) or _starts(self._stacked(self.path), path)

    def follows(self, path: tuple[str, ...]) -> bool:
        """Whether a path names the component whose state this slot follows."""
        return _starts(self.owner, path) or _starts(self._stacked(self.owner), path)

    @property
    def maskable(self) -> bool:
        """Whether a mask may lie on this slot: on matrices and embeddings only."""
        return self.kind in ("matrix", "embedding")

    def stored(self, tensor: torch.Tensor) -> torch.Tensor:
        """This slot's part of the module's tensor, as a view in the module's own layout."""
        if self.part is None:
            return tensor
        start, stop = self.part
        return tensor.narrow(tensor.dim() - 1, start, stop - start)

    def logical(self, stored: torch.Tensor) -> torch.Tensor:
        """The (out, in, ...) view of a tensor in the module's layout; its own inverse."""
        return stored.mT if self.transposed else stored

    def _within_stack(self, name: str) -> str:
        return name if self.stack is None else f"{self.stack}.{name}"

    def _stacked(self, path: tuple[str, ...]) -> tuple[str, ...]:
        return path if self.stack is None else (self.stack, *path)


def _starts(path: tuple[str, ...], head: tuple[str, ...]) -> bool:
    return path[: len(head)] == head
