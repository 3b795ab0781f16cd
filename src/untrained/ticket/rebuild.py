"""How is an effective weight made again?

Trained ones are in the ticket. Random ones are drawn from the seed by role, or were kept as they
were and are in the ticket; then comes their mask. A few the model computes itself. In every case
the result has to have the checksum that the ticket tells.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from untrained.errors import TicketError
from untrained.layouts import Fixed
from untrained.source import draw_mask, draw_weights
from untrained.states import Masked, Trained
from untrained.ticket.content import Content
from untrained.ticket.plan import Piece, Plan, Target
from untrained.ticket.tensors import DTYPES, checksum


def rebuild(content: Content, piece: Piece, *, layers: int) -> Tensor:
    """The effective weight of a role, logical.

    Raises:
        TicketError: its checksum is not the ticket's.
    """
    wanted = content.checksums[piece.role]
    effective = (
        content.trained[piece.role]
        if isinstance(piece.state, Trained)
        else _masked(content, piece, layers).to(DTYPES[wanted.dtype])
    )
    found = checksum(effective)
    if found != wanted.sha256:
        raise TicketError(
            f"{piece} was rebuilt with checksum {found[:4]}, the ticket says {wanted.sha256[:4]}; "
            "written by another generator version?"
        )
    return effective


def rebuild_tensor(content: Content, target: Target, *, layers: int) -> Tensor:
    """One tensor of the model, as its module stores it.

    Raises:
        TicketError: the checksum of a piece is not the ticket's.
    """
    dtype = DTYPES[content.checksums[target.pieces[0].role].dtype]
    stored = torch.empty(target.shape, dtype=dtype)
    for piece in target.pieces:
        effective = rebuild(content, piece, layers=layers)
        piece.slot.stored(stored).copy_(piece.slot.logical(effective))
    return stored


def compute(content: Content, fixed: Fixed) -> Tensor:
    """A tensor that the model computes itself.

    Raises:
        TicketError: its checksum is not the ticket's.
    """
    wanted = content.checksums[fixed.name]
    value = fixed.compute().to(DTYPES[wanted.dtype])
    if (found := checksum(value)) != wanted.sha256:
        raise TicketError(
            f"{fixed.name} was computed with checksum {found[:4]}, the ticket says "
            f"{wanted.sha256[:4]}; changed after the model was made, or computed by another "
            "version of numpy or transformers?"
        )
    return value


def check_sums(content: Content, plan: Plan) -> int:
    """Rebuild every piece, one at a time; returns how many there are.

    Raises:
        TicketError: the first whose checksum is not the ticket's.
    """
    pieces = list(plan.pieces)
    for piece in pieces:
        rebuild(content, piece, layers=plan.layers)
    for fixed in plan.fixed:
        compute(content, fixed)
    return len(pieces) + len(plan.fixed)


def check_fit(content: Content, plan: Plan) -> None:
    """Require exactly the tensors that a plan asks for, in their shapes and types.

    Raises:
        TicketError: the first that is missing, of another shape or type, or not asked for.
    """
    pieces = {piece.role: piece for piece in plan.pieces}
    shapes = {role: piece.slot.shape for role, piece in pieces.items()}
    masked = {r: shapes[r] for r, piece in pieces.items() if isinstance(piece.state, Masked)}
    trained = {r: shapes[r] for r, piece in pieces.items() if isinstance(piece.state, Trained)}
    values = {r: shapes[r] for r, piece in pieces.items() if undrawable(piece)}
    sums = content.checksums
    fixed = {held.name: held.shape for held in plan.fixed}
    _check_shapes("checksum", {role: held.shape for role, held in sums.items()}, shapes | fixed)
    _check_shapes("mask", content.masks.shapes, masked)
    _check_shapes("trained tensor", _shapes(content.trained), trained)
    _check_shapes("value", _shapes(content.values), values)
    _check_shapes("buffer", _shapes(content.buffers), _shapes(plan.buffers))
    for role, tensor in content.trained.items():
        _check_dtype(role, tensor.dtype, DTYPES[sums[role].dtype])
    for name, buffer in content.buffers.items():
        asked = plan.buffers[name].dtype
        if not (buffer.is_floating_point() and asked.is_floating_point):  # a cast model casts both
            _check_dtype(name, buffer.dtype, asked)
    for target in plan.targets:
        first = sums[target.pieces[0].role].dtype
        for piece in target.pieces:
            _check_dtype(piece.role, DTYPES[sums[piece.role].dtype], DTYPES[first])


def undrawable(piece: Piece) -> bool:
    """Whether a role has random values that no seed gives: they were kept as they were."""
    state = piece.state
    return not isinstance(state, Trained) and state.law(piece.slot.own) is None


def _masked(content: Content, piece: Piece, layers: int) -> Tensor:
    """Random weights times their mask, float32."""
    slot, state = piece.slot, piece.state
    assert not isinstance(state, Trained)
    drawn = draw_weights(slot, state, seed=content.seed, layers=layers)
    weights = content.values[piece.role].float() if drawn is None else drawn
    mask = (
        content.masks[piece.role]
        if isinstance(state, Masked)
        else draw_mask(slot, state, seed=content.seed)
    )
    return weights if mask is None else weights * mask


def _check_shapes(
    what: str, held: Mapping[str, tuple[int, ...]], asked: Mapping[str, tuple[int, ...]]
) -> None:
    """Require the same names with the same shapes."""
    for name in asked:
        if name not in held:
            raise TicketError(f"the ticket lacks the {what} of {name}")
        if held[name] != asked[name]:
            raise TicketError(f"the {what} of {name} is {held[name]}, the model has {asked[name]}")
    for name in held:
        if name not in asked:
            raise TicketError(f"the ticket holds a {what} of {name[:80]!r}, which nothing asks for")


def _check_dtype(name: str, held: torch.dtype, asked: torch.dtype) -> None:
    if held != asked:
        raise TicketError(f"{name} is {held} in the ticket and has to be {asked}")


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
