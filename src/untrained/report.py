"""What is trained, frozen and masked, and how many of each?

Tensors that are constant by their law (norms of ones, biases of zeros) hold no random value and
nothing learned; they are left out of every count. So are tensors that the model's constructor
computes, such as sinusoidal positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from untrained.components import Slot
from untrained.select import kept_count
from untrained.states import Frozen, Masked, State, Trained


@dataclass(frozen=True)
class Row:
    """One component in one state: how many tensors, weights, and weights kept."""

    component: str
    state: State
    tensors: int
    weights: int
    kept: int

    @classmethod
    def of(cls, slot: Slot, state: State, kept: int | None) -> Row:
        """The row of a single slot; `kept` is counted in its mask where it has a learned one."""
        law = state.law(slot.own)
        constant = isinstance(state, Frozen) and law is not None and law.name in ("ones", "zeros")
        weights = 0 if constant else prod(slot.shape)
        if kept is None:
            share = state.keep if isinstance(state, Frozen) else 1.0
            kept = kept_count(share, weights) if weights else 0
        merged = "bias" if slot.kind == "bias" else slot.path[0] if slot.path[0] == "norm" else None
        name = replace(slot, component=merged or slot.component).name
        return cls(name, state, 1, weights, kept)


@dataclass(frozen=True)
class Counts:
    """The counts of a whole model."""

    trained: int
    """Weights learned by their value."""

    frozen: int
    """Random weights that stay as they are."""

    masked: int
    """Random weights under a learned mask."""

    kept: int
    """Those of the masked weights that the mask keeps."""


def count(rows: Iterable[Row]) -> Counts:
    """Add up the weights in each state."""
    sums = dict.fromkeys((Trained, Frozen, Masked), 0)
    kept = 0
    for row in rows:
        sums[type(row.state)] += row.weights
        kept += row.kept if isinstance(row.state, Masked) else 0
    return Counts(sums[Trained], sums[Frozen], sums[Masked], kept)


def merge(rows: Iterable[Row]) -> list[Row]:
    """One row per component and state, over all layers."""
    merged: dict[tuple[str, State], Row] = {}
    for row in rows:
        key = (row.component, row.state)
        if key in merged:
            old = merged[key]
            row = replace(
                row,
                tensors=old.tensors + row.tensors,
                weights=old.weights + row.weights,
                kept=old.kept + row.kept,
            )
        merged[key] = row
    return list(merged.values())


def report(title: str, rows: Iterable[Row]) -> str:
    """The components under the state that they are in, and the totals."""
    rows = merge(rows)
    width = max([len(row.component) for row in rows] + [9])
    lines = [title, f"  {'component':{width}}  tensors        weights           kept"]
    for state in dict.fromkeys(row.state for row in rows):
        lines.append(str(state))
        for row in (row for row in rows if row.state == state):
            kept = f"  {row.kept:13,}" if row.kept != row.weights else ""
            lines.append(f"  {row.component:{width}}  {row.tensors:7,}  {row.weights:13,}{kept}")
    total = count(rows)
    lines.append(
        f"{total.trained:,} trained, {total.frozen:,} frozen, "
        f"{total.masked:,} masked ({total.kept:,} kept)"
    )
    return "\n".join(lines)
