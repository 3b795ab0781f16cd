"""From which distribution is a random weight drawn?

A law is a name and a few settings. With the facts of a *place* (shape, keep, depth) it becomes a
*distribution*: one of four kinds, and one number. That number is made of float64 products,
quotients and square roots only, which IEEE 754 rounds alike on every machine; `random` rounds it
to float32 once.

Sources: He et al. 2015 (kaiming), Glorot and Bengio 2010 (xavier), Radford et al. 2019 (gpt2),
arXiv 1911.13299 (signed constants; sqrt(2) larger there), arXiv 2511.04217 (theory).
"""

from __future__ import annotations

import math
import numbers
import operator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from untrained.errors import RandomError

Fan: TypeAlias = Literal["in", "out", "avg"]
Kind: TypeAlias = Literal["signs", "constant", "uniform", "normal"]

LAWS: dict[str, str] = {
    "signed_constant": "+-1/sqrt(fan)",
    "unsigned_constant": "1/sqrt(fan)",
    "kaiming_uniform": "uniform, sd sqrt(2/fan)",
    "kaiming_normal": "normal, sd sqrt(2/fan)",
    "xavier_uniform": "uniform, sd sqrt(2/(fan_in + fan_out))",
    "xavier_normal": "normal, sd sqrt(2/(fan_in + fan_out))",
    "linear": "uniform, bound 1/sqrt(fan_in): torch's own Linear",
    "gpt2": "normal, sd 0.02; divided by sqrt(2 layers) where the residual stream is written to",
    "theory": "uniform, bound head_width^(1/4) for query and key, 1 elsewhere",
    "uniform": "uniform, bound 1",
    "normal": "normal, sd 1",
    "ones": "1 everywhere",
    "zeros": "0 everywhere",
}
"""Every law, and what it draws at scale 1."""

LEAST, MOST = 2.0**-64, 2.0**64
"""The scales that can be drawn: every value is then a normal, finite float32, whatever its law, so
that a processor which flushes denormals to zero draws the same."""

OF_A_FAN = ("signed_constant", "unsigned_constant", "kaiming_uniform", "kaiming_normal")
"""The laws that divide by the fan that `fan` names."""

_RESCALED = {*OF_A_FAN, "xavier_uniform", "xavier_normal", "linear"}
_FIXED = {"ones", "zeros"}


@dataclass(frozen=True)
class Place:
    """The facts about a tensor that a law may use.

    Raises:
        RandomError: a fact that cannot be.
    """

    shape: tuple[int, ...]
    """The logical shape, (out, in, ...)."""

    keep: float = 1.0
    """The share of the weights that a mask keeps, in (0, 1]."""

    layers: int = 1
    """The number of layers in the model's stack."""

    residual: bool = False
    """Whether what the tensor computes is added to the residual stream."""

    head_width: int | None = None
    """The width of a head, where the tensor is a query or a key."""

    def __post_init__(self) -> None:
        try:
            sizes = tuple(whole_number(size, "a size in a shape", least=0) for size in self.shape)
        except TypeError:
            raise RandomError(f"{self.shape!r} is not a shape, such as (3, 4) or (3,)") from None
        object.__setattr__(self, "shape", sizes)
        if math.prod(sizes) >= 2**63:
            raise RandomError(f"shape {sizes} has {math.prod(sizes)} elements; at most 2^63 - 1")
        whole_number(self.layers, "layers", least=1)
        if self.head_width is not None:
            whole_number(self.head_width, "head_width", least=1)
        if not 0 < _real(self.keep, "keep") <= 1:
            raise RandomError(f"keep={self.keep!r}: keep is the share kept, in (0, 1]")

    def fan(self, mode: Fan) -> float:
        """How many inputs or outputs a unit has, or the mean of both; never below 1.

        As torch counts: a kernel's field is a factor of both. A vector's size is all its fans.
        """
        if len(self.shape) < 2:
            return float(max(math.prod(self.shape), 1))
        field = math.prod(self.shape[2:])
        inputs, outputs = max(self.shape[1] * field, 1), max(self.shape[0] * field, 1)
        return {"in": float(inputs), "out": float(outputs), "avg": (inputs + outputs) / 2}[mode]


@dataclass(frozen=True)
class Distribution:
    """What values are drawn from."""

    kind: Kind
    """Both signs of one value, one value, an interval around 0, or a bell around 0."""

    scale: float
    """The absolute value (`signs`), the value, the bound, or the standard deviation."""


