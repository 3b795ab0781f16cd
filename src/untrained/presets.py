"""Which settings of `find` go together?

The main job's recipe is `supermask` with smaller constants where attention writes to the residual
stream: docs/log.md has the measurements that chose it and the learning rates here.
"""

from __future__ import annotations

from untrained.find import Settings
from untrained.train import Training

MAIN = (
    "all = masked(keep=0.5, init=signed_constant); "
    "output = masked(keep=0.5, init=signed_constant, scale=0.125); "
    "norm = frozen(init=ones); bias = frozen(init=zeros)"
)

PRESETS: dict[str, Settings] = {
    "demo": Settings(
        recipe=MAIN,
        model="gpt2-nano",
        length=64,
        training=Training(steps=800, batch=32, scores_lr=1e-2),
        dense_lrs=(4e-3, 8e-3),
        embeddings_lrs=(1e-2,),
        tokens=262_144,
    ),
    "quick": Settings(
        recipe=MAIN,
        model="gpt2-pico",
        length=32,
        training=Training(
            steps=150,
            batch=16,
            warmup=10,
            scores_lr=2e-2,
            evaluate_every=50,
            evaluate_tokens=4_096,
            checkpoint_seconds=1.0,
        ),
        tokens=16_384,
    ),
}
"""The main job, and one of the same kind that a test can run."""
