"""Which component is in which state?

A recipe maps components to states, prints as text and parses from the same text:

    query,key = frozen; mlp = masked(keep=0.3, init=signed_constant, share=layers)

Components that no clause names are trained. `all` names every component. Where several clauses
name one component the more specific wins, whatever the order: `mlp.up` over `mlp` over `all`,
and `mlp[0:4]` over `mlp`. A bias follows the state of its component unless `bias` is named; its
values then come from the model's own law, since a law for matrices says nothing about biases.

In a model of several stacks `query` names it in every stack, and `encoder.query` in one; the parts
of a cross-attention have a word of their own, `cross.query`, and `query` does not name them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from untrained.components import STACKS, Slot
from untrained.errors import RecipeError
from untrained.layouts import Layout
from untrained.states import AS_IS, OWN, STATES, Frozen, Masked, State, Trained

PRESETS: dict[str, str] = {
    "supermask": (
        "all = masked(keep=0.5, init=signed_constant); "
        "norm = frozen(init=ones); bias = frozen(init=zeros)"
    ),
    "one_layer": (
        "all = masked(keep=0.5, init=kaiming_uniform, share=layers); "
        "norm = frozen(init=ones); bias = frozen(init=zeros)"
    ),
    "slt_attention": (
        "all = frozen; query,key = masked(keep=0.3, init=gpt2, scale=2.83); "
        "value,output,mlp = masked(keep=0.3, init=gpt2)"
    ),
    "frozen_qk": "query,key = frozen",
    "frozen_mlp": "mlp = frozen",
    "random_transformer": "all = frozen; embedding,unembedding = trained",
    "dense": "all = trained",
}
"""Named recipes; `recipe("supermask")` is the recipe of that text."""


@dataclass(frozen=True)
class Selector:
    """What a clause names: a component, on all layers or some."""

    path: tuple[str, ...]
    """The component's name in parts; () is `all`."""

    layers: tuple[int | None, int | None] | None = None
    """(start, stop) as in a Python slice, or None for every layer."""

    def __str__(self) -> str:
        name = ".".join(self.path) or "all"
        if self.layers is None:
            return name
        start, stop = ("" if end is None else str(end) for end in self.layers)
        return f"{name}[{start}:{stop}]"

    @property
    def bias(self) -> bool:
        """Whether this speaks of biases themselves, not of components that biases follow."""
        return self.unstacked[:1] == ("bias",)

    @property
    def unstacked(self) -> tuple[str, ...]:
        """The path without the name of a stack."""
        return self.path[1:] if self.path[:1] and self.path[0] in STACKS else self.path

    def indices(self, layers: int) -> frozenset[int | None]:
        """The layers named, of a stack of so many; None stands for what lies outside the stack."""
        if self.layers is None:
            return frozenset([None, *range(layers)])
        return frozenset(range(layers)[slice(*self.layers)])

    def names(self, slot: Slot, layers: int) -> bool:
        """Whether this selector speaks of that slot."""
        named = slot.is_part_of(self.path) or (not self.bias and slot.follows(self.path))
        return named and slot.layer in self.indices(slot.depth or layers)

    def within(self, other: Selector, layers: int) -> bool:
        """Whether this is at least as specific as the other, in component and in layers.

        `bias` is more specific than any component that a bias merely follows.
        """
        size = len(other.path)
        part = self.path[:size] == other.path or self.unstacked[:size] == other.path
        return (self.bias and not other.bias) or (
            part and self.indices(layers) <= other.indices(layers)
        )


@dataclass(frozen=True)
class Clause:
    """`query,key = frozen`: some selectors and their state."""

    selectors: tuple[Selector, ...]
    state: State

    def __str__(self) -> str:
        return f"{','.join(map(str, self.selectors))} = {self.state}"


LONGEST = 4096
"""The characters of the longest recipe."""


