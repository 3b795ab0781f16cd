"""Any module has a layout, by the names of its modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from models import mlp
from untrained.errors import RecipeError
from untrained.laws import Law
from untrained.layouts import modules


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"fc1": nn.Linear(4, 8), "fc2": nn.Linear(8, 4), "norm": nn.LayerNorm(4)})
            for _ in range(3)
        )
        self.gain = nn.Parameter(torch.ones(4))


def test_a_module_gives_its_name_to_its_weight() -> None:
    assert [slot.role for slot in modules(mlp()).slots] == ["0", "bias.0", "2", "bias.2"]


def test_a_pattern_gives_a_component_and_a_layer() -> None:
    layout = modules(Blocks(), {"mlp.up": "blocks.*.fc1", "mlp.down": "blocks.*.fc2"})
    roles = [slot.role for slot in layout.slots]
    assert layout.layers == 3
    assert {"layers.0.mlp.up", "layers.2.bias.mlp.down", "embed", "blocks.1.norm", "gain"} <= {
        *roles
    }


def test_a_pattern_that_matches_nothing_says_what_there_is() -> None:
    with pytest.raises(RecipeError, match="matches nothing; there are: "):
        modules(mlp(), {"mlp.up": "blocks.*.fc1"})


def test_two_patterns_for_one_module_are_refused() -> None:
    with pytest.raises(RecipeError, match="two patterns match"):
        modules(Blocks(), {"mlp": "blocks.*.fc1", "up": "blocks.*.fc1"})


def test_a_pattern_has_one_star() -> None:
    with pytest.raises(RecipeError, match="one star"):
        modules(Blocks(), {"mlp": "blocks.*.*"})


def test_a_parameter_may_be_named_alone() -> None:
    layout = modules(nn.LSTM(4, 5, num_layers=2), {"recurrent": "weight_hh_l*"})
    found = {slot.role: slot for slot in layout.slots}
    assert found["layers.1.recurrent"].shape == (20, 5)
    assert "weight_ih_l0" in found


def test_the_own_law_is_torchs() -> None:
    found = {slot.role: slot.own for slot in modules(Blocks()).slots}
    assert found["embed"] == Law("normal")
    assert found["blocks.0.fc1"] == Law("linear")
    assert found["bias.blocks.0.fc1"] == Law("uniform", 0.5)
    assert found["blocks.0.norm"] == Law("ones")
    assert found["gain"] is None
