"""How does an ordinary optimiser search?

It is built over what is learned: the latents and the ordinary trained tensors. Hooks around its
step carry pull and push; hooks on its state dict carry the latents, so that whoever saves and
loads the optimiser (accelerate, a stock Trainer, a plain loop) resumes the search with it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from untrained.engine import Engine, require_same
from untrained.errors import ApplyError

KEY = "untrained"
"""Where an optimiser's state dict holds the search: {recipe, seed, latents}."""


def attach(
    engine: Engine,
    optimizer: torch.optim.Optimizer,
    *,
    identity: Mapping[str, str | int],
    allow_unused: bool,
) -> None:
    """Make an optimiser pull before its step, push after it, and carry the latents.

    Args:
        engine: the search.
        optimizer: an optimiser over the search's latents.
        identity: what search this is; a state of another one is not taken.
        allow_unused: whether a step may find tensors that no gradient reached.
    """
    _around_step(engine, optimizer, allow_unused)
    _around_zero_grad(engine, optimizer)
    _around_state(engine, optimizer, dict(identity))
    _refuse_copies(optimizer)


def searches(optimizer: Any, engine: Engine) -> bool:
    """Whether an optimiser, or the one that it wraps, is attached to a search."""
    latents = {id(latent) for latent in engine.latents().values()}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return latents <= held


def _around_step(engine: Engine, optimizer: torch.optim.Optimizer, allow_unused: bool) -> None:
    def before(_: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(callable(arg) for arg in args):
            raise ApplyError("step(closure) evaluates the loss between pull and push; call step()")
        if engine.pending() and _under_a_scaler():
            raise ApplyError(
                "a GradScaler unscales the gradients of scores before they are there, so that the "
                "step would take scaled ones; train in bf16, or in your own loop call "
                "applied.pull() before scaler.unscale_(optimizer) or scaler.step(optimizer)"
            )
        engine.pull()
        if not allow_unused:
            _require_gradients(engine)

    def after(*_: Any) -> None:
        engine.push()
        engine.clear(latents=True)  # the step has used them; a Trainer clears its model's only

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def _require_gradients(engine: Engine) -> None:
    """No gradient is not a zero gradient: the model may be a copy, or bypass what it should use."""
    latents = engine.latents()
    without = [role for role, latent in latents.items() if latent.grad is None]
    if len(without) == len(latents) and without:
        raise ApplyError(
            "no gradient has reached the masked weights since the last step: call backward() "
            "before step(), on the model given to apply() and not on a copy of it"
        )
    if without:
        raise ApplyError(
            f"no gradient has reached {', '.join(without[:3])}{' ...' if without[3:] else ''} "
            f"({len(without)} of {len(latents)}) since the last step; if the model leaves them out "
            "on purpose, build the optimiser with allow_unused=True"
        )


def _under_a_scaler() -> bool:
    """Whether this step was called by a GradScaler, which leaves no other trace."""
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), torch.amp.GradScaler):
            return True
        frame = frame.f_back
    return False


def _around_zero_grad(engine: Engine, optimizer: torch.optim.Optimizer) -> None:
    plain = optimizer.zero_grad

    @functools.wraps(plain)
    def zero_grad(set_to_none: bool = True) -> None:
        plain(set_to_none)
        engine.clear()

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign]


def _around_state(
    engine: Engine, optimizer: torch.optim.Optimizer, identity: dict[str, str | int]
) -> None:
    taken: dict[str, Tensor] = {}

    def save(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        latents = {role: latent.detach() for role, latent in engine.latents().items()}
        return {**state, KEY: {**identity, "latents": latents}}

    def check(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        taken.clear()
        taken.update(saved_latents(state, identity))
        require_same(engine.latents(), taken)
        return {name: value for name, value in state.items() if name != KEY}

    def load(_: torch.optim.Optimizer) -> None:
        engine.load(taken)
        taken.clear()

    optimizer.register_state_dict_post_hook(save)
    optimizer.register_load_state_dict_pre_hook(check)
    optimizer.register_load_state_dict_post_hook(load)


def saved_latents(state: Mapping[str, Any], identity: Mapping[str, str | int]) -> dict[str, Tensor]:
    """The latents in an optimiser's state dict.

    Raises:
        ApplyError: it has none, or those of another search.
    """
    held = state.get(KEY)
    if not isinstance(held, Mapping) or not isinstance(held.get("latents"), Mapping):
        raise ApplyError(
            "this optimiser state holds no latents, so the search cannot go on from it; it was "
            "saved by an optimiser that applied.optimizer() did not build"
        )
    for name, mine in identity.items():
        if held.get(name) != mine:
            raise ApplyError(
                f"this optimiser state is of a search of {name} {held.get(name)!r}, and this "
                f"search is of {name} {mine!r}"
            )
    return dict(held["latents"])


def _refuse_copies(optimizer: torch.optim.Optimizer) -> None:
    """A copy would hold copied latents, and no hooks: it would move nothing, without a word."""

    def refuse(*_: Any) -> NoReturn:
        raise ApplyError(
            "a copied or pickled optimiser would move copies of the scores, which no model uses; "
            "copy the search (copy.deepcopy(applied)) and build another, or save state_dict()"
        )

    blocked: dict[str, Callable[..., NoReturn]] = {"__deepcopy__": refuse, "__reduce_ex__": refuse}
    vars(optimizer).update(blocked)
