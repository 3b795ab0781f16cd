"""Which settings of `find` go together?"""

from __future__ import annotations

from untrained.find import Settings
from untrained.train import Training

PRESETS: dict[str, Settings] = {
    "demo": Settings(),
    "quick": Settings(
        model="gpt2-pico",
        length=32,
        training=Training(
            steps=100,
            batch=16,
            warmup=10,
            evaluate_every=50,
            evaluate_tokens=4_096,
            checkpoint_seconds=1.0,
        ),
        tokens=16_384,
    ),
}
"""The main job, and one of the same kind that a test can run."""
