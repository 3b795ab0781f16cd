"""Which layout fits this model?"""

from __future__ import annotations

from torch import nn
from transformers import GPT2Model, PreTrainedModel

from untrained.errors import RecipeError
from untrained.layouts.gpt2 import gpt2
from untrained.layouts.layout import Layout
from untrained.layouts.modules import modules

_FAMILIES = {GPT2Model: gpt2}


def layout_of(model: nn.Module) -> Layout:
    """Describe a model: by its family if one is known, else by the names of its modules.

    Raises:
        RecipeError: a Hugging Face model of an unknown family (its own initialisation is not
            torch's, so that guessing would change the model without a word).
    """
    for family, layout in _FAMILIES.items():
        if any(isinstance(module, family) for module in model.modules()):
            return layout(model)
    if any(isinstance(module, PreTrainedModel) for module in model.modules()):
        known = ", ".join(family.__name__ for family in _FAMILIES)
        raise RecipeError(
            f"{type(model).__name__} has no layout (known: {known}); name its parts yourself, "
            "with apply(model, recipe, layout=untrained.layouts.modules(model, patterns))"
        )
    return modules(model)
