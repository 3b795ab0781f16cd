"""Which random values does a slot hold?

Every value comes from the seed and the slot's role, never from what was drawn before, so that one
seed gives a whole model and any tensor of it can be drawn again alone. Streams:

    layers.3.query/weights    the random weights, and the first value of a trained tensor
    layers.*.query/weights    the same, where the layers share one tensor
    layers.3.query/scores     the first scores of a masked slot
    layers.*.query/scores     the same, where the layers share one mask
    encoder.layers.*.query/weights    what the layers of one stack share, in a model of several
    layers.3.query/mask       the scores of the fixed mask of a frozen slot with keep < 1
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from untrained.components import Slot
from untrained.errors import RecipeError
from untrained.laws import Law, Place
from untrained.random import draw
from untrained.select import kept_count, top_mask
from untrained.states import Frozen, Masked, State


def draw_weights(slot: Slot, state: State, *, seed: int, layers: int) -> Tensor | None:
    """The slot's random values, logical float32, or None where they stay as they are.

    Raises:
        RecipeError: values that are kept as they are cannot be shared.
    """
    law = state.law(slot.own)
    shared = getattr(state, "share", "none") == "layers"
    if law is None:
        if shared and slot.layer is not None:
            raise RecipeError(f"{slot.role} = {state}: values kept as they are cannot be shared")
        return None
    name = slot.shared_role if shared else slot.role
    return draw(seed, f"{name}/weights", slot.shape, law, place=_place(slot, state, layers))


def draw_scores(slot: Slot, state: Masked, *, seed: int, layers: int) -> Tensor:
    """The first scores of a masked slot, logical float32; one block of them if they are tiled.

    Raises:
        RecipeError: tiles that do not divide the slot.
    """
    shared = state.share_scores == "layers"
    name = f"{slot.shared_role if shared else slot.role}/scores"
    block = _block(slot, state)
    place = replace(_place(slot, state, layers), shape=block)
    return draw(seed, name, block, state.scores_law(), place=place)


def _block(slot: Slot, state: Masked) -> tuple[int, ...]:
    """The shape of the scores: the slot's, or that of one tile of it."""
    out, inputs, *more = slot.shape
    for size, tiles, option in (
        (out, state.tile_rows, "tile_rows"),
        (inputs, state.tile_columns, "tile_columns"),
    ):
        if size % tiles:
            raise RecipeError(
                f"{slot.role} = {state}: {option}={tiles} does not divide {size}, of shape "
                f"{tuple(slot.shape)} (out, in)"
            )
    return (out // state.tile_rows, inputs // state.tile_columns, *more)


def draw_mask(slot: Slot, state: Frozen, *, seed: int) -> Tensor | None:
    """The fixed random mask of a frozen slot, logical, or None where all is kept."""
    if state.keep == 1.0:
        return None
    scores = draw(seed, f"{slot.role}/mask", slot.shape, Law("uniform"))
    return top_mask(scores, kept_count(state.keep, scores.numel()), by="value", name=slot.role)


def _place(slot: Slot, state: State, layers: int) -> Place:
    return Place(
        slot.shape,
        keep=getattr(state, "keep", 1.0),
        layers=slot.depth or layers,
        residual=slot.residual,
        head_width=slot.head_width,
    )
