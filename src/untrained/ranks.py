"""Do all processes search for the same thing?

Data parallelism averages gradients, so it is right only where every rank holds the same random
weights under the same masks. Ranks compare a hash, not tensors.
"""

from __future__ import annotations

import hashlib

import torch.distributed as dist

from untrained.apply import Applied
from untrained.errors import ApplyError


def require_same_search(applied: Applied) -> None:
    """Compare this search over all ranks; with one process there is nothing to do.

    Raises:
        ApplyError: on every rank, if two ranks differ in recipe, seed or masks.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    mine = (str(applied.recipe), applied.seed, _hash(applied))
    every: list[tuple[str, int, str]] = [mine] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    for rank, other in enumerate(every):
        for what, first, here in zip(("recipe", "seed", "masks"), every[0], other, strict=True):
            if first != here:
                raise ApplyError(
                    f"rank {rank} searches with another {what} than rank 0 ({here} and {first}); "
                    "give every rank the same recipe and seed, and the same checkpoint"
                )


def _hash(applied: Applied) -> str:
    """A hash of the masks in force."""
    sha = hashlib.sha256()
    for role, packed in sorted(applied.masks.pack().items()):
        sha.update(role.encode() + b"\0" + packed)
    return sha.hexdigest()[:16]
