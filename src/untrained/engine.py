"""How do values move between latents and the weights that a model computes with?

A tensor with a masked part stays an ordinary Parameter `E` of its module: the *effective* weight.
What is learned, the *latents* (scores of a masked part, values of a trained part of a fused
tensor), lies beside the model. Once per optimiser step:

    pull   latent.grad += f(E.grad), E.grad = None     (before the step)
    push   E = W * mask(scores), in place              (after the step)

so that forward and backward are those of a dense model. The price is that nobody else may write
to E; the guards here notice who does.

Letters: E effective weight, W random weight, g gradient, s scores.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from untrained.components import Slot
from untrained.errors import ApplyError
from untrained.masks import Mask
from untrained.select import score_gradient, select
from untrained.states import Masked, State


@dataclass(eq=False)
class Part:
    """One slot's share of an effective tensor. Tensors are in the module's stored layout."""

    slot: Slot
    state: State
    weights: Tensor | None = None
    """The random weights W, float32; held once by all parts that share them. None if trained."""

    latent: nn.Parameter | None = None
    """What is learned, float32: scores if masked, values if trained, None if frozen. Parts that
    share their scores hold one; tiled scores are one block of them."""

    mask: Tensor | None = None
    """The mask in force, bool; None where nothing is masked."""

    @property
    def masked(self) -> bool:
        return isinstance(self.state, Masked)

    @property
    def scores(self) -> Tensor:
        """The scores in logical form, a view of the latent; one block of them if tiled."""
        assert self.masked and self.latent is not None
        return self.slot.logical(self.latent.detach())

    def tiled(self, block: Tensor) -> Tensor:
        """A logical tensor of the slot's shape, from the block of it that the scores cover."""
        assert isinstance(self.state, Masked)
        rows, columns = self.state.tile_rows, self.state.tile_columns
        if rows == columns == 1:
            return block
        return block.repeat(rows, columns, *[1] * (block.dim() - 2))

    def untiled(self, whole: Tensor) -> Tensor:
        """The sum over the tiles: what `tiled` does to a gradient on its way back."""
        assert isinstance(self.state, Masked)
        rows, columns = self.state.tile_rows, self.state.tile_columns
        if rows == columns == 1:
            return whole
        out, inputs, *more = whole.shape
        tiles = whole.reshape(rows, out // rows, columns, inputs // columns, *more)
        return tiles.sum(dim=(0, 2))

    def value(self) -> Tensor:
        """This part of E: W * mask, W, or the trained latent."""
        source = self.latent if self.weights is None else self.weights
        assert source is not None
        return source.detach() if self.mask is None else source.detach() * self.mask

    def follow(self, device: torch.device) -> None:
        """Move to the device of E, if E was moved."""
        if self.weights is not None:
            self.weights = self.weights.to(device)
        if self.mask is not None:
            self.mask = self.mask.to(device)
        if self.latent is not None:
            self.latent.data = self.latent.data.to(device)

    def pull(self, gradient: Tensor) -> None:
        """Add to latent.grad what E's gradient says about this part."""
        if self.latent is None:
            return
        g = gradient.to(torch.float32)
        if isinstance(self.state, Masked):
            assert self.weights is not None
            logical = self.slot.logical
            whole = score_gradient(
                self.tiled(self.scores), logical(self.weights), logical(g), by=self.state.by
            )
            g = logical(self.untiled(whole))
        if self.latent.grad is None:
            self.latent.grad = g.contiguous() if g is not gradient else g.clone()
        else:
            self.latent.grad += g


@dataclass(eq=False)
class Effective:
    """One tensor of the model that is rebuilt from latents, and its parts."""

    names: tuple[str, ...]
    """Every name of the tensor in the model; several if it is tied."""

    parameter: nn.Parameter
    """E itself."""

    parts: list[Part]

    def __post_init__(self) -> None:
        self.form = _describe(self.parameter)
        self.version = self.parameter._version

    def write(self) -> None:
        """Rebuild E from its parts, in place."""
        with torch.no_grad():
            for part in self.parts:
                part.slot.stored(self.parameter).copy_(part.value())
        self.version = self.parameter._version

    def unwritten(self) -> bool:
        """Whether E is as the last `write` left it. Asks the version counter, and only if that
        has moved the values: a checkpoint of this very search may have been loaded into E."""
        if self.parameter._version != self.version and self.intact():
            self.version = self.parameter._version
        return self.parameter._version == self.version

    def intact(self) -> bool:
        """Whether E still holds exactly what its parts say."""
        E = self.parameter.detach()
        return all(
            torch.equal(part.slot.stored(E), part.value().to(E.dtype)) for part in self.parts
        )


@dataclass(eq=False)
class Engine:
    """All effective tensors of one model."""

    model: nn.Module
    tensors: list[Effective]

    def __post_init__(self) -> None:
        self._guard()
        self.push()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a pickle: the same search, guarded like the first."""
        vars(self).update(state)
        self._guard()

    def _guard(self) -> None:
        for tensor in self.tensors:
            _guarded[id(tensor.parameter)] = (weakref.ref(tensor.parameter), tensor.names[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        """A copy of the search with a model of its own, guarded like the first."""
        return Engine(copy.deepcopy(self.model, memo), copy.deepcopy(self.tensors, memo))

    @property
    def parts(self) -> list[Part]:
        return [part for tensor in self.tensors for part in tensor.parts]

    @property
    def masked(self) -> list[Part]:
        return [part for part in self.parts if part.masked]

    def latents(self) -> dict[str, nn.Parameter]:
        """Everything learned beside the model: role -> scores or values.

        Scores that several layers share go by the role of the first of them.
        """
        named: dict[int, tuple[str, nn.Parameter]] = {}
        for part in self.parts:
            if part.latent is not None:
                named.setdefault(id(part.latent), (part.slot.role, part.latent))
        return dict(named.values())

    def push(self) -> None:
        """Select every mask from its scores and rebuild every E."""
        self.wear(self.selected())

    def selected(self) -> dict[str, Tensor]:
        """The masks that the scores ask for: role -> bool, logical."""
        masks: dict[str, Tensor] = {}
        named = self.latents().keys()  # shared scores go by one role, so that they count once
        for state, parts in _pools(self.masked):
            held = {part.slot.role: part for part in parts if part.slot.role in named}
            scores = {role: part.scores for role, part in held.items()}
            layer = {role: part.slot.layer_number for role, part in held.items()}
            chosen = select(scores, state.keep, scope=state.scope, by=state.by, layer=layer)
            whole = {id(part.latent): part.tiled(chosen[role]) for role, part in held.items()}
            masks |= {part.slot.role: whole[id(part.latent)] for part in parts}
        return masks

    def wear(self, masks: Mapping[str, Tensor]) -> None:
        """Put on these masks (logical, by role), whatever the scores say, and rebuild E."""
        for part in self.masked:
            part.mask = part.slot.logical(masks[part.slot.role].to(part.scores.device))
        for tensor in self.tensors:
            tensor.write()
        torch.clear_autocast_cache()  # it may hold casts of the weights that were just replaced

    def masks(self) -> Mask:
        """The learned masks in force, by role."""
        return Mask(
            {
                part.slot.role: part.slot.logical(part.mask).cpu().contiguous()
                for part in self.masked
                if part.mask is not None
            }
        )

    def pull(self) -> None:
        """Move every gradient from E to the latents. Calling it twice changes nothing.

        Raises:
            ApplyError: an E that the model no longer uses, or that somebody else wrote to.
        """
        self.check_identity()
        self.check_unwritten()
        for tensor in self.tensors:
            gradient = tensor.parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                raise ApplyError(
                    f"{tensor.names[0]} has a sparse gradient, which scores cannot use; make its "
                    "embedding with sparse=False"
                )
            for part in tensor.parts:
                part.pull(part.slot.stored(gradient))
            tensor.parameter.grad = None

    def pending(self) -> bool:
        """Whether some gradient waits to be pulled."""
        return any(tensor.parameter.grad is not None for tensor in self.tensors)

    def clear(self, *, latents: bool = False) -> None:
        """Drop gradients that were never pulled, so that a skipped step leaves nothing behind.

        Args:
            latents: drop those of the latents as well.
        """
        for tensor in self.tensors:
            tensor.parameter.grad = None
        for latent in self.latents().values() if latents else ():
            latent.grad = None

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take latents over, and rebuild every E.

        Raises:
            ApplyError: latents of other roles or shapes.
        """
        copy_state(self.latents(), state)
        self.push()

    def check_identity(self) -> None:
        """Require that the model still computes with the tensors held here.

        Raises:
            ApplyError: a parameter that was replaced, resized or cast since `apply`.
        """
        for tensor in self.tensors:
            for name in tensor.names:
                now = _find(self.model, name)
                if now is not tensor.parameter:
                    raise ApplyError(
                        f"{name} is no longer the tensor that apply() took over "
                        f"({_describe(now)} instead of {_describe(tensor.parameter)}); resize, "
                        "tie, shard or reload the model before apply(), not after"
                    )
            if (form := _describe(tensor.parameter)) != tensor.form:
                raise ApplyError(
                    f"{tensor.names[0]} is {form} and was {tensor.form} at apply(); resize or cast "
                    "the model before apply(), or train under autocast"
                )
            for part in tensor.parts:
                part.follow(tensor.parameter.device)

    def check_intact(self) -> None:
        """Require every E to equal its parts under the masks in force.

        Raises:
            ApplyError: a tensor that somebody else wrote to.
        """
        self.check_identity()
        for tensor in self.tensors:
            if not tensor.intact():
                raise _overwritten(tensor)

    def check_unwritten(self) -> None:
        """The same by version counters: free, but blind to writers that hide (fused optimisers).

        Raises:
            ApplyError: a tensor that somebody else wrote to.
        """
        for tensor in self.tensors:
            if not tensor.unwritten():
                raise _overwritten(tensor)


def require_same(mine: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Require that a state has just these names and shapes, and no NaN.

    Raises:
        ApplyError: the first that differs.
    """
    if extra := sorted(mine.keys() ^ state.keys()):
        raise ApplyError(f"the state is of another recipe or model: {', '.join(extra[:5])}")
    for name, tensor in mine.items():
        if tensor.shape != state[name].shape:
            was, now = tuple(state[name].shape), tuple(tensor.shape)
            raise ApplyError(f"{name} is {was} in the state and {now} in the model")
        if bool(state[name].isnan().any()):
            raise ApplyError(f"{name} holds NaN in the state; no mask follows from that")


def copy_state(mine: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy a state into the tensors of the same names, all of it or nothing.

    Raises:
        ApplyError: what `require_same` refuses.
    """
    require_same(mine, state)
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(state[name])


def _overwritten(tensor: Effective) -> ApplyError:
    return ApplyError(
        f"{tensor.names[0]} is not its random weights times its mask: something wrote to it. Train "
        "with applied.optimizer(...); average and load latents (applied.state_dict()) instead of "
        "weights; give every process the same recipe and seed; and call applied.push() after "
        "changing scores by hand"
    )


def _pools(parts: Iterable[Part]) -> Iterator[tuple[Masked, list[Part]]]:
    """Masked parts grouped by state: a budget is held over all tensors of one state."""
    pools: dict[Masked, list[Part]] = {}
    for part in parts:
        assert isinstance(part.state, Masked)
        pools.setdefault(part.state, []).append(part)
    yield from pools.items()


def _find(model: nn.Module, name: str) -> Tensor | None:
    module, _, tail = name.rpartition(".")
    try:
        return getattr(model.get_submodule(module), tail, None)
    except AttributeError:
        return None


def _describe(tensor: Tensor | None) -> str:
    if tensor is None:
        return "nothing"
    return (
        f"{type(tensor).__name__}{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
    )


# --- the guard against foreign optimisers -------------------------------------------------------

_guarded: dict[int, tuple[weakref.ref[nn.Parameter], str]] = {}


def guarded(parameter: Tensor) -> str | None:
    """The name of an effective weight that some search holds, or None."""
    reference, name = _guarded.get(id(parameter), (None, ""))
    if reference is None:
        return None
    if reference() is parameter:
        return name
    del _guarded[id(parameter)]  # the id was reused after the first owner died
    return None


def release(engine: Engine) -> None:
    """Let go of the tensors of a search that is over."""
    for tensor in engine.tensors:
        _guarded.pop(id(tensor.parameter), None)


def _refuse_effective(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before any step of any optimiser: it must not move an effective weight."""
    if not _guarded:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if name := guarded(parameter):
                raise ApplyError(
                    f"{type(optimizer).__name__} holds {name}, a masked weight; stepping it would "
                    "undo the mask. Build the optimiser with applied.optimizer"
                    f"({type(optimizer).__name__}, ...)"
                )


register_optimizer_step_pre_hook(_refuse_effective)
