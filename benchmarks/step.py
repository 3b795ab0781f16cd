"""What does a masked training step cost beside a dense one?

One process, one thread; steps of both models in turn, so that a noisy machine is noisy for both.
Prints CPU milliseconds per step and the median of paired ratios.

    .venv/bin/python benchmarks/step.py [--model 4x256x4] [--batch 8] [--length 256] [--steps 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

from untrained.apply import apply
from untrained.models import build, gpt2_config

V = 1024
MASKED = "query,key,value,output,mlp = masked(keep=0.5)"


def stepper(name: str, recipe: str, batch: int, length: int) -> Callable[[], None]:
    """A function that does one training step of a fresh model."""
    applied = apply(build(gpt2_config(name, vocabulary=V, length=length)), recipe)
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-3, fused=True)
    tokens = torch.randint(V, (batch, length + 1), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        logits = applied.model(input_ids=tokens[:, :-1], use_cache=False).logits
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def seconds(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="4x256x4", help="layers x width x heads")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = {
        name: stepper(options.model, recipe, options.batch, options.length)
        for name, recipe in (("dense", "all = trained"), ("masked", MASKED))
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(options.steps + 2):
        for name, step in steps.items():
            spent = seconds(step)
            if round_ >= 2:  # the first two rounds warm caches up
                times[name].append(spent)
    ratios = [m / d for m, d in zip(times["masked"], times["dense"], strict=True)]
    print(f"{options.model}, {options.batch * options.length} tokens per step, keep 0.5")
    for name, spent in times.items():
        print(f"{name:8} {1e3 * statistics.median(spent):8.1f} ms CPU per step")
    print(f"masked / dense: median {statistics.median(ratios):.3f}, min {min(ratios):.3f}")


if __name__ == "__main__":
    main()
