"""In which state can a component be?

Every component of a model is `Trained`, `Frozen` or `Masked`. A state is a value: it holds no
tensor, is checked when made, prints as recipe text, and is equal to every state of the same text.

Source: the states are those of arXiv 2109.03939 (masked, shared over depth), 2511.04217 (masked,
frozen) and 2506.01115 (frozen, trained).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import ClassVar, Literal, TypeAlias

from untrained.errors import RecipeError
from untrained.laws import LAWS, OF_A_FAN, Law

By: TypeAlias = Literal["magnitude", "value"]
Scope: TypeAlias = Literal["tensor", "layer", "global", "erk"]

OWN = "own"
"""The initialisation of a component that asks for none: the model's own law."""

AS_IS = "as_is"
"""The initialisation that keeps the values which the model holds already."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "init": (OWN, AS_IS, *LAWS),
    "scores": tuple(LAWS),
    "by": ("magnitude", "value"),
    "scope": ("tensor", "layer", "global", "erk"),
    "share": ("none", "layers"),
    "share_scores": ("none", "layers"),
    "fan": ("in", "out", "avg"),
}


@dataclass(frozen=True, kw_only=True)
class _State:
    """What every state has: where its values come from."""

    word: ClassVar[str]
    """The state's name in a recipe."""

    init: str = OWN
    """The law of the values: `own` (the model's), `as_is` (what is there), or a name of `LAWS`."""

    scale: float = 1.0
    """A factor on the law's scale (`uniform`: the bound, `normal`: the sd)."""

    fan: str = "in"
    """Which fan the fan laws divide by: in, out, or avg."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))
        if self.init in (AS_IS, "zeros") and self.scale != 1.0:
            raise RecipeError(
                f"{self.word}(init={self.init}, scale={self.scale:g}): scale has no effect on "
                f"{self.init}; leave scale out, or name a law"
            )
        if self.fan != "in" and self.init not in OF_A_FAN:
            raise RecipeError(
                f"{self.word}(init={self.init}, fan={self.fan}): fan has no effect on {self.init}; "
                f"it is for {', '.join(OF_A_FAN)}"
            )
        if getattr(self, "share", "none") != "none" and self.init in ("zeros", "ones"):
            raise RecipeError(
                f"{self.word}(init={self.init}): share has no effect, {self.init} are the same in "
                "every layer; leave it out"
            )

    def __str__(self) -> str:
        options = [
            f"{f.name}={_print(getattr(self, f.name))}"
            for f in sorted(fields(self), key=lambda f: (f.name != "keep", f.name != "init"))
            if getattr(self, f.name) != f.default
        ]
        return f"{self.word}({', '.join(options)})" if options else self.word

    def law(self, own: Law | None) -> Law | None:
        """The law that this state draws by, or None where the values stay as they are."""
        if self.init == AS_IS or (self.init == OWN and own is None):
            return None
        rescale = getattr(self, "rescale", None)
        if self.init == OWN:
            assert own is not None
            return Law(own.name, own.scale * self.scale, own.fan, rescale)
        return Law(self.init, self.scale, self.fan, rescale)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class _Random(_State):
    """What the two states without trained weights share."""

    keep: float
    """The share of the weights kept, in (0, 1]."""

    share: str = "none"
    """`layers`: every layer looks at one random tensor; `none`: each layer has its own."""

    rescale: bool | None = None
    """Multiply by 1/sqrt(keep) so that the variance of a sum survives the mask (None: the law's
    own custom, which is yes for the laws that divide by a fan)."""


@dataclass(frozen=True, kw_only=True)
class Trained(_State):
    """The parameter itself is learned; its first value is drawn from the seed too."""

    word: ClassVar[str] = "trained"


@dataclass(frozen=True, kw_only=True)
class Frozen(_Random):
    """Drawn once and never changed; with keep < 1, under a random mask that is never changed."""

    word: ClassVar[str] = "frozen"

    keep: float = 1.0
    """The share of the weights kept by a fixed random mask, in (0, 1]; 1 is no mask at all."""


@dataclass(frozen=True, kw_only=True)
class Masked(_Random):
    """A random weight times a 0/1 mask; what is learned is a score per weight."""

    word: ClassVar[str] = "masked"

    by: By = "magnitude"
    """Keep the weights of largest |score| (`magnitude`) or of largest score (`value`)."""

    scope: Scope = "tensor"
    """Where `keep` is held: in each tensor, each layer, over all tensors of this state (`global`),
    or over all with larger shares for small tensors (`erk`)."""

    scores: str = "linear"
    """The law of the first scores; `linear` is uniform in +-1/sqrt(fan_in)."""

    scores_scale: float = 1.0
    """A factor on the first scores."""

    share_scores: str = "none"
    """`layers`: every layer wears one mask; `none`: each layer has its own scores."""

    tile_rows: int = 1
    """The scores are one block of rows, repeated so many times along `out`: with the number of
    heads on query, key or value, every head wears one mask."""

    tile_columns: int = 1
    """The same along `in`, as for the output projection, whose heads lie there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scores in ("zeros", "ones") and self.scores_scale != 1.0:
            raise RecipeError(
                f"{self}: scores_scale has no effect on the order of scores that are all equal"
            )
        if self.share_scores == "layers" and self.scope == "layer":
            raise RecipeError(
                f"{self}: scores that all layers share belong to no layer; take scope=tensor"
            )

    def scores_law(self) -> Law:
        """The law of the first scores. It never depends on keep."""
        return Law(self.scores, self.scores_scale, rescale=None)


State: TypeAlias = Trained | Frozen | Masked
STATES: dict[str, type[Trained] | type[Frozen] | type[Masked]] = {
    state.word: state for state in (Trained, Frozen, Masked)
}


def _check(name: str, value: object) -> None:
    """Refuse an option's value that makes no sense, saying what would."""
    if name in _CHOICES and value not in _CHOICES[name]:
        raise RecipeError(f"{name}={value}: {name} is one of {', '.join(_CHOICES[name])}")
    if name in ("keep", "scale", "scores_scale"):
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
            raise RecipeError(f"{name}={value!r}: {name} is a number above 0")
        if name == "keep" and value > 1:  # type: ignore[operator]
            raise RecipeError(f"keep={value}: keep is the share of the weights kept, in (0, 1]")
    if name in ("tile_rows", "tile_columns"):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= 2**20:  # type: ignore[operator]
            raise RecipeError(f"{name}={value}: {name} is a whole number of tiles, at least 1")
    if name == "rescale" and value is not None and not isinstance(value, bool):
        raise RecipeError(f"rescale={value!r}: rescale is yes or no (True or False)")


def _print(value: object) -> str:
    """An option's value as recipe text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(float(value)).removesuffix(".0") if isinstance(value, int | float) else str(value)
