"""Does a layout tell the truth about a fresh model?

A seed draws every value by the laws of the layout. If they are not those of the model's own
constructor, `apply` makes another model than its authors meant, without a word. So a fresh model is
held against its layout, once, when a family is described.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from untrained.components import Slot
from untrained.errors import RecipeError
from untrained.laws import Distribution, Place
from untrained.layouts.find import layout_of


def check(model: nn.Module) -> int:
    """Require that a freshly made model is covered by its layout and drawn by its laws.

    A row of zeros, as of a padding token, is left out. The more weights a tensor has, the closer
    the comparison: five standard errors.

    Args:
        model: a model that its constructor has just made.

    Returns:
        The number of tensors compared.

    Raises:
        RecipeError: a parameter without a place, or a slot whose values are of another law.
    """
    layout = layout_of(model)
    named = dict(model.named_parameters(remove_duplicate=False))
    have = {slot.parameter for slot in layout.slots} | {held.parameter for held in layout.fixed}
    if missing := sorted(named.keys() - have):
        raise RecipeError(f"the layout {layout.name!r} leaves out {', '.join(missing[:5])}")
    compared = [slot for slot in layout.slots if slot.own is not None]
    for slot in compared:
        _check_law(slot, slot.stored(named[slot.parameter].detach()).double(), layout.layers)
    return len(compared)


def _check_law(slot: Slot, held: Tensor, layers: int) -> None:
    assert slot.own is not None
    place = Place(slot.shape, layers=slot.depth or layers, residual=slot.residual)
    law = slot.own.distribution(place)
    if law.kind == "constant":
        if bool((held == law.scale).all()):
            return
        found = f"is not {law.scale:g} everywhere"
    else:
        drawn = held[held.abs().sum(-1) > 0] if held.dim() > 1 else held
        error = 5 / math.sqrt(2 * max(drawn.numel(), 1))
        sd = float(drawn.square().mean().sqrt()) if drawn.numel() else 0.0
        if abs(sd / _sd(law) - 1) <= error:
            return
        found = f"has a standard deviation of {sd:.3g}"
    raise RecipeError(
        f"{slot.parameter} of a fresh model {found}, but its layout says {slot.own}; give the law "
        f"of {slot.component} in table(..., laws={{...}})"
    )


def _sd(law: Distribution) -> float:
    """The standard deviation of a distribution around 0."""
    return law.scale / math.sqrt(3) if law.kind == "uniform" else law.scale