@dataclass(frozen=True, repr=False)
class Law:
    """A named law and its settings.

    Raises:
        RandomError: a name that is no law, or a setting that makes no sense.
    """

    name: str
    """One of `LAWS`."""

    scale: float = 1.0
    """A factor on what the law draws."""

    fan: Fan = "in"
    """Which fan stands in a law that says just `fan`; the others do not look at it."""

    rescale: bool | None = None
    """Whether to divide by sqrt(keep), so that a sum keeps its variance under a mask. None is the
    custom of the law: yes for the laws that divide by a fan, no for the others."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in LAWS:
            raise RandomError(f"{self.name!r} is not a law; there are {', '.join(LAWS)}")
        scale = _real(self.scale, f"the scale of {self.name}")
        if not 0 < scale < math.inf:
            raise RandomError(f"scale={self.scale!r}: the scale of {self.name} is a number above 0")
        object.__setattr__(self, "scale", scale)
        if self.fan not in get_args(Fan):
            raise RandomError(f"fan={self.fan!r}: fan is one of {', '.join(get_args(Fan))}")
        if self.rescale not in (None, True, False):
            raise RandomError(f"rescale={self.rescale!r}: rescale is True, False or None")
        if self.rescale and self.name in _FIXED:
            raise RandomError(
                f"{self.name} is the same value at every keep; leave rescale out, or draw by "
                "unsigned_constant"
            )

    def __repr__(self) -> str:
        given = [repr(self.name)]
        given += [f"scale={self.scale!r}"] if self.scale != 1 else []
        given += [f"fan={self.fan!r}"] if self.fan != "in" else []
        given += [f"rescale={self.rescale}"] if self.rescale is not None else []
        return f"Law({', '.join(given)})"

    def distribution(self, place: Place) -> Distribution:
        """What this law draws from at a place.

        Raises:
            RandomError: a scale so small or large that float32 cannot hold the values.
        """
        kind, size = self._at_scale_one(place)
        rescale = self.name in _RESCALED if self.rescale is None else self.rescale
        scale = size * self.scale / (math.sqrt(place.keep) if rescale else 1.0)
        if self.name != "zeros" and not LEAST <= scale <= MOST:
            raise RandomError(
                f"{self} comes to a scale of {scale:.6g} at {place}; it must lie between "
                f"{LEAST:.3g} and {MOST:.3g}, so that float32 holds every value"
            )
        return Distribution(kind, scale)

    def _at_scale_one(self, place: Place) -> tuple[Kind, float]:
        """The kind and its number, before `scale` and `rescale`."""
        fan, fan_in, both = place.fan(self.fan), place.fan("in"), 2 * place.fan("avg")
        match self.name:
            case "signed_constant":
                return "signs", 1 / math.sqrt(fan)
            case "unsigned_constant":
                return "constant", 1 / math.sqrt(fan)
            case "kaiming_uniform":
                return "uniform", math.sqrt(6 / fan)  # the bound is sqrt(3) sd
            case "kaiming_normal":
                return "normal", math.sqrt(2 / fan)
            case "xavier_uniform":
                return "uniform", math.sqrt(6 / both)
            case "xavier_normal":
                return "normal", math.sqrt(2 / both)
            case "linear":
                return "uniform", 1 / math.sqrt(fan_in)
            case "gpt2":
                return "normal", 0.02 / (math.sqrt(2 * place.layers) if place.residual else 1.0)
            case "theory":
                return "uniform", math.sqrt(math.sqrt(place.head_width or 1))
            case "uniform" | "normal" as kind:
                return kind, 1.0
            case _:
                return "constant", 1.0 if self.name == "ones" else 0.0


def whole_number(value: object, what: str, *, least: int, below: int | None = None) -> int:
    """The value as an int, numpy's integers included and truth values not.

    Raises:
        RandomError: what is no whole number, or not in [least, below).
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least or (below is not None and number >= below):
        end = "" if below is None else f" and below {below}"
        raise RandomError(f"{value!r}: {what} is a whole number, at least {least}{end}")
    return number


def _real(value: object, what: str) -> float:
    """The value as a float, which may be infinite or NaN."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise RandomError(f"{value!r}: {what} is a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:  # an int beyond float64
        return math.inf
