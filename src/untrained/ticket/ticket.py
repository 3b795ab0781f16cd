"""How does a model become a ticket, and a ticket a model again?

A ticket is a recipe, a seed, masks, and the few tensors that no seed gives. Everything is named by
role (`layers.3.mlp.up`) and lies in logical order, (out, in), whatever the model stores. For every
role there is a checksum of the effective weight, so what is rebuilt is the model or an error.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from untrained.apply import Applied
from untrained.errors import TicketError, UntrainedError
from untrained.files import write_atomic
from untrained.layouts import Layout
from untrained.report import Row, report
from untrained.states import Trained
from untrained.tasks.tokenizer import Tokenizer
from untrained.ticket import probe
from untrained.ticket.architecture import Architecture
from untrained.ticket.content import Checksum, Content, Scalar
from untrained.ticket.format import decode, encode, header_bytes, open_file
from untrained.ticket.plan import Plan, check_free, find_layout, put
from untrained.ticket.rebuild import check_fit, check_sums, compute, rebuild_tensor, undrawable
from untrained.ticket.size import Size

MAX_WEIGHTS = 2**31
"""The weights that a file may ask for unless the caller allows more: 8 GiB of float32."""


@dataclass(frozen=True)
class Verified:
    """What was compared, and found equal."""

    tensors: int
    weights: int
    logits: str | None = None

    def __str__(self) -> str:
        text = f"{self.tensors:,} tensors, {self.weights:,} weights: every checksum matches"
        return text if self.logits is None else f"{text}; {self.logits}"


class Ticket(Content):
    """A model as a recipe, a seed, masks, and the few tensors that no seed gives.

    Make one with `Ticket.of(applied)` or `Ticket.load(path)`.
    """

    def __repr__(self) -> str:
        return (
            f"Ticket({self.architecture}, seed {self.seed}, {self.weights:,} weights, "
            f"'{self.recipe}')"
        )

    def __str__(self) -> str:
        title = f"{self.architecture}, seed {self.seed}, generator {self.generator}: {self.recipe}"
        if self.architecture.alone:
            counts = self.masks.counts
            pieces = self._plan(None).pieces
            rows = (Row.of(p.slot, p.state, counts.get(p.role)) for p in pieces)
            title = report(title, rows)
        return f"{title}\n\n{self.size()}"

    # --- from a search ---

    @classmethod
    def of(
        cls,
        applied: Applied,
        *,
        tokenizer: Tokenizer | str | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Ticket:
        """Take a ticket of a model under a recipe, with the masks in force; changes nothing.

        The ticket is rebuilt and compared with the model before it is returned.

        Args:
            applied: the search.
            tokenizer: the model's tokenizer, or the text of its `tokenizer.json`.
            metadata: scalars to write beside, such as results.

        Raises:
            ApplyError: something wrote to a masked or frozen tensor.
            TicketError: a model that does not follow from recipe, seed and masks, or a layout
                that cannot be named.
        """
        applied.check_intact()
        model, layout = applied.model, applied.layout
        _check_layout(model, layout)
        plan = Plan.of(model, layout, applied.recipe)
        live = _effective(model, plan)
        ticket = cls(
            recipe=applied.recipe,
            seed=applied.seed,
            architecture=Architecture.of(model),
            layout=layout.name,
            patterns=layout.patterns,
            masks=applied.masks,
            trained={p.role: live[p.role] for p in plan.pieces if isinstance(p.state, Trained)},
            values=_undrawn(applied, plan, live),
            buffers={name: _own(buffer) for name, buffer in plan.buffers.items()},
            checksums={role: Checksum.of(value) for role, value in live.items()},
            tokenizer=tokenizer.to_json() if isinstance(tokenizer, Tokenizer) else tokenizer,
            metadata=dict(metadata or {}),
        )
        ticket._check_birth(plan)
        return ticket

    # --- files ---

    def save(self, path: str | Path) -> Size:
        """Write the ticket, whole or not at all; the same ticket gives the same bytes.

        Returns:
            The bytes by part; prints as a small table.

        Raises:
            TicketError: the file cannot be written, or could not be read again.
        """
        path = Path(path)
        with _telling(path):
            data = encode(self.header(), self.sections())
            Content.read(*decode(io.BytesIO(data), len(data)))
        write_atomic(path, data, error=TicketError)
        return self._measure(data)

    @classmethod
    def load(cls, path: str | Path, *, max_weights: int = MAX_WEIGHTS) -> Ticket:
        """Read a ticket, believing nothing that it says.

        Every byte is checked, sizes before they are allocated. Nothing is imported or run by what
        the file says. No weight is drawn yet: that is for `verify` and `model`.

        Args:
            path: the file.
            max_weights: refuse a model of more weights. A small file may ask for a large model.

        Raises:
            TicketError: a file that is no ticket, of another version, cut short, damaged or lying.
        """
        path = Path(path)
        with open_file(path) as (file, size), _telling(path):
            ticket = cls.read(*decode(file, size))
            if ticket.weights > max_weights:
                raise TicketError(
                    f"it asks for {ticket.weights:,} weights, more than max_weights="
                    f"{max_weights:,}; if you trust it, load it with a larger max_weights"
                )
            if ticket.architecture.alone:
                check_fit(ticket, ticket._plan(None))
        return ticket

    def size(self) -> Size:
        """The bytes of the file by part, beside the entropy of the masks and dense checkpoints."""
        return self._measure(encode(self.header(), self.sections()))

    def _measure(self, data: bytes) -> Size:
        return Size.of(len(data), header_bytes(data), self.sections(), self.weights)

    # --- to a model ---

    def verify(
        self, *, logits: str | Path | None = None, skeleton: nn.Module | None = None
    ) -> Verified:
        """Rebuild every tensor, one at a time, and compare its checksum.

        Args:
            logits: a file of `write_probe`; the model is built and its logits compared bit for bit.
            skeleton: an instance of the module, for a ticket that only names its class; with
                `logits` it is filled.

        Raises:
            TicketError: the first tensor, or the logits, that differ.
        """
        plan = self._plan(skeleton)
        check_fit(self, plan)
        tensors = check_sums(self, plan)
        same = None if logits is None else probe.check_probe(self.model(skeleton), Path(logits))
        return Verified(tensors, self.weights, same)

    def model(self, skeleton: nn.Module | None = None) -> nn.Module:
        """The model, in eval mode: an ordinary model of its own library, all of it trainable.

        Args:
            skeleton: an instance of the module, for a ticket that only names its class. It is
                filled in place; after an error, part of it may be.

        Raises:
            TicketError: a tensor whose checksum differs, a skeleton that does not fit, or none.
        """
        plan = self._plan(skeleton)
        check_fit(self, plan)
        model = self.architecture.hollow() if skeleton is None else skeleton
        for target in plan.targets:
            put(model, target.names, rebuild_tensor(self, target, layers=plan.layers))
        for fixed in plan.fixed:
            put(model, (fixed.parameter,), compute(self, fixed))
        for name, buffer in self.buffers.items():
            put(model, (name,), buffer.clone())
        return model.eval()

    def read_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            TicketError: the ticket holds none, or one that is not sound.
        """
        if self.tokenizer is None:
            raise TicketError(
                "the ticket holds no tokenizer; write it with Ticket.of(applied, tokenizer=...)"
            )
        try:
            return Tokenizer.from_json(self.tokenizer)
        except UntrainedError as reason:
            raise TicketError(f"the ticket's tokenizer: {reason}") from reason

    @staticmethod
    def write_probe(model: nn.Module, path: str | Path, *, input_ids: Tensor | None = None) -> None:
        """Write inputs and a model's logits for them, which `verify(logits=path)` compares.

        Args:
            model: the model, left in the mode it was in.
            path: a safetensors file, replaced whole or not at all.
            input_ids: what to feed it; for a language model made up if not given.

        Raises:
            TicketError: the model does not take them, or the file cannot be written.
        """
        probe.write_probe(model, Path(path), input_ids=input_ids)

    # --- inside ---

    def _plan(self, skeleton: nn.Module | None) -> Plan:
        """What the model has to be given, read off its shapes."""
        model = self._outline() if skeleton is None else self._check_skeleton(skeleton)
        try:
            return Plan.of(model, find_layout(model, self.layout, self.patterns), self.recipe)
        except UntrainedError as reason:
            raise TicketError(f"the ticket does not fit {self.architecture}: {reason}") from reason

    def _check_birth(self, plan: Plan) -> None:
        """Require that this rebuilds to the model that it was taken of."""
        if self.architecture.alone:
            plan = self._plan(None)
        check_fit(self, plan)
        try:
            check_sums(self, plan)
        except TicketError as reason:
            raise TicketError(
                f"the model is not what recipe, seed and masks give ({reason}); end a control that "
                "wears other weights, and call applied.push() after writing to a tensor"
            ) from reason

    def _outline(self) -> nn.Module:
        if not self.architecture.alone:
            raise TicketError(
                f"the ticket only names {self.architecture}; pass an instance of it: "
                "ticket.model(skeleton)"
            )
        limit = max(self.weights, MAX_WEIGHTS)
        return self.architecture.outline(tensors=len(self.checksums), max_weights=limit)

    def _check_skeleton(self, skeleton: nn.Module) -> nn.Module:
        name = type(skeleton).__qualname__
        if self.architecture.alone or name != self.architecture.name:
            raise TicketError(
                f"the ticket is of {self.architecture}, the skeleton is {name}; "
                + ("leave it out" if self.architecture.alone else "pass an instance of that class")
            )
        check_free(skeleton)
        return skeleton


