"""A stock Trainer searches as a plain loop does, and nothing it does on its own is silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from frameworks import plain_loop, same, search, sentences
from untrained.apply import Applied, apply
from untrained.errors import ApplyError
from untrained.ticket import Ticket
from untrained.trainer import SearchCallback


class InOrder(Trainer):
    """A stock Trainer but for the order of its data, which the plain loop's is."""

    def _get_train_sampler(self, *_: Any, **__: Any) -> None:
        return None


def trainer(applied: Applied, folder: Path, **settings: Any) -> Trainer:
    usual: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "dataloader_pin_memory": False,
    }
    callbacks = [SearchCallback(applied), *settings.pop("callbacks", [])]
    run = InOrder(
        applied.model,
        TrainingArguments(**usual | settings),
        train_dataset=sentences(),
        eval_dataset=sentences(4),
        optimizers=(applied.optimizer(torch.optim.AdamW, lr=1e-2), None),
        callbacks=callbacks,
    )
    run.model_accepts_loss_kwargs = False  # the mean over a batch, as the plain loop takes it
    return run


def test_it_ends_with_the_bits_of_a_plain_loop(tmp_path: Path) -> None:
    stock, plain = search(), search()
    trainer(stock, tmp_path).train()
    plain_loop(plain)
    assert same(stock, plain)
    stock.check_intact()


def test_accumulation_and_clipping_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    stock, plain = search(), search()
    run = trainer(stock, tmp_path, gradient_accumulation_steps=2, max_grad_norm=0.1, max_steps=4)
    run.train()
    plain_loop(plain, steps=4, accumulate=2, clip=0.1)
    assert same(stock, plain)


def test_bf16_searches_and_scores_stay_float32(tmp_path: Path) -> None:
    applied = search()
    before = applied.masks
    run = trainer(applied, tmp_path, bf16=True, max_steps=12, logging_steps=1)
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert {score.dtype for score in applied.scores.values()} == {torch.float32}
    assert applied.masks != before
    applied.check_intact()


class Stop(TrainerCallback):
    """As if the process had been killed after some step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        control.should_training_stop = state.global_step == self.step


def test_a_stopped_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 3, "lr_scheduler_type": "cosine"}
    whole, first, second = search(), search(), search()
    trainer(whole, tmp_path / "whole", **saving).train()
    trainer(first, tmp_path / "parts", **saving, callbacks=[Stop(3)]).train()
    trainer(second, tmp_path / "parts", **saving).train(resume_from_checkpoint=True)
    assert not same(whole, first)
    assert same(whole, second)


BEST = {
    "load_best_model_at_end": True,
    "save_strategy": "steps",
    "save_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "metric_for_best_model": "loss",
    "greater_is_better": True,  # so that the best is the first, not the last
}


def test_the_best_step_comes_back_with_its_scores(tmp_path: Path) -> None:
    best, plain = search(), search()
    trainer(best, tmp_path, **BEST).train()
    plain_loop(plain, steps=2)
    assert same(best, plain)
    assert Ticket.of(best).masks == plain.masks


def test_without_the_callback_the_best_weights_are_no_ticket(tmp_path: Path) -> None:
    applied = search()
    run = trainer(applied, tmp_path, **BEST)
    run.remove_callback(SearchCallback)
    run.train()
    with pytest.raises(ApplyError, match="is not its random weights times its mask"):
        Ticket.of(applied)


def test_the_best_step_without_its_scores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"optimizer.pt does not exist.*save_only_model=False"):
        trainer(search(), tmp_path, **BEST, save_only_model=True).train()


def test_its_own_optimiser_is_refused_before_the_first_step(tmp_path: Path) -> None:
    applied = search()
    run = trainer(applied, tmp_path)
    run.optimizer = None
    with pytest.raises(ApplyError, match="does not hold the scores; give it optimizers="):
        run.train()
    applied.check_intact()


def test_fp16_is_refused(tmp_path: Path) -> None:
    applied = search()
    run = trainer(applied, tmp_path)
    run.args.fp16 = True
    with pytest.raises(ApplyError, match="fp16=True: the Trainer unscales"):
        run.callback_handler.on_train_begin(run.args, run.state, run.control)


def test_a_checkpoint_of_another_seed_is_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 3}
    trainer(search(), tmp_path, **saving, callbacks=[Stop(3)]).train()
    other = apply(search().model.__class__(search().model.config), str(search().recipe), seed=8)
    with pytest.raises(ApplyError, match="of a search of seed 7, and this search is of seed 8"):
        trainer(other, tmp_path, **saving).train(resume_from_checkpoint=True)


def test_a_saved_model_is_an_ordinary_model(tmp_path: Path) -> None:
    applied = search()
    run = trainer(applied, tmp_path)
    run.train()
    run.save_model(str(tmp_path / "plain"))
    plain = type(applied.model).from_pretrained(tmp_path / "plain")
    tokens = sentences(2)[1]["input_ids"][None]
    assert torch.equal(plain.eval()(tokens).logits, applied.model.eval()(tokens).logits)


def test_a_learning_rate_without_effect_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"learning_rate=0.5 has no effect.*applied.optimizer"):
        trainer(search(), tmp_path, learning_rate=0.5, max_steps=1).train()


@pytest.mark.parametrize("lost", ["optimizer.pt", "scheduler.pt"])
def test_resuming_without_the_scores_is_refused(tmp_path: Path, lost: str) -> None:
    saving = {"save_strategy": "steps", "save_steps": 3}
    trainer(search(), tmp_path, **saving, callbacks=[Stop(3)]).train()
    (tmp_path / "checkpoint-3" / lost).unlink()
    with pytest.raises(ApplyError, match="resumed at step 3 without the optimiser's state"):
        trainer(search(), tmp_path, **saving).train(resume_from_checkpoint=True)
