"""Against what does a found mask count?

Three controls wear another mask, or other weights, on the trained search, for one evaluation:

    random     a random mask of the same keep in every tensor
    shuffled   the found mask, its entries permuted within each tensor
    redrawn    the found mask over weights of another seed

and three are recipes of their own, derived from the one under test:

    untrained     the random weights, nothing pruned
    embeddings    a fixed random mask, the embeddings trained (the control most claims lack)
    dense         everything that was masked is trained

All train exactly the tensors that are trained beside the mask in the recipe under test, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from untrained.apply import Applied
from untrained.layouts import Layout
from untrained.masks import Mask
from untrained.recipe import Recipe, recipe
from untrained.source import draw_weights
from untrained.states import Frozen, Masked, State, Trained

EMBEDDINGS = ("embedding", "position", "unembedding")


@contextmanager
def random_mask(applied: Applied, *, seed: int) -> Iterator[None]:
    """Wear a random mask of the same keep in every tensor, for the length of a `with` block."""
    found = applied.masks
    shapes = {name: tuple(mask.shape) for name, mask in found.items()}
    kept = {name: int(mask.sum()) for name, mask in found.items()}
    with _wearing(applied, Mask.random(shapes, kept, seed=seed)):
        yield


@contextmanager
def shuffled_mask(applied: Applied, *, seed: int) -> Iterator[None]:
    """Wear the found mask with its entries permuted within each tensor."""
    with _wearing(applied, applied.masks.shuffled(seed=seed)):
        yield


@contextmanager
def redrawn_weights(applied: Applied, *, seed: int) -> Iterator[None]:
    """Wear the found mask over random weights of another seed.

    Raises:
        RecipeError: weights that were kept as they are cannot be drawn again.
    """
    parts = applied.engine.masked
    held = [part.weights for part in parts]
    try:
        for part in parts:
            drawn = draw_weights(part.slot, part.state, seed=seed, layers=applied.layout.layers)
            if drawn is not None and part.latent is not None:
                part.weights = part.slot.logical(drawn).contiguous().to(part.latent.device)
        with _wearing(applied, applied.masks):
            yield
    finally:
        for part, weights in zip(parts, held, strict=True):
            part.weights = weights
        applied.push()


@contextmanager
def _wearing(applied: Applied, mask: Mask) -> Iterator[None]:
    applied.engine.wear(mask)
    try:
        yield
    finally:
        applied.push()


def untrained(rules: Recipe) -> Recipe:
    """The recipe with nothing pruned and nothing learned by a score."""
    return _replace(rules, lambda state: _frozen(state, keep=1.0))


def embeddings_only(rules: Recipe, layout: Layout) -> Recipe:
    """The recipe with its masks fixed at random and the embeddings trained."""
    fixed = _replace(rules, lambda state: _frozen(state, keep=state.keep))
    names = [name for name in EMBEDDINGS if name in layout.components]
    return fixed | recipe(f"{','.join(names)} = trained")


def dense(rules: Recipe) -> Recipe:
    """The recipe with every mask replaced by training; first values by the model's own law."""
    return _replace(rules, lambda _: Trained())


def _frozen(state: Masked, *, keep: float) -> Frozen:
    return Frozen(
        init=state.init,
        scale=state.scale,
        fan=state.fan,
        keep=keep,
        share=state.share,
        rescale=state.rescale,
    )


def _replace(rules: Recipe, change: Callable[[Masked], State]) -> Recipe:
    """The recipe with every masked state changed."""
    return Recipe(
        tuple(
            replace(
                clause,
                state=change(clause.state) if isinstance(clause.state, Masked) else clause.state,
            )
            for clause in rules.clauses
        )
    )
