"""Which layout fits this model?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import nn
from transformers import GPT2Model, MarianModel, PreTrainedModel

from untrained.errors import RecipeError
from untrained.layouts import bert, llama
from untrained.layouts.gpt2 import gpt2
from untrained.layouts.layout import Layout
from untrained.layouts.marian import marian
from untrained.layouts.modules import modules

Describe: TypeAlias = Callable[[nn.Module], Layout]

_FAMILIES: dict[type[nn.Module], Describe] = {
    GPT2Model: gpt2,
    **dict.fromkeys(llama.BODIES, llama.llama),
    **dict.fromkeys(bert.BODIES, bert.bert),
    MarianModel: marian,
}


def register(body: type[nn.Module], layout: Describe) -> None:
    """Teach this process a family of models, so that `apply` and tickets find its layout.

    Args:
        body: the family's class without a head, such as `OPTModel`; a model that holds one is of
            the family. Registering it again replaces the layout.
        layout: from a model of the family to its layout, such as a call of `table`.

    Raises:
        RecipeError: something that is no class of modules.
    """
    if not (isinstance(body, type) and issubclass(body, nn.Module)):
        raise RecipeError(f"{body!r} is not a class of modules, such as OPTModel; register that")
    _FAMILIES[body] = layout


def layout_of(model: nn.Module) -> Layout:
    """Describe a model: by its family if one is known, else by the names of its modules.

    Raises:
        RecipeError: a Hugging Face model of an unknown family (its own initialisation is not
            torch's, so that guessing would change the model without a word), or one that joins
            two models.
    """
    for family, layout in reversed(_FAMILIES.items()):
        bodies = [name for name, module in model.named_modules() if isinstance(module, family)]
        if bodies:
            _check_alone(model, bodies[0])
            return layout(model)
    if any(isinstance(module, PreTrainedModel) for module in model.modules()):
        known = ", ".join(family.__name__ for family in _FAMILIES)
        raise RecipeError(
            f"{type(model).__name__} has no layout (known: {known}); describe its family once, "
            "with untrained.layouts.register, or this model's parts, with "
            "apply(model, recipe, layout=untrained.layouts.modules(model, patterns))"
        )
    return modules(model)


def _check_alone(model: nn.Module, body: str) -> None:
    """Refuse a second Hugging Face model beside the body, of which the layout knows nothing."""
    for name, module in model.named_modules():
        around = not name or f"{body}.".startswith(f"{name}.")
        inside = not body or f"{name}.".startswith(f"{body}.")
        if isinstance(module, PreTrainedModel) and not around and not inside:
            raise RecipeError(
                f"{type(model).__name__} joins {body} and {name}, a {type(module).__name__}, and a "
                "layout describes one body; register a layout for the whole class "
                f"(untrained.layouts.register({type(model).__name__}, ...))"
            )
