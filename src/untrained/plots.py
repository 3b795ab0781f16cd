"""What do the results look like?"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from untrained.files import write_atomic
from untrained.progress import how_found

_LINES = ("unigram", "bigram", "random", "shuffled", "redrawn")


def plot_find(results: dict[str, Any], path: Path) -> None:
    """Draw the curves of a `find` run: validation bits per byte, and the churn of the mask.

    Args:
        results: what `find` returned.
        path: the PNG file.

    Raises:
        RunError: the file cannot be written.
    """
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    curves, churn = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_curves(curves, results)
    _draw_churn(churn, results["arms"]["found"]["history"]["steps"])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomic(path, buffer.getvalue())


def _draw_curves(axes: Any, results: dict[str, Any]) -> None:
    """Curves of what was trained over lines of what was not."""
    arms = results["arms"]
    trained = [name for name in ("embeddings", "found", "dense") if name in arms]
    for name in trained:
        points = arms[name]["history"]["validations"]
        axes.plot(
            [point["step"] for point in points],
            [point["bits_per_byte"] for point in points],
            marker="o",
            markersize=3,
            linewidth=2.5 if name == "found" else 1.5,
            label=f"found: {how_found(results)}" if name == "found" else name,
        )
    top = axes.get_ylim()[1]
    last = arms["found"]["history"]["steps"][-1]["step"]
    for name in _LINES:
        row = results["baselines"].get(name) or arms.get(name)
        if row is None or row["bits_per_byte"]["valid"] > top * 1.3:
            continue
        level = row["bits_per_byte"]["valid"]
        axes.axhline(level, color="grey", linewidth=0.8, linestyle="--")
        axes.annotate(name, (last, level), ha="right", va="bottom", fontsize=8, color="dimgrey")
    axes.set(xlabel="step", ylabel="validation, bits per byte")
    if not results["trained"]:
        axes.set_title("No weight was trained in `found`")
    axes.legend(frameon=False)


def _draw_churn(axes: Any, steps: list[dict[str, float]]) -> None:
    axes.plot([s["step"] for s in steps], [100 * s["churn"] for s in steps], linewidth=1)
    axes.set(xlabel="step", ylabel="kept weights replaced, % per entry", title="Mask churn")
    axes.set_ylim(bottom=0)
