"""What does a recipe make of a model?

`apply(model, recipe, seed)` draws every value of the model from the seed, takes over the tensors
that have a masked part, and returns an `Applied`: the model, still an ordinary model, and what is
learned beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from untrained.components import Slot
from untrained.engine import Effective, Engine, Part, copy_state, guarded, release
from untrained.errors import ApplyError, RecipeError
from untrained.layouts import Layout, layout_of
from untrained.liveness import check_liveness
from untrained.masks import Mask
from untrained.optimizer import attach
from untrained.recipe import Recipe, recipe
from untrained.report import Row, report
from untrained.source import draw_mask, draw_scores, draw_weights
from untrained.states import Frozen, Masked, State, Trained

T = TypeVar("T")


@dataclass(eq=False)
class Applied:
    """A model under a recipe: the ordinary model, and the latents that are learned for it."""

    model: nn.Module
    """The model itself, computing with effective weights."""

    recipe: Recipe
    seed: int
    layout: Layout

    states: dict[Slot, State]
    """The state of every slot."""

    engine: Engine = field(repr=False)
    """What moves values between latents and effective weights."""

    def __str__(self) -> str:
        return report(f"{self.layout.name}, seed {self.seed}: {self.recipe}", self.rows())

    @property
    def masks(self) -> Mask:
        """The learned masks in force: role -> bool, logical (out, in)."""
        return self.engine.masks()

    @property
    def scores(self) -> dict[str, Tensor]:
        """The scores: role -> float32, logical (out, in), views of what the optimiser moves."""
        return {part.slot.role: part.scores for part in self.engine.masked}

    @property
    def identity(self) -> dict[str, str | int]:
        """What search this is: latents of another recipe or seed mean nothing here."""
        return {"recipe": str(self.recipe), "seed": self.seed}

    def trained(self) -> dict[str, nn.Parameter]:
        """The ordinary trained parameters of the model, by their names in it."""
        named = self.model.named_parameters()
        return {n: p for n, p in named if p.requires_grad and not guarded(p)}

    def distinct(self) -> dict[Slot, State]:
        """The states, of two slots that are one tied tensor only the first."""
        return {
            slot: state
            for _, slots in _by_tensor(self.model, self.layout)
            for slot, state in _untied({slot: self.states[slot] for slot in slots})
        }

    def latents(self) -> dict[str, nn.Parameter]:
        """All that is learned: trained parameters by name, and latents by role."""
        return self.trained() | self.engine.latents()

    def optimizer(
        self,
        make: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        lr: float,
        scores_lr: float | None = None,
        allow_unused: bool = False,
        **settings: Any,
    ) -> torch.optim.Optimizer:
        """Build an optimiser over all that is learned, with pull and push around its step.

        Args:
            make: an optimiser's class.
            lr: the learning rate of trained tensors, and of scores if `scores_lr` is not given.
            scores_lr: the learning rate of scores.
            allow_unused: whether a step may find latents that no gradient has reached, as in a
                model that leaves some layers out.
            settings: further settings of the optimiser. Weight decay acts on trained tensors
                only: on scores it would shrink what ranks them.

        The latents travel in the optimiser's `state_dict`, so saving and loading it saves and
        loads the search. A step uses the gradients of the latents up.

        Raises:
            ApplyError: nothing is learned, a setting that makes no sense or has no effect, or an
                optimiser that evaluates its loss itself.
        """
        for name, rate in (("lr", lr), ("scores_lr", scores_lr)):
            if rate is not None and not (math.isfinite(rate) and rate >= 0):
                raise ApplyError(f"{name}={rate}: a learning rate is a number, at least 0")
        if make is torch.optim.LBFGS:
            raise ApplyError("LBFGS evaluates the loss itself, between pull and push; use AdamW")
        self._check_frozen()
        learned, masked = self.latents(), self.scores.keys()
        scores = [latent for name, latent in learned.items() if name in masked]
        trained = [latent for name, latent in learned.items() if name not in masked]
        groups: list[dict[str, Any]] = [{"params": trained}] if trained else []
        if scores:
            own = lr if scores_lr is None else scores_lr
            groups.append({"params": scores, "lr": own, "weight_decay": 0.0})
        if settings.get("weight_decay") and not trained:
            raise ApplyError(
                f"weight_decay={settings['weight_decay']} has no effect: nothing but scores is "
                "learned, and what ranks them is not decayed; leave it out"
            )
        if not groups:
            raise ApplyError(
                f"nothing is learned under {self.recipe}; there is nothing to optimise"
            )
        optimizer: torch.optim.Optimizer = make(groups, lr=lr, **settings)
        attach(self.engine, optimizer, identity=self.identity, allow_unused=allow_unused)
        return optimizer

    def _check_frozen(self) -> None:
        named = dict(self.model.named_parameters(remove_duplicate=False))
        for slot, state in self.distinct().items():
            held = named[slot.parameter]
            if isinstance(state, Frozen) and held.requires_grad and not guarded(held):
                raise ApplyError(
                    f"{slot.parameter} is {state}, but somebody set requires_grad on it, so it "
                    "would be trained; set it to False again, or say trained in the recipe"
                )

    def pull(self) -> None:
        """Move gradients from effective weights to latents (the optimiser calls this)."""
        self.engine.pull()

    def push(self) -> None:
        """Rebuild masks and effective weights from the latents (the optimiser calls this)."""
        self.engine.push()

    def state_dict(self) -> dict[str, Tensor]:
        """All that is learned, by name and role: enough to resume, with the recipe and the seed."""
        return {name: tensor.detach() for name, tensor in self.latents().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, and rebuild the effective weights.

        Raises:
            ApplyError: names or shapes that are not this model's.
        """
        copy_state(self.latents(), state)
        self.push()

    def check_liveness(self, *args: Any, **inputs: Any) -> int:
        """Flip one mask bit of every masked tensor and require that the output changes.

        Args:
            args, inputs: one batch for the model; token ids are made up if none is given.

        Returns:
            The number of masked tensors checked, each in train and in eval mode.

        Raises:
            ApplyError: a tensor whose mask the model ignores.
        """
        return check_liveness(self.engine, args, inputs)

    def check_intact(self) -> None:
        """Require that no masked or frozen tensor was written to by somebody else.

        Raises:
            ApplyError: the first tensor that differs from its seed and mask.
        """
        self.engine.check_intact()
        named = dict(self.model.named_parameters(remove_duplicate=False))
        layers = self.layout.layers
        for slot, state in self.distinct().items():
            if not isinstance(state, Frozen) or guarded(named[slot.parameter]):
                continue
            drawn = _frozen_value(slot, state, self.seed, layers)
            held = slot.logical(slot.stored(named[slot.parameter].detach()))
            if drawn is not None and not torch.equal(drawn.to(held), held):
                raise ApplyError(
                    f"{slot.parameter} is frozen, but no longer what seed {self.seed} gives; "
                    "something wrote to it"
                )

    def rows(self) -> Iterator[Row]:
        """One row per component and state: tensors, weights, weights kept."""
        masks = {part.slot.role: part.mask for part in self.engine.masked}
        for slot, state in self.distinct().items():
            kept = masks.get(slot.role)
            yield Row.of(slot, state, None if kept is None else int(kept.sum()))

    def release(self) -> None:
        """End the search: the model is from now on a plain dense model."""
        release(self.engine)


