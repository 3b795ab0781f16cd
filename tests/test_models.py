"""Models by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from untrained.errors import RunError
from untrained.models import SIZES, build, gpt2_config


@pytest.mark.parametrize("name", SIZES)
def test_every_named_size_is_a_configuration(name: str) -> None:
    config = gpt2_config(name, vocabulary=256, length=64)
    assert (config.n_layer, config.n_embd, config.n_head) == SIZES[name]


def test_a_size_may_be_given_in_numbers() -> None:
    config = gpt2_config("3x48x6", vocabulary=10, length=8)
    assert (config.n_layer, config.n_embd, config.n_head) == (3, 48, 6)


@pytest.mark.parametrize("name", ["gpt9", "3x48", "axbxc", "0x48x6", "3x-8x2", ""])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(RunError, match="name one of gpt2-pico"):
        gpt2_config(name, vocabulary=10, length=8)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(RunError, match="5 heads do not divide a width of 48"):
        gpt2_config("3x48x5", vocabulary=10, length=8)


def test_a_configuration_file_keeps_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1}))
    config = gpt2_config(str(path), vocabulary=10, length=8)
    assert (config.n_embd, config.vocab_size, config.n_positions) == (8, 10, 8)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model_type": "llama"}'])
def test_another_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"config.json"):
        gpt2_config(str(path), vocabulary=10, length=8)


def test_building_leaves_the_callers_random_state_alone() -> None:
    state = torch.random.get_rng_state()
    build(gpt2_config("gpt2-pico", vocabulary=10, length=8))
    assert torch.equal(state, torch.random.get_rng_state())
