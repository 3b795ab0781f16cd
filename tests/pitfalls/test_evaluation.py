"""What users of other projects ran into when they evaluated a language model.

Each test names the public threads that it answers.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from models import tiny_gpt2
from untrained.tasks import TextTask, text
from untrained.tasks.corpus import Corpus

DOCUMENTS = tuple(
    f"Chapter {i} :\n\n It 's a  story , of {'bears ' * (i % 9)}.\n" for i in range(80)
)
TASKS = [text(Corpus("chapters", DOCUMENTS), tokenizer=t, length=12) for t in ("byte", "bpe:290")]

both = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.tokenizer.name)


@both
def test_the_text_that_is_scored_is_the_text_that_was_given(task: TextTask) -> None:
    """No detokeniser, no normaliser: EleutherAI/lm-evaluation-harness #2301, #806;
    karpathy/llm.c #276."""
    separator = task.tokenizer.decode([task.tokenizer.separator])
    given = [DOCUMENTS[i] for i in range(18, 80, 20)]
    assert task.tokenizer.decode(task.valid) == "".join(separator + text for text in given)


def test_bits_per_byte_divide_by_the_same_bytes_whatever_the_tokenizer() -> None:
    """EleutherAI/lm-evaluation-harness #369, #2301: the normaliser decides perplexity."""
    scores = [task.bigram(split) for task in TASKS for split in ("valid", "test")]
    assert scores[0].bytes == scores[2].bytes
    assert scores[1].bytes == scores[3].bytes
    assert scores[0].tokens != scores[2].tokens


@both
def test_a_mean_over_batches_is_not_what_is_reported(task: TextTask) -> None:
    """huggingface/evaluate #688; huggingface/transformers #30975: short sequences and the last
    batch weigh as much as full ones when means are averaged."""
    model = tiny_gpt2(vocab_size=290)
    by_size = [task.evaluate(model, batch=size) for size in (1, 2, 5, 1000)]
    assert len({(score.tokens, score.bytes) for score in by_size}) == 1
    for score in by_size:
        assert score.nats_per_token == pytest.approx(by_size[0].nats_per_token, abs=1e-6)


def test_a_number_never_stands_without_its_settings() -> None:
    """EleutherAI/lm-evaluation-harness #2301; huggingface/transformers #30975: stride and window
    are part of a perplexity."""
    score = TASKS[0].evaluate(tiny_gpt2(vocab_size=290), tokens=24)
    assert score.settings == "valid split, 24 byte tokens, 24 bytes, context up to 12"
    assert str(score).index("bits per byte") < str(score).index("perplexity")
    assert score.settings in str(score)


def test_validation_is_what_is_scored_unless_the_test_is_asked_for() -> None:
    """Choosing on the test split is the quietest of mistakes."""
    task, model = TASKS[0], tiny_gpt2(vocab_size=290)
    assert [s.split for s in (task.evaluate(model), task.unigram(), task.bigram())] == ["valid"] * 3
    assert task.evaluate(model, "test").split == "test"
    held_out = [
        set(bytes(getattr(task, s)).split(b"\0")) - {b""} for s in ("train", "valid", "test")
    ]
    assert not held_out[0] & held_out[1] | held_out[0] & held_out[2] | held_out[1] & held_out[2]


def test_a_plain_hugging_face_model_is_scored_as_it_is() -> None:
    """EleutherAI/lm-evaluation-harness #1978, #1711, #1570, #3051: how to score a model of mine.
    Its own loss, over the same window, is the same number."""
    task, model = TASKS[0], tiny_gpt2(vocab_size=290, n_positions=2000)
    whole = replace(task, length=len(task.valid) - 1, test=task.valid)
    ids = torch.from_numpy(task.valid.astype("int64"))[None]
    model.eval()
    with torch.no_grad():
        expected = model(input_ids=ids, labels=ids).loss.item()
    assert whole.evaluate(model).nats_per_token == pytest.approx(expected)


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """facebookresearch/fairseq #2984, #4361, #3623; joeynmt/joeynmt #140: links die.
    EleutherAI/lm-evaluation-harness #3171: data that are scripts stop loading."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a network connection was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    (tmp_path / "book.txt").write_text("\n\n".join(DOCUMENTS))
    task = text(tmp_path / "book.txt", tokenizer="bpe:280", length=12)
    task.evaluate(tiny_gpt2(vocab_size=280))
    task.tokenizer.to_transformers().save_pretrained(tmp_path / "tokenizer")
    assert json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    assert "datasets" not in sys.modules
