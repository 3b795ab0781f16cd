"""Two processes search as one does; two that search for different things are told so."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from frameworks import RECIPE, batch, plain_loop, search
from models import tiny_gpt2
from test_trainer import trainer
from untrained.apply import Applied, apply
from untrained.errors import ApplyError
from untrained.ranks import require_same_search
from untrained.tasks import text
from untrained.train import Training, train

Work = Callable[[int, Path], Any]
QUICK = {"batch": 4, "warmup": 2, "log_every": 2, "evaluate_every": 6, "steps": 6}


def on_two_ranks(work: Work, folder: Path) -> list[Any]:
    """What each of two gloo processes returned, or the text of what it raised."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_rank, (work, folder, port), nprocs=2)
    return [torch.load(folder / f"rank{rank}", weights_only=False) for rank in range(2)]


def _rank(rank: int, work: Work, folder: Path, port: int) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "ACCELERATE_USE_CPU": "true",
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        result = work(rank, folder)
    except Exception:
        result = traceback.format_exc()
    torch.save(result, folder / f"rank{rank}")
    dist.destroy_process_group()


def state(applied: Applied) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in applied.state_dict().items()}


def plain_ddp(rank: int, _: Path) -> dict[str, torch.Tensor]:
    applied = search()
    model = DistributedDataParallel(applied.model)
    optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
    for step in range(4):
        model(**batch(2 * step + rank)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    applied.check_intact()
    return state(applied)


def test_two_ranks_learn_what_one_process_learns_with_accumulation(tmp_path: Path) -> None:
    first, second = on_two_ranks(plain_ddp, tmp_path)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    alone = search()
    plain_loop(alone, steps=4, accumulate=2)
    assert all(torch.allclose(first[n], t, atol=1e-4) for n, t in alone.state_dict().items())
    again = search()
    again.load_state_dict(first)
    assert again.masks == alone.masks


def stock_trainer(rank: int, folder: Path) -> dict[str, torch.Tensor]:
    applied = search()
    trainer(applied, folder / f"trainer{rank}", max_steps=4).train()
    applied.check_intact()
    return state(applied)


def test_a_stock_trainer_on_two_ranks_learns_the_same(tmp_path: Path) -> None:
    first, second = on_two_ranks(stock_trainer, tmp_path)
    assert all(torch.equal(first[name], second[name]) for name in first)
    alone = search()
    plain_loop(alone, steps=4, accumulate=2)
    assert all(torch.allclose(first[n], t, atol=1e-4) for n, t in alone.state_dict().items())


def our_loop(_: int, folder: Path) -> tuple[dict[str, torch.Tensor], list[float]]:
    applied = apply(tiny_gpt2(vocab_size=256), RECIPE, seed=7)
    task = text(str(folder / "letters"), length=12)
    history = train(applied, task, Training(**QUICK), checkpoint=folder / "checkpoint")
    return state(applied), [entry["loss"] for entry in history.steps]


def test_our_loop_on_two_ranks_is_our_loop_on_one(letters: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").symlink_to(letters)
    (first, losses), (second, same) = on_two_ranks(our_loop, tmp_path)
    assert losses == same
    assert all(torch.equal(first[name], second[name]) for name in first)
    (tmp_path / "checkpoint").unlink()
    alone, expected = our_loop(0, tmp_path)
    assert losses == pytest.approx(expected, abs=1e-4)
    assert all(torch.allclose(first[name], alone[name], atol=1e-4) for name in alone)


def other_seeds(rank: int, _: Path) -> list[str]:
    """The fault, and both errors: ranks that draw different weights and masks."""
    applied = apply(tiny_gpt2(), RECIPE, seed=rank)
    said = []
    with pytest.raises(ApplyError) as error:
        require_same_search(applied)
    said.append(str(error.value))
    mine = applied.model.transformer.h[0].mlp.c_fc.weight.detach().clone()
    model = DistributedDataParallel(applied.model)  # it gives every rank the weights of rank 0
    said.append(
        f"overwritten {not torch.equal(mine, applied.model.transformer.h[0].mlp.c_fc.weight)}"
    )
    optimizer = applied.optimizer(torch.optim.SGD, lr=0.1)
    model(**batch(0)).loss.backward()
    try:
        optimizer.step()
    except ApplyError as error_:
        said.append(str(error_))
    return said


def test_ranks_of_different_seeds_are_refused(tmp_path: Path) -> None:
    first, second = on_two_ranks(other_seeds, tmp_path)
    assert "rank 1 searches with another seed than rank 0 (1 and 0)" in first[0]
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("overwritten False", "overwritten True")
    assert "give every process the same recipe and seed" in second[2]


def sharded(_: int, __: Path) -> str:
    applied = search()
    optimizer = applied.optimizer(torch.optim.SGD, lr=0.1)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    model = fully_shard(applied.model, mesh=mesh)
    model(**batch(0)).loss.backward()
    with pytest.raises(ApplyError) as error:
        optimizer.step()
    return str(error.value)


def test_sharding_the_weights_is_refused(tmp_path: Path) -> None:
    for said in on_two_ranks(sharded, tmp_path):
        assert "is no longer the tensor that apply() took over (DTensor" in said
