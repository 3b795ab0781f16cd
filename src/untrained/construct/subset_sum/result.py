"""What does a solved batch of subset sums say, and is it true?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from untrained.construct.subset_sum.kernels import Flags, Floats
from untrained.construct.subset_sum.measure import exact_error
from untrained.errors import ConstructError


@dataclass(frozen=True, eq=False)
class SubsetSums:
    """Subsets whose sums are near their targets. Shapes: (...) is that of the instances."""

    mask: Flags
    """(..., n): which items are kept."""

    error: Floats
    """(...): |target - sum of the kept items|, exact until it is rounded to float64, once."""

    optimal: Flags
    """(...): proven that no subset's error is smaller by more than `resolution`."""

    resolution: Floats
    """(...): 0, or about n * 1e-18 of the sum of all items where one is no multiple of the unit."""

    size: int | None
    """How many items every subset had to keep, if that was asked for."""

    values: Floats = field(repr=False)
    """The items, as given but in float64."""

    target: Floats = field(repr=False)
    """(...): the targets."""

    def check(self) -> None:
        """Work every error out again in rational arithmetic.

        That no better subset exists is not proven again: it would be another search.

        Raises:
            ConstructError: an error that is not that of its mask, or a mask of another size.
        """
        n = self.mask.shape[-1]
        values = np.broadcast_to(self.values, self.mask.shape)
        for at in np.ndindex(self.error.shape):
            wanted = float(exact_error(values[at], float(self.target[at]), self.mask[at]))
            if self.error[at] != wanted:
                raise ConstructError(
                    f"instance {at}: the error is given as {self.error[at]!r}, but its mask's is "
                    f"{wanted!r}; solve it again"
                )
            if self.size is not None and int(self.mask[at].sum()) != self.size:
                raise ConstructError(
                    f"instance {at}: the mask keeps {int(self.mask[at].sum())} of {n} items, not "
                    f"{self.size}; solve it again"
                )

    def __str__(self) -> str:
        worst = f", largest error {self.error.max():.3g}" if self.error.size else ""
        return (
            f"{self.error.size} subset sums of {self.mask.shape[-1]} items: "
            f"{int(self.optimal.sum())} proven optimal{worst}"
        )
