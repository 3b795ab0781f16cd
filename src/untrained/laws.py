"""From which distribution is a random weight drawn?

A law is a name and a scale; with the facts of a *place* (shape, keep, depth) it becomes a
distribution: one of four shapes, and one number. Scales use +, *, / and square roots of float64
only, which IEEE 754 rounds alike on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from untrained.errors import RandomError

Fan: TypeAlias = Literal["in", "out", "avg"]

LAWS: dict[str, str] = {
    "signed_constant": "+-1/sqrt(fan)",
    "unsigned_constant": "1/sqrt(fan)",
    "kaiming_uniform": "uniform, sd sqrt(2/fan)",
    "kaiming_normal": "normal, sd sqrt(2/fan)",
    "xavier_uniform": "uniform, sd sqrt(2/(fan_in + fan_out))",
    "xavier_normal": "normal, sd sqrt(2/(fan_in + fan_out))",
    "linear": "uniform, bound 1/sqrt(fan_in): torch's Linear",
    "gpt2": "normal, sd 0.02; what writes to the residual stream divided by sqrt(2 layers)",
    "theory": "uniform, bound head_width^(1/4) for query and key, 1 elsewhere (2511.04217)",
    "uniform": "uniform, bound `scale`",
    "normal": "normal, sd `scale`",
    "ones": "1",
    "zeros": "0",
}
"""Every law and what it draws at scale 1."""

_RESCALED = {name for name, text in LAWS.items() if "fan" in text}
_CONSTANT = {"ones", "zeros"}
_LARGEST = 3.4028234663852886e38
_SMALLEST = 1.1754943508222875e-38


@dataclass(frozen=True)
class Place:
    """The facts about a tensor that a law may use."""

    shape: tuple[int, ...]
    """The logical shape, (out, in, ...)."""

    keep: float = 1.0
    """The share of the weights that a mask keeps."""

    layers: int = 1
    """The number of layers of the model."""

    residual: bool = False
    """Whether the tensor writes to the residual stream."""

    head_width: int | None = None
    """The width of a head, for query and key."""

    def fan(self, mode: Fan) -> float:
        """How many inputs, outputs, or their mean; kernels counted as torch counts them."""
        if len(self.shape) < 2:
            return float(math.prod(self.shape))
        field = math.prod(self.shape[2:])
        inputs, outputs = self.shape[1] * field, self.shape[0] * field
        return {"in": float(inputs), "out": float(outputs), "avg": (inputs + outputs) / 2}[mode]


@dataclass(frozen=True)
class Distribution:
    """One of four shapes and its size."""

    kind: Literal["signs", "constant", "uniform", "normal"]
    scale: float
    """signs: +-scale; constant: scale; uniform: the bound; normal: the standard deviation."""


@dataclass(frozen=True)
class Law:
    """A named law.

    Raises:
        RandomError: an unknown name, or a setting that makes no sense.
    """

    name: str
    scale: float = 1.0
    """A factor on the scale of the law."""

    fan: Fan = "in"
    """Which fan the fan laws divide by."""

    rescale: bool | None = None
    """Multiply by 1/sqrt(keep); None is the law's own custom, yes for laws that divide by a fan."""

    def __post_init__(self) -> None:
        if self.name not in LAWS:
            raise RandomError(f"unknown law {self.name!r}; there are {', '.join(LAWS)}")
        if self.fan not in ("in", "out", "avg"):
            raise RandomError(f"fan={self.fan!r}: fan is one of in, out, avg")
        number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
        if not number or not math.isfinite(self.scale) or self.scale <= 0:
            raise RandomError(f"{self.name}: scale={self.scale!r}: scale is a number above 0")
        if self.rescale and self.name in _CONSTANT:
            raise RandomError(f"{self.name} is a constant, which rescale=yes would change; leave it out")

    def distribution(self, place: Place) -> Distribution:
        """The distribution that this law means at a place.

        Raises:
            RandomError: a scale that float32 cannot hold.
        """
        kind, size = self._shape(place)
        rescale = self.name in _RESCALED if self.rescale is None else self.rescale
        scale = size * self.scale * (1 / math.sqrt(place.keep) if rescale else 1.0)
        if scale and not _SMALLEST <= scale <= _LARGEST:
            raise RandomError(
                f"{self.name} with scale {self.scale:g} comes to {scale:g} at shape {place.shape}; "
                f"float32 holds {_SMALLEST:.2g} to {_LARGEST:.2g}"
            )
        return Distribution(kind, scale)

    def _shape(
        self, place: Place
    ) -> tuple[Literal["signs", "constant", "uniform", "normal"], float]:
        """The kind of distribution and its size at scale 1, before any rescaling."""
        fan = max(place.fan(self.fan), 1.0)
        both = max(place.fan("avg"), 0.5)
        match self.name:
            case "signed_constant":
                return "signs", 1 / math.sqrt(fan)
            case "unsigned_constant":
                return "constant", 1 / math.sqrt(fan)
            case "kaiming_uniform":
                return "uniform", math.sqrt(6 / fan)
            case "kaiming_normal":
                return "normal", math.sqrt(2 / fan)
            case "xavier_uniform":
                return "uniform", math.sqrt(3 / both)
            case "xavier_normal":
                return "normal", math.sqrt(1 / both)
            case "linear":
                return "uniform", 1 / math.sqrt(max(place.fan("in"), 1.0))
            case "gpt2":
                return "normal", 0.02 / math.sqrt(2 * place.layers) if place.residual else 0.02
            case "theory":
                return "uniform", math.sqrt(math.sqrt(place.head_width or 1))
            case "uniform" | "normal" as kind:
                return kind, 1.0
            case _:
                return "constant", 1.0 if self.name == "ones" else 0.0
