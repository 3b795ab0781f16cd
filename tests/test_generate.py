"""Sampling is a function of the model, the prompt and the seed."""

from __future__ import annotations

import math

import pytest
import torch

from models import tiny_gpt2
from untrained.apply import apply
from untrained.errors import RunError
from untrained.generate import generate
from untrained.tasks.tokenizer import byte_tokenizer

TOKENIZER = byte_tokenizer()


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return apply(tiny_gpt2(vocab_size=256), "supermask").model


def test_greedy_text_is_hugging_faces_greedy_text(model: torch.nn.Module) -> None:
    prompt = torch.tensor([list(b"abc")])
    with torch.inference_mode():
        expected = model.generate(prompt, max_new_tokens=9, do_sample=False, pad_token_id=0)
    ours = generate(model, TOKENIZER, "abc", tokens=9, temperature=0)
    assert ours == "abc" + TOKENIZER.decode(expected[0, 3:].numpy())


def test_text_may_be_longer_than_the_model_can_see(model: torch.nn.Module) -> None:
    assert len(generate(model, TOKENIZER, "a" * 20, tokens=20, temperature=0)) >= 21


def test_an_empty_prompt_starts_a_document(model: torch.nn.Module) -> None:
    assert generate(model, TOKENIZER, "", tokens=5, seed=3)


def test_the_likeliest_of_one_is_greedy(model: torch.nn.Module) -> None:
    one = generate(model, TOKENIZER, "ab", tokens=8, top_k=1, seed=5)
    assert one == generate(model, TOKENIZER, "ab", tokens=8, temperature=0)


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"temperature": math.inf}, {"tokens": 0}, {"top_k": 0}]
)
def test_settings_without_meaning_are_refused(
    model: torch.nn.Module, settings: dict[str, float]
) -> None:
    with pytest.raises(RunError):
        generate(model, TOKENIZER, "a", **settings)  # type: ignore[arg-type]
