"""Where do the components lie in a module that nobody described?

Each parameter is named after its module: the recipe `encoder.0.linear1 = frozen` speaks of the
module of that name, `encoder` of all modules under it. Patterns give better names: in
`{"mlp.up": "blocks.*.fc1"}` the star is the layer's number, so that `mlp[0:4]` and
`share=layers` have a meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from torch import nn
from transformers.pytorch_utils import Conv1D

from untrained.components import Kind, Slot
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts.layout import Layout

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)


def modules(model: nn.Module, patterns: Mapping[str, str] | None = None) -> Layout:
    """Describe any module by the names of its modules.

    Args:
        model: any module.
        patterns: component name -> module or parameter name with `*` for the layer's number.
            What no pattern matches is named after its module.

    Raises:
        RecipeError: a pattern that matches nothing, or two that match one module.
    """
    named = _Patterns(patterns or {})
    slots = tuple(_slots(model, named))
    named.check_all_used(model)
    return Layout("modules", slots, tuple((patterns or {}).items()))


def rest(model: nn.Module, taken: set[str]) -> Iterator[Slot]:
    """The slots that a family's layout did not take, such as a task's own head."""
    return (slot for slot in _slots(model, _Patterns({})) if slot.parameter not in taken)


class _Patterns:
    """Component names by pattern, remembering which patterns were of use."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.rules = {name: (text, compile_pattern(name, text)) for name, text in patterns.items()}
        self.used: set[str] = set()

    def name(self, *candidates: str) -> tuple[str, int | None] | None:
        """The component and layer of the first candidate that a pattern matches."""
        for candidate in candidates:
            hits = [
                (n, m) for n, (_, rule) in self.rules.items() if (m := rule.fullmatch(candidate))
            ]
            if len(hits) > 1:
                both = " and ".join(f"{n}: {self.rules[n][0]}" for n, _ in hits)
                raise RecipeError(f"two patterns match {candidate}: {both}; leave one of them out")
            if hits:
                name, match = hits[0]
                self.used.add(name)
                return name, int(match[1]) if match.groups() else None
        return None

    def check_all_used(self, model: nn.Module) -> None:
        for name, (text, _) in self.rules.items():
            if name not in self.used:
                have = ", ".join(dict(model.named_modules()).keys() - {""}) or "no submodules"
                raise RecipeError(f"pattern {text!r} for {name} matches nothing; there are: {have}")


def compile_pattern(name: str, text: str) -> re.Pattern[str]:
    """The pattern as a regular expression, the layer's number its only group.

    Raises:
        RecipeError: more than one star.
    """
    if text.count("*") > 1:
        raise RecipeError(f"pattern {text!r} for {name}: one star at most, for the layer's number")
    return re.compile(re.escape(text).replace(r"\*", r"(\d+)"))


def _slots(model: nn.Module, patterns: _Patterns) -> Iterator[Slot]:
    for module_name, module in model.named_modules(remove_duplicate=False):
        for tail, parameter in module.named_parameters(recurse=False):
            full = f"{module_name}.{tail}".lstrip(".")
            alone = full if tail not in ("weight", "bias") else module_name or "weight"
            component, layer = patterns.name(module_name, full) or (alone, None)
            kind, own = _kind_and_law(module, tail)
            stored = tuple(parameter.shape)
            transposed = isinstance(module, Conv1D) and tail == "weight"
            yield Slot(
                component=f"bias.{component}" if kind == "bias" else component,
                layer=layer,
                parameter=full,
                shape=stored[::-1] if transposed else stored,
                kind=kind,
                own=own,
                transposed=transposed,
            )


def _kind_and_law(module: nn.Module, tail: str) -> tuple[Kind, Law | None]:
    """What a parameter is, and the law by which torch itself draws it."""
    parameter = module.get_parameter(tail)
    if "bias" in tail:
        return "bias", _bias_law(module)
    if parameter.dim() < 2:
        return "vector", Law("ones") if isinstance(module, _NORMS) else None
    if isinstance(module, nn.Embedding):
        return "embedding", Law("normal")
    if isinstance(module, Conv1D):
        return "matrix", Law("normal", 0.02)
    return "matrix", Law("linear") if isinstance(module, _LINEAR) else None


_LINEAR = (nn.Linear, nn.modules.conv._ConvNd)


def _bias_law(module: nn.Module) -> Law | None:
    if isinstance(module, (*_NORMS, Conv1D)):
        return Law("zeros")
    if isinstance(module, _LINEAR):
        fan_in = math.prod(module.weight.shape[1:])
        return Law("uniform", 1 / math.sqrt(fan_in)) if fan_in else None
    return None
