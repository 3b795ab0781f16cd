"""One random tensor for all layers, one mask for all tensors, one block of scores for all heads."""

from __future__ import annotations

import pytest
import torch

from frameworks import step
from models import LAYERS, D, sentence, tiny_gpt2
from untrained.apply import Applied, apply
from untrained.errors import RecipeError

TILED = "query,key,value = masked(keep=0.5, tile_rows=2); output = masked(keep=0.5, tile_columns=2)"
ONE_MASK = "mlp = masked(keep=0.3, share_scores=layers)"
ALL = "mlp = masked(keep=0.3, share=layers, share_scores=layers, tile_columns=4)"


def backward(applied: Applied) -> None:
    applied.model(**sentence()).loss.backward()


def held(tensors: list[torch.Tensor]) -> int:
    """Bytes of the storages behind some tensors, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


@pytest.mark.parametrize("layers", [2, 6])
def test_what_layers_share_is_in_memory_once(layers: int) -> None:
    recipe = "mlp = masked(keep=0.3, share=layers, share_scores=layers)"
    parts = apply(tiny_gpt2(n_layer=layers), recipe).engine.masked
    weights = 2 * 4 * D * D  # up and down
    assert held([p.weights for p in parts if p.weights is not None]) == 4 * weights
    assert held([p.latent for p in parts if p.latent is not None]) == 4 * weights
    assert held([p.mask for p in parts if p.mask is not None]) == weights


def test_one_mask_lies_on_the_other_weights_of_every_layer() -> None:
    applied = apply(tiny_gpt2(), ONE_MASK)
    masks = applied.masks
    assert torch.equal(masks["layers.0.mlp.up"], masks["layers.1.mlp.up"])
    first, second = (
        applied.model.transformer.h[layer].mlp.c_fc.weight.detach() for layer in range(LAYERS)
    )
    assert torch.equal(first != 0, second != 0)
    assert not torch.equal(first, second)


def test_shared_scores_get_the_gradients_of_all_layers() -> None:
    shared, own = apply(tiny_gpt2(), ONE_MASK), apply(tiny_gpt2(), "mlp = masked(keep=0.3)")
    own.load_state_dict(
        own.state_dict()
        | {
            f"layers.{layer}.mlp.{part}": shared.state_dict()[f"layers.0.mlp.{part}"]
            for layer in range(LAYERS)
            for part in ("up", "down")
        }
    )
    for applied in (shared, own):
        backward(applied)
        applied.pull()
    for part in ("up", "down"):
        every = [own.latents()[f"layers.{layer}.mlp.{part}"].grad for layer in range(LAYERS)]
        assert torch.allclose(shared.latents()[f"layers.0.mlp.{part}"].grad, sum(every))


def test_every_head_wears_the_mask_of_the_first() -> None:
    masks = apply(tiny_gpt2(), TILED).masks
    for role in ("query", "key", "value"):
        top, bottom = masks[f"layers.1.{role}"].chunk(2, dim=0)
        assert torch.equal(top, bottom)
        assert top.sum() == round(0.5 * top.numel())
    left, right = masks["layers.1.output"].chunk(2, dim=1)
    assert torch.equal(left, right)


def test_tiled_scores_get_the_gradients_of_all_tiles() -> None:
    applied = apply(tiny_gpt2(), TILED)
    backward(applied)
    block = applied.model.transformer.h[0].attn
    grad, weight = block.c_proj.weight.grad.mT.clone(), None  # (out, in)
    weight = next(p for p in applied.engine.masked if p.slot.role == "layers.0.output").weights.mT
    applied.pull()
    scores = applied.scores["layers.0.output"]  # (D, D / 2)
    tiles = (grad * weight).unflatten(1, (2, D // 2)).sum(1)
    assert torch.allclose(
        applied.latents()["layers.0.output"].grad.mT, tiles * scores.sign(), atol=1e-7
    )


@pytest.mark.parametrize("recipe", [TILED, ONE_MASK, ALL])
def test_a_shared_mask_is_searched_and_live(recipe: str) -> None:
    applied = apply(tiny_gpt2(), recipe)
    optimizer = applied.optimizer(lr=0.05)
    before = applied.masks
    losses = [step(applied, optimizer, sentence()) for _ in range(12)]
    assert losses[-1] < losses[0]
    assert applied.masks != before
    applied.check_liveness()
    applied.check_intact()


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("query = masked(keep=0.5, tile_rows=3)", "tile_rows=3 does not divide 16"),
        ("query = masked(keep=0.5, tile_rows=0)", "a whole number of tiles, at least 1"),
        ("query = masked(keep=0.5, tile_rows=two)", "tile_rows=two is not a whole number"),
        ("query = masked(keep=0.5, share_scores=heads)", "share_scores is one of none, layers"),
        ("mlp = masked(keep=0.5, share_scores=layers, scope=layer)", "belong to no layer"),
        ("embedding = masked(keep=0.5, share_scores=layers)", "share_scores=layers has no effect"),
    ],
)
def test_sharing_that_cannot_be_is_refused(recipe: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        apply(tiny_gpt2(), recipe)
