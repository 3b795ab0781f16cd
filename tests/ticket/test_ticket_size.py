"""Bytes by part, against numbers worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from torch import nn

from tickets import header_of, search
from untrained.apply import apply
from untrained.ticket import Ticket
from untrained.ticket.size import Size, entropy


def test_entropy_of_half_is_one_bit_and_of_all_is_none() -> None:
    assert entropy(0.5) == 1.0
    assert entropy(0.0) == entropy(1.0) == 0.0
    assert entropy(0.3) == pytest.approx(0.8812908992306927)


def test_parts_of_a_small_ticket(tmp_path: Path) -> None:
    # 10 x 7 = 70 masked weights, 21 kept; 10 trained biases of 4 bytes; 11 bytes of tokenizer.
    net = nn.Sequential(nn.Linear(7, 10))
    applied = apply(net, "0 = masked(keep=0.3); bias = trained")
    ticket = Ticket.of(applied, tokenizer='{"model":{}')
    size = ticket.save(tmp_path / "x.ticket")
    assert (size.masks, size.trained, size.values, size.tokenizer) == (9, 40, 0, 11)
    assert (size.weights, size.masked, size.kept) == (80, 70, 21)
    data = (tmp_path / "x.ticket").read_bytes()
    text = json.dumps(header_of(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert size.config == 64 + len(text.encode())
    assert size.total == len(data)
    assert size.padding == -len(text) % 64 + (64 - 9) + (64 - 40) + (64 - 11)
    assert size.bits_per_masked_weight == pytest.approx(72 / 70)
    assert size.bound_per_masked_weight == pytest.approx(0.8812908992306927)
    assert size.bits_per_weight == pytest.approx(8 * len(data) / 80)
    assert (size.dense(4), size.dense(2)) == (320 + 11, 160 + 11)


def test_size_without_saving_is_the_size_of_the_file(tmp_path: Path) -> None:
    ticket = Ticket.of(search())
    assert ticket.size() == ticket.save(tmp_path / "x.ticket")
    assert ticket.size().total == (tmp_path / "x.ticket").stat().st_size


def test_the_bound_adds_up_over_tensors_of_different_shares() -> None:
    applied = search("query = masked(keep=0.1); key = masked(keep=0.5)")
    size = Ticket.of(applied).size()
    assert size.bound == pytest.approx(512 * entropy(26 / 256) + 512 * 1.0)
    assert size.bound_per_masked_weight < entropy(size.keep)


def test_a_frozen_model_is_its_header() -> None:
    size = Ticket.of(search("all = frozen")).size()
    assert (size.masks, size.trained, size.values) == (0, 0, 0)
    assert size.bits_per_masked_weight == size.bound_per_masked_weight == 0.0
    assert size.total == size.config + size.padding


def test_a_tied_table_counts_once() -> None:
    tied, untied = (
        Ticket.of(search("all = trained", tie_word_embeddings=tie)).size() for tie in (True, False)
    )
    assert untied.trained - tied.trained == 24 * 16 * 4
    assert tied.trained == 4 * tied.weights


def test_ratios_and_numbers_are_plain_json() -> None:
    size = Size(
        masks=1000,
        trained=0,
        values=0,
        config=500,
        tokenizer=0,
        padding=100,
        weights=8000,
        masked=8000,
        kept=4000,
        bound=8000.0,
    )
    held = json.loads(json.dumps(size.as_dict()))
    assert held["bytes"]["total"] == 1600
    assert (held["ratio_fp32"], held["ratio_bf16"]) == (20.0, 10.0)
    assert held["bits_per_weight"] == 1.6
    assert "20.0 times the ticket" in str(size)
    assert "1.0000 bits per masked weight, where H(keep) is 1.0000 at keep 0.5" in str(size)
    assert not math.isnan(held["bound_per_masked_weight"])
