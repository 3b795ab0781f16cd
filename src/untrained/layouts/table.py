"""How does a table of names become a layout?

A family of Hugging Face models is described by which module holds which component:

    table(model, OPTModel, "opt", {"query": "decoder.layers.*.self_attn.q_proj", ...})

Names are relative to the family's body (`OPTModel`, wherever it sits in the model), and the star
is the layer's number. Every parameter of the body must have a name, so a table that is misspelt
or too short is an error and not a guess. What lies around the body (a language model's head, a
classifier) may be named too, by its full name; else it is called after its module.

The own law is that of transformers' `PreTrainedModel._init_weights`: matrices and embeddings
N(0, initializer_range), biases 0, norms 1. It leaves the row of the padding token at 0; here that
row is drawn like every other, since an embedding is one tensor under one law and one `keep`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from untrained.components import STACKS, Slot
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts.layout import Fixed, Layout
from untrained.layouts.modules import compile_pattern, modules

Names = Mapping[str, str | tuple[str, ...]]


def table(
    model: nn.Module,
    body: type[nn.Module],
    name: str,
    parts: Names,
    *,
    laws: Mapping[str, Law] | None = None,
    fixed: tuple[Fixed, ...] = (),
) -> Layout:
    """Describe a model of a family by a table.

    Args:
        model: a model that holds one `body`.
        body: the family's class without a head.
        name: the layout's name, which a ticket says.
        parts: component, `encoder.` or `decoder.` before it in a model of both -> module or
            parameter, `*` for the layer's number; several where they are one tied tensor.
        laws: component -> the law by which the model itself draws it, where it is another one
            than transformers' usual.
        fixed: tensors that the model computes itself.

    Raises:
        RecipeError: a parameter of the body that the table does not name, or two tensors of one
            name.
    """
    prefix, inside = find_body(model, body)
    config: Any = inside.config
    computed = {held.parameter for held in fixed}
    plain = [slot for slot in modules(model).slots if slot.parameter not in computed]
    names = _Names(prefix, parts)
    named = [_named(slot, names) for slot in plain]
    if unknown := [
        slot.parameter
        for slot, found in zip(plain, named, strict=True)
        if found is None and slot.parameter.startswith(prefix)
    ]:
        raise RecipeError(
            f"the layout {name!r} does not know {', '.join(unknown[:5])} of "
            f"{type(inside).__name__}; register a layout that names every parameter "
            "(untrained.layouts.register)"
        )
    described = (
        _described(found or slot, model, config, laws or {})
        for slot, found in zip(plain, named, strict=True)
    )
    slots = tuple(_with_depth(tuple(described)))
    _check_roles(model, name, slots)
    return Layout(name, slots, fixed=fixed)


def find_body(model: nn.Module, body: type[nn.Module]) -> tuple[str, nn.Module]:
    """What stands before the names of the first module of a class, and the module.

    Raises:
        RecipeError: the model holds none.
    """
    for name, module in model.named_modules():
        if isinstance(module, body):
            return f"{name}." if name else "", module
    raise RecipeError(
        f"{type(model).__name__} holds no {body.__name__}; describe it by the class that it holds, "
        "or by its own"
    )


def _usual_sd(config: Any) -> float:
    """The standard deviation of transformers' `_init_weights`."""
    for field in ("initializer_range", "init_std", "initializer_factor"):
        if hasattr(config, field):
            return float(getattr(config, field) or 0.02)
    return 0.02


class _Names:
    """The components by the full names of their modules."""

    def __init__(self, prefix: str, parts: Names) -> None:
        self.rules = [
            (component, compile_pattern(component, text))
            for component, texts in parts.items()
            for text in ((texts,) if isinstance(texts, str) else texts)
        ]
        self.prefix = prefix

    def find(self, full: str) -> tuple[str, int | None] | None:
        """The component and layer of a module or parameter, or None."""
        relative = full.removeprefix(self.prefix)
        for component, rule in self.rules:
            if match := rule.fullmatch(relative) or rule.fullmatch(full):
                return component, int(match[1]) if match.groups() else None
        return None


def _named(slot: Slot, names: _Names) -> Slot | None:
    """The slot under its component's name, or None if the table does not say one."""
    module = slot.parameter.rpartition(".")[0]
    found = names.find(slot.parameter) or names.find(module)
    if found is None:
        return None
    name, layer = found
    head, _, tail = name.partition(".")
    stack, component = (head, tail) if head in STACKS and tail else (None, name)
    component = f"bias.{component}" if slot.kind == "bias" else component
    return replace(slot, component=component, stack=stack, layer=layer)


def _described(slot: Slot, model: nn.Module, config: Any, laws: Mapping[str, Law]) -> Slot:
    """The slot with what its name says about it: law, residual, width of a head."""
    last = slot.path[-1]
    matrix = slot.kind == "matrix"
    return replace(
        slot,
        own=next(
            (laws[n] for n in (slot.name, slot.component, slot.path[0]) if n in laws),
            usual_law(slot, model, config),
        ),
        residual=matrix and (last == "output" or slot.path == ("mlp", "down")),
        head_width=_head_width(slot, config) if matrix and last in ("query", "key") else None,
    )


def usual_law(slot: Slot, model: nn.Module, config: Any) -> Law | None:
    """The law of transformers' `_init_weights`; None for what only the slot's module knows."""
    if slot.kind == "bias":
        return Law("zeros")
    if slot.maskable:
        return Law("normal", _usual_sd(config))
    owner = type(model.get_submodule(slot.parameter.rpartition(".")[0])).__name__
    return Law("ones") if "LayerNorm" in owner or "RMSNorm" in owner else None


def _head_width(slot: Slot, config: Any) -> int | None:
    """The width of a head, rows over heads, or None if the configuration does not say."""
    grouped = ("num_key_value_heads",) if slot.path[-1] == "key" else ()
    for field in (*grouped, f"{slot.stack}_attention_heads", "num_attention_heads"):
        if heads := getattr(config, field, None):
            return slot.shape[0] // int(heads)
    return None


def _with_depth(slots: tuple[Slot, ...]) -> Iterator[Slot]:
    """The slots of a stack with the number of its layers."""
    depth: dict[str | None, int] = {}
    for slot in slots:
        depth[slot.stack] = max(depth.get(slot.stack, 1), 1 + (slot.layer or 0))
    return (replace(s, depth=depth[s.stack]) if s.stack else s for s in slots)


def _check_roles(model: nn.Module, name: str, slots: tuple[Slot, ...]) -> None:
    """Two tensors of one role would be drawn alike."""
    named = dict(model.named_parameters(remove_duplicate=False))
    seen: dict[str, Slot] = {}
    for slot in slots:
        first = seen.setdefault(slot.role, slot)
        if named[first.parameter] is not named[slot.parameter]:
            raise RecipeError(
                f"the layout {name!r} calls both {first.parameter} and {slot.parameter} "
                f"{slot.role}, but they are two tensors; give each its own component"
            )
