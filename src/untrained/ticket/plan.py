"""Which tensors does a ticket have to give, and where do they go?

A *plan* lists every piece of every tensor of a model: its slot and its state. A tied tensor comes
once, under all its names. Tensors that the model's constructor computes are given by the model
itself, and only compared. A plan is made from the model's shapes alone, so the model may lie on the
meta device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from untrained.components import Slot
from untrained.engine import guarded
from untrained.errors import TicketError
from untrained.layouts import Fixed, Layout, layout_of, modules
from untrained.recipe import Recipe
from untrained.states import State


@dataclass(frozen=True)
class Piece:
    """One slot and its state."""

    slot: Slot
    state: State

    @property
    def role(self) -> str:
        return self.slot.role

    def __str__(self) -> str:
        layer = self.slot.layer
        return self.slot.name + ("" if layer is None else f" of layer {layer}")


@dataclass(frozen=True)
class Target:
    """One tensor of the model and its pieces."""

    names: tuple[str, ...]
    """Every name of the tensor in the model; several if it is tied."""

    shape: tuple[int, ...]
    """The shape as the module stores it."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Plan:
    """All tensors of a model under a recipe."""

    layers: int
    """The number of layers, which some laws use."""

    targets: tuple[Target, ...]
    buffers: dict[str, Tensor]
    """The persistent buffers of the model, by name."""

    fixed: tuple[Fixed, ...] = ()
    """The tensors that the model computes itself."""

    @classmethod
    def of(cls, model: nn.Module, layout: Layout, recipe: Recipe) -> Plan:
        """Plan a model.

        Raises:
            RecipeError: the recipe does not fit the model.
            TicketError: two tensors of one role, or one tied tensor in two states.
        """
        states = recipe.states(layout)
        named = dict(model.named_parameters(remove_duplicate=False))
        slots: dict[int, list[Slot]] = {}
        for slot in layout.slots:
            slots.setdefault(id(named[slot.parameter]), []).append(slot)
        targets = tuple(
            Target(
                tuple(n for n, p in named.items() if p is named[group[0].parameter]),
                tuple(named[group[0].parameter].shape),
                tuple(_distinct({slot: states[slot] for slot in group})),
            )
            for group in slots.values()
        )
        plan = cls(layout.layers, targets, _persistent_buffers(model), layout.fixed)
        _check_roles(plan)
        return plan

    @property
    def pieces(self) -> Iterator[Piece]:
        return (piece for target in self.targets for piece in target.pieces)


def find_layout(model: nn.Module, name: str, patterns: tuple[tuple[str, str], ...]) -> Layout:
    """The layout that a ticket names, of a model.

    Raises:
        RecipeError: patterns that do not fit the model.
        TicketError: a layout that cannot be found by its name.
    """
    layout = modules(model, dict(patterns)) if name == "modules" else layout_of(model)
    if layout.name != name or layout.patterns != patterns:
        raise TicketError(
            f"the layout {name!r} cannot be found again by its name; a ticket may name a "
            "family that layouts knows or that was registered, or modules with its patterns"
        )
    return layout


def put(model: nn.Module, names: tuple[str, ...], value: Tensor) -> None:
    """Give a parameter or buffer its value: in place if it has memory, else as a new, tied one."""
    owners = [
        (model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names
    ]
    first: Tensor = getattr(*owners[0])
    if not first.is_meta:
        first.data = value.to(first.device)
        return
    fresh = nn.Parameter(value, first.requires_grad) if isinstance(first, nn.Parameter) else value
    for owner, tail in owners:
        setattr(owner, tail, fresh)


def check_free(model: nn.Module) -> None:
    """Refuse a model that belongs to a search.

    Raises:
        TicketError: it does.
    """
    for name, parameter in model.named_parameters():
        if guarded(parameter):
            raise TicketError(
                f"{name} belongs to a search; call release() on it, or make a new model"
            )


def _distinct(states: dict[Slot, State]) -> Iterator[Piece]:
    """Of slots that are one place of a tied tensor, the first; their states must agree."""
    seen: dict[tuple[int, int] | None, Piece] = {}
    for slot, state in states.items():
        first = seen.setdefault(slot.part, Piece(slot, state))
        if first.state != state:
            raise TicketError(f"{first.role} and {slot.role} are one tied tensor in two states")
    yield from seen.values()


def _check_roles(plan: Plan) -> None:
    """Values are named by role; two tensors of one role would be one value."""
    seen: set[str] = set()
    for piece in plan.pieces:
        if piece.role in seen:
            raise TicketError(
                f"two tensors have the role {piece.role}; give each its own pattern in "
                "layouts.modules(model, patterns)"
            )
        seen.add(piece.role)


def _persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """What `state_dict` holds beside parameters."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}