def _effective(model: nn.Module, plan: Plan) -> dict[str, Tensor]:
    """The effective weights of a live model, by role; copies."""
    named = dict(model.named_parameters(remove_duplicate=False))
    drawn = {
        piece.role: _own(piece.slot.logical(piece.slot.stored(named[target.names[0]])))
        for target in plan.targets
        for piece in target.pieces
    }
    return drawn | {fixed.name: _own(named[fixed.parameter]) for fixed in plan.fixed}


def _undrawn(applied: Applied, plan: Plan, live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The random weights that no seed gives: before the mask where the search still has them."""
    before = {
        part.slot.role: part.slot.logical(part.weights)
        for part in applied.engine.masked
        if part.weights is not None
    }
    return {
        piece.role: _own(before.get(piece.role, live[piece.role])).to(live[piece.role].dtype)
        for piece in plan.pieces
        if undrawable(piece)
    }


def _check_layout(model: nn.Module, layout: Layout) -> None:
    """Require that the layout can be found again by its name."""
    try:
        found = find_layout(model, layout.name, layout.patterns)
    except UntrainedError as reason:
        raise TicketError(f"the layout {layout.name!r} cannot be found again: {reason}") from reason
    if found != layout:
        raise TicketError(
            f"the layout {layout.name!r} is not the one that this name gives; a ticket can only "
            "name a family that layouts knows or that was registered, or modules with its patterns"
        )


def _own(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Put the file's name before whatever is wrong with it."""
    try:
        yield
    except UntrainedError as reason:
        raise TicketError(f"{path}: {reason}") from reason
