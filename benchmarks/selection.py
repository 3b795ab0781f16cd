"""How long does a selection take beside what torch offers? Nanoseconds per weight, one thread.

    python benchmarks/selection.py [--large]

Every row times the routines of one table in turns, in one process, and takes the best of all turns;
so the ratios to `top_mask` can be trusted further than the times. What torch offers breaks ties as
it likes, or keeps all of them; `top_mask` keeps exactly as many as asked for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from untrained.select import select, top_mask

KEEP = 0.3
TURNS = 5


def by_topk(scores: Tensor, kept: int) -> Tensor:
    """torch.topk, then scatter."""
    flat = scores.abs().reshape(-1)
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(kept, sorted=False).indices] = True
    return mask.view(scores.shape)


def by_kthvalue(scores: Tensor, kept: int) -> Tensor:
    """torch.kthvalue, then compare; all ties are kept."""
    magnitude = scores.abs()
    return magnitude >= magnitude.reshape(-1).kthvalue(scores.numel() - kept + 1).values


def by_sort(scores: Tensor, kept: int) -> Tensor:
    """torch.sort, then scatter, as in the first published edge-popup."""
    flat = scores.abs().reshape(-1)
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.sort(descending=True, stable=True).indices[:kept]] = True
    return mask.view(scores.shape)


ROUTINES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "top_mask": top_mask,
    "by value": lambda scores, kept: top_mask(scores, kept, by="value"),
    "topk": by_topk,
    "kthvalue": by_kthvalue,
    "sort": by_sort,
}


def cases(sizes: list[int]) -> dict[str, Tensor]:
    """What is selected from: normal scores by size, and the awkward kinds at one size."""
    normal = {f"{n:.0e} normal": torch.randn(n) for n in sizes}
    return normal | {
        "1e+06 all equal": torch.ones(10**6),
        "1e+06 bfloat16": torch.randn(10**6).bfloat16(),
        "1e+06 Conv1D (transposed)": torch.randn(500, 2000).t(),
        "1e+06 Conv1D, all equal": torch.ones(500, 2000).t(),
    }


def best_times(scores: Tensor, kept: int) -> dict[str, float]:
    """Seconds of each routine: the best of several turns, taken in rotation."""
    times = dict.fromkeys(ROUTINES, float("inf"))
    for _ in range(TURNS):
        for name, routine in ROUTINES.items():
            start = time.perf_counter()
            routine(scores, kept)
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def report(label: str, n: int, times: dict[str, float]) -> None:
    """One line: nanoseconds per weight, and how many times those of `top_mask`."""
    cells = [f"{t / n * 1e9:8.2f} ({t / times['top_mask']:5.1f}x)" for t in times.values()]
    print(f"{label:28}", *cells)


def time_global(n: int) -> float:
    """Seconds of one global selection over sixteen tensors of n weights in all."""
    scores = {str(i): torch.randn(n // 16) for i in range(16)}
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        select(scores, KEEP, scope="global")
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="10^8 weights too (minutes, 4 GB)")
    sizes = [10**5, 10**6, 10**7] + [10**8] * parser.parse_args().large
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{f'ns per weight, keep {KEEP}':28}", *(f"{name:>17}" for name in ROUTINES))
    for label, scores in cases(sizes).items():
        report(label, scores.numel(), best_times(scores, int(KEEP * scores.numel())))
    print(f"{'1e+07 global, 16 tensors':28} {time_global(10**7) / 1e7 * 1e9:8.2f}")


if __name__ == "__main__":
    main()
