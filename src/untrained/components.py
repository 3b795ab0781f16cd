"""Which parts does a model have, and where do they lie?

A *component* is a part by its role (`query`, `mlp.up`, `norm`, ...), the same word for every model.
A *slot* is one component of one layer in one tensor of the model: a fused query/key/value matrix
holds three slots. A slot knows how the module stores it; everything else in this library sees its
*logical* form, (out, in), whose row-major order numbers the elements.

A bias follows the component it belongs to, unless a recipe names `bias`.
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
    """The layer's index, or None outside the stack of layers."""

    part: tuple[int, int] | None = None
    """The (start, stop) along the stored tensor's last axis, in a tensor fused of several parts."""

    transposed: bool = False
    """Whether the module stores (in, out), as `Conv1D` does."""

    residual: bool = False
    """Whether the slot writes to the residual stream (GPT-2's law scales these)."""

    head_width: int | None = None
    """The width of one head, for query and key (the `theory` law needs it)."""

    @property
    def role(self) -> str:
        """The slot's name apart from any model: `layers.3.query`, `embedding`."""
        return self.component if self.layer is None else f"layers.{self.layer}.{self.component}"

    @property
    def path(self) -> tuple[str, ...]:
        """The component's name in parts: `mlp.up` is ("mlp", "up")."""
        return tuple(self.component.split("."))

    @property
    def owner(self) -> tuple[str, ...]:
        """The path of the component whose state this slot follows: for a bias, its component."""
        return self.path[1:] if self.kind == "bias" else self.path

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