@dataclass(frozen=True)
class Recipe:
    """An ordered set of clauses, no component named twice."""

    clauses: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        seen: set[Selector] = set()
        for selector, _ in self:
            if selector in seen:
                raise RecipeError(f"{selector} is named twice; say its state once")
            seen.add(selector)
        if (length := len(str(self))) > LONGEST:
            raise RecipeError(
                f"a recipe of {length:,} characters is too long for a ticket, which holds "
                f"{LONGEST:,}; name a whole component (mlp) or a range of layers (mlp[0:4])"
            )

    def __iter__(self) -> Iterator[tuple[Selector, State]]:
        for clause in self.clauses:
            for selector in clause.selectors:
                yield selector, clause.state

    def __str__(self) -> str:
        return "; ".join(map(str, self.clauses))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __or__(self, other: Recipe | str) -> Recipe:
        """Both recipes; where they name the same selector, the right one's state."""
        other = recipe(other)
        named = dict(other)
        left = (
            replace(clause, selectors=tuple(s for s in clause.selectors if s not in named))
            for clause in self.clauses
        )
        return Recipe((*(clause for clause in left if clause.selectors), *other.clauses))

    def states(self, layout: Layout) -> dict[Slot, State]:
        """The state of every slot of a model.

        Raises:
            RecipeError: a selector that matches nothing or has no effect, two that contradict
                each other, or a state that a slot cannot be in.
        """
        chosen = {slot: self._choose(slot, layout) for slot in layout.slots}
        self._check_effect(chosen, layout)
        return {
            slot: _state_of(slot, selector, state) for slot, (selector, state) in chosen.items()
        }

    def _choose(self, slot: Slot, layout: Layout) -> tuple[Selector | None, State]:
        """The most specific clause that names a slot."""
        hits = [(s, state) for s, state in self if s.names(slot, layout.layers)]
        best = [
            (s, state)
            for s, state in hits
            if all(s.within(other, slot.depth or layout.layers) for other, _ in hits)
        ]
        if not hits:
            return None, Trained()
        if not best and len({state for _, state in hits}) > 1:
            both = " and ".join(f"{s} = {state}" for s, state in hits[-2:])
            raise RecipeError(
                f"{slot.role} is named by {both}; neither is more specific than the other"
            )
        return (best or hits)[0]

    def _check_effect(
        self, chosen: dict[Slot, tuple[Selector | None, State]], layout: Layout
    ) -> None:
        """Every clause must name something, decide something, and share something if it shares."""
        for selector, state in self:
            if not any(selector.names(slot, layout.layers) for slot in chosen):
                if selector.path == ("bias",) and isinstance(state, Frozen):
                    continue  # a model without biases is one of biases that stay 0
                raise RecipeError(_nothing(selector, layout))
            decided = [slot for slot, (chosen_by, _) in chosen.items() if chosen_by == selector]
            if not decided:
                raise RecipeError(
                    f"{selector} = {state} has no effect: more specific clauses decide all that "
                    "it names; leave it out"
                )
            alike = [slot for slot, (_, other) in chosen.items() if other == state]
            _check_layers(selector, state, decided, alike)


def recipe(text: str | Recipe) -> Recipe:
    """Read a recipe from its text or from the name of a preset.

    Raises:
        RecipeError: text that is not a recipe; the message points at the clause.
    """
    if isinstance(text, Recipe):
        return text
    if not isinstance(text, str):
        raise RecipeError(f"a recipe is text, not {type(text).__name__}: 'query,key = frozen'")
    text = PRESETS.get(text.strip(), text)
    return Recipe(tuple(_clause(part.strip()) for part in text.split(";") if part.strip()))


_CLAUSE = re.compile(r"(?P<names>[^=()]+)=\s*(?P<word>\w+)\s*(\((?P<options>[^()]*)\))?")
_NAME = re.compile(r"(?P<name>\w+(\.\w+)*)\s*(\[\s*(?P<layers>[^\]]*)\])?")
_LAYERS = re.compile(r"(?P<start>-?\d+)?\s*(?P<colon>:)?\s*(?P<stop>-?\d+)?", re.ASCII)


def _clause(text: str) -> Clause:
    match = _CLAUSE.fullmatch(text)
    if not match:
        presets = ", ".join(PRESETS)
        raise RecipeError(
            f"cannot read {text[:80]!r}; a clause is 'name,name = state(option=value)', "
            f"as in 'query,key = frozen'; or name a preset: {presets}"
        )
    selectors = tuple(_selector(name.strip(), text) for name in match["names"].split(","))
    return Clause(selectors, _read_state(match["word"], match["options"] or "", text))


def _selector(text: str, clause: str) -> Selector:
    match = _NAME.fullmatch(text)
    if not match:
        raise RecipeError(f"cannot read the component {text!r} in {clause!r}")
    name: str = match["name"]
    path = () if name == "all" else tuple(name.split("."))
    return Selector(
        path, None if match["layers"] is None else _layers(match["layers"].strip(), text)
    )