def apply(
    model: nn.Module,
    recipe_: Recipe | str,
    *,
    seed: int = 0,
    layout: Layout | None = None,
) -> Applied:
    """Put a model under a recipe, drawing every value from the seed.

    Args:
        model: the model; changed in place.
        recipe_: a recipe, its text, or the name of a preset.
        seed: 0 <= seed < 2**64.
        layout: where the components lie; found by the model's type if not given.

    Raises:
        RecipeError: the recipe does not fit the model.
        ApplyError: the model is under a recipe already.
    """
    _refuse_wrapped(model)
    _refuse_valueless(model)
    for name, parameter in model.named_parameters():
        if guarded(parameter):
            raise ApplyError(
                f"{name} belongs to a search already; call release() on it, or make a new model"
            )
    rules = recipe(recipe_)
    layout = layout or layout_of(model)
    states = rules.states(layout)
    builder = _Builder(seed, layout.layers)
    tensors = [
        effective
        for parameter, slots in _by_tensor(model, layout)
        if (effective := builder.build(parameter, {slot: states[slot] for slot in slots}))
    ]
    return Applied(model, rules, seed, layout, states, Engine(model, tensors))


def _refuse_wrapped(model: nn.Module) -> None:
    """A wrapper holds what its model was when it was wrapped, so `apply` comes first."""
    if not isinstance(model, nn.Module):
        raise ApplyError(f"apply() takes a torch module, not {type(model).__name__}")
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    if isinstance(model, parallel) or hasattr(model, "_orig_mod"):
        raise ApplyError(
            f"{type(model).__name__} is a wrapper around a model; apply() before wrapping or "
            "compiling, then wrap applied.model"
        )


def _refuse_valueless(model: nn.Module) -> None:
    """Every parameter needs a value, and a value that a real law can draw."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ApplyError(f"{name} has no shape yet; call the model once before apply()")
        if parameter.is_meta:
            raise ApplyError(
                f"{name} is on the meta device and has no values; call model.to_empty("
                "device='cpu') before apply(), which draws them all"
            )
        if not parameter.is_floating_point():
            raise ApplyError(
                f"{name} holds {str(parameter.dtype).removeprefix('torch.')}; apply() draws real "
                "floating-point weights only"
            )


def _by_tensor(model: nn.Module, layout: Layout) -> Iterator[tuple[nn.Parameter, list[Slot]]]:
    """The slots of each tensor; a tied tensor comes once, with the slots of all its names."""
    named = dict(model.named_parameters(remove_duplicate=False))
    slots: dict[int, list[Slot]] = {}
    for slot in layout.slots:
        slots.setdefault(id(named[slot.parameter]), []).append(slot)
    for group in slots.values():
        yield named[group[0].parameter], group


class _Builder:
    """Draws the values of one tensor after the other, holding shared ones once."""

    def __init__(self, seed: int, layers: int) -> None:
        self.seed = seed
        self.layers = layers
        self.shared: dict[str, Tensor] = {}
        self.shared_scores: dict[str, nn.Parameter] = {}

    def build(self, parameter: nn.Parameter, states: dict[Slot, State]) -> Effective | None:
        """Fill a tensor; returns what rebuilds it, or None if it is all trained or all frozen."""
        names = tuple(dict.fromkeys(slot.parameter for slot in states))
        parts = [self.part(slot, state, parameter) for slot, state in _untied(states)]
        tensor = Effective(names, parameter, parts)
        tensor.write()
        kinds = {type(part.state) for part in parts}
        parameter.requires_grad_(kinds != {Frozen})
        return None if kinds in ({Frozen}, {Trained}) else tensor

    def part(self, slot: Slot, state: State, parameter: nn.Parameter) -> Part:
        """One slot's latents and random weights, in the layout of the module."""
        held = slot.stored(parameter.detach())
        if isinstance(state, Trained):
            value = draw_weights(slot, state, seed=self.seed, layers=self.layers)
            return Part(slot, state, latent=_latent(held if value is None else slot.logical(value)))
        weights = self.weights(slot, state, held)
        if isinstance(state, Frozen):
            mask = draw_mask(slot, state, seed=self.seed)
            on = None if mask is None else slot.logical(mask).to(held.device)
            return Part(slot, state, weights, mask=on)
        return Part(slot, state, weights, self.scores(slot, state, held.device))

    def scores(self, slot: Slot, state: Masked, device: torch.device) -> nn.Parameter:
        """The first scores, those of another layer if the layers share them."""

        def make() -> nn.Parameter:
            drawn = draw_scores(slot, state, seed=self.seed, layers=self.layers)
            return _latent(slot.logical(drawn).to(device))

        return _once(self.shared_scores, slot, state, state.share_scores, make)

    def weights(self, slot: Slot, state: State, held: Tensor) -> Tensor:
        """The random weights, those of another layer if the layers share them."""

        def make() -> Tensor:
            drawn = draw_weights(slot, state, seed=self.seed, layers=self.layers)
            value = held.float().clone() if drawn is None else slot.logical(drawn).to(held.device)
            return value.contiguous()

        return _once(self.shared, slot, state, getattr(state, "share", "none"), make)


def _once(held: dict[str, T], slot: Slot, state: State, share: str, make: Callable[[], T]) -> T:
    """A value made for each slot, or once for all layers that share it."""
    if share != "layers" or slot.layer is None:
        return make()
    key = f"{slot.shared_role} {state} {slot.shape}"
    if key not in held:
        held[key] = make()
    return held[key]


def _latent(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.to(torch.float32).clone(memory_format=torch.contiguous_format))


def _untied(states: dict[Slot, State]) -> Iterator[tuple[Slot, State]]:
    """Each place of a tensor once; its slots must agree, since they are one tensor.

    Raises:
        RecipeError: a tie of which the recipe names only one side.
    """
    places: dict[tuple[int, int] | None, dict[Slot, State]] = {}
    for slot, state in states.items():
        places.setdefault(slot.part, {})[slot] = state
    for tied in places.values():
        if len(set(tied.values())) > 1:
            raise RecipeError(_half_a_tie(tied))
        yield next(iter(tied.items()))


def _half_a_tie(tied: dict[Slot, State]) -> str:
    """What to say; the state to propose is one that somebody asked for."""
    sides = " and ".join(f"{slot.role} is {state}" for slot, state in tied.items())
    names = ",".join(dict.fromkeys(slot.name for slot in tied))
    asked = next(state for state in tied.values() if state != Trained())
    return (
        f"{sides}, but they are one tied tensor; give all of it one state: '{names} = {asked}', or "
        "untie it (tie_word_embeddings=False in a Hugging Face configuration)"
    )


def _frozen_value(slot: Slot, state: Frozen, seed: int, layers: int) -> Tensor | None:
    """What a frozen slot holds by its seed, or None if it holds what was there."""
    weights = draw_weights(slot, state, seed=seed, layers=layers)
    mask = draw_mask(slot, state, seed=seed)
    return weights if weights is None or mask is None else weights * mask