def _layers(text: str, name: str) -> tuple[int | None, int | None]:
    match = _LAYERS.fullmatch(text)
    if not match or not text:
        raise RecipeError(f"cannot read the layers of {name!r}; write mlp[3], mlp[0:4] or mlp[-1]")
    start, stop = (None if match[end] is None else int(match[end]) for end in ("start", "stop"))
    if match["colon"]:
        return start, stop
    assert start is not None
    return start, None if start == -1 else start + 1


def _read_state(word: str, options: str, clause: str) -> State:
    if word not in STATES:
        raise RecipeError(f"{clause!r}: {word!r} is not a state; there are {', '.join(STATES)}")
    kind = STATES[word]
    known = {field.name: str(field.type) for field in fields(kind)}
    given: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        key, equals, value = (part.strip() for part in option.partition("="))
        if not equals or key not in known:
            raise RecipeError(
                f"{clause!r}: {option!r} is not an option of {word}; {_options(kind)}"
            )
        if key in given:
            raise RecipeError(f"{clause!r}: {key} is given twice")
        given[key] = _value(key, value, known[key], clause)
    if kind is Masked and "keep" not in given:
        raise RecipeError(f"{clause!r}: masked needs keep, the share of the weights kept: keep=0.5")
    return kind(**given)


def _options(kind: type) -> str:
    return "it takes " + ", ".join(field.name for field in fields(kind))


def _value(key: str, text: str, kind: str, clause: str) -> object:
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            raise RecipeError(f"{clause!r}: {key}={text} is not a number") from None
    if kind == "int":
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise RecipeError(f"{clause!r}: {key}={text} is not a whole number")
        return int(text)
    if kind == "bool | None":
        if text not in ("yes", "no"):
            raise RecipeError(f"{clause!r}: {key}={text}: {key} is yes or no")
        return text == "yes"
    return text


def _state_of(slot: Slot, selector: Selector | None, state: State) -> State:
    """A clause's state as it holds for one slot; refuses what the slot cannot be."""
    named = selector is not None and selector.bias
    if slot.kind == "bias" and not named:
        init = AS_IS if state.init == AS_IS else OWN
        return Trained(init=init) if isinstance(state, Trained) else Frozen(init=init)
    if isinstance(state, Masked) and not slot.maskable:
        raise RecipeError(
            f"{slot.role} cannot be masked (by {selector} = {state}): a mask lies on matrices and "
            f"embeddings only; add '{slot.path[0]} = frozen' or '{slot.path[0]} = trained'"
        )
    return state


def _check_layers(selector: Selector, state: State, decided: list[Slot], alike: list[Slot]) -> None:
    """What is asked of several layers needs several layers."""
    options = ("share", "share_scores", "scope")
    asked = [name for name in options if getattr(state, name, None) in ("layers", "layer")]
    if not asked:
        return
    sizes = Counter((slot.shared_role, slot.shape) for slot in alike if slot.layer is not None)
    alone = any(slot.layer for slot in alike) and max(sizes.values()) == 1
    for option in asked:
        if all(slot.layer is None for slot in decided):
            raise RecipeError(
                f"{selector} = {state}: {option}={getattr(state, option)} has no effect, "
                f"{selector} is outside the stack of layers; leave it out"
            )
        if alone and option != "scope":
            raise RecipeError(
                f"{selector} = {state}: {option}=layers has no effect, no two layers hold a tensor "
                "of one shape here; leave it out"
            )


def _nothing(selector: Selector, layout: Layout) -> str:
    """What to say about a selector that matches nothing."""
    without = replace(selector, layers=None)
    if any(without.names(slot, layout.layers) for slot in layout.slots):
        return f"{selector} names no layer: {without} has layers 0 to {layout.layers - 1}, or none"
    have = list(dict.fromkeys(c for c in layout.components if not c.startswith("bias.")))
    biases = ["bias"] if any(slot.kind == "bias" for slot in layout.slots) else []
    fixed = f"; {', '.join(f.name for f in layout.fixed)} computed by the model itself, which no "
    fixed += "recipe changes"
    return (
        f"component {without!s:.60} does not exist in {layout.name}; it has "
        f"{', '.join(dict.fromkeys([*have, *biases]))}{fixed if layout.fixed else ''}"
    )
