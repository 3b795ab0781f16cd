"""How does a ticket become a plain Hugging Face folder?"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.utils import logging

from untrained.errors import TicketError
from untrained.ticket import Ticket


def export(ticket: Ticket, folder: str | Path) -> None:
    """Write what `from_pretrained` reads: configuration, dense weights, tokenizer.

    Args:
        ticket: a ticket of a Hugging Face model.
        folder: a new or empty folder; it appears whole or not at all.

    Raises:
        TicketError: the ticket does not rebuild, is not of a Hugging Face model, or the folder
            cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TicketError(f"{folder} exists and is not an empty folder; name a new one")
    model: Any = ticket.model()
    if not hasattr(model, "save_pretrained"):
        raise TicketError(
            f"{ticket.architecture} is not a Hugging Face model; save the state_dict of "
            "ticket.model(...) instead"
        )
    tokenizer = ticket.read_tokenizer() if ticket.tokenizer else None
    staging = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        with _without_bars():
            model.save_pretrained(staging)
        if tokenizer is not None:
            length = model.config.max_position_embeddings
            tokenizer.to_transformers(model_max_length=length).save_pretrained(staging)
        staging.chmod(0o755)
        staging.replace(folder)
    except OSError as reason:
        raise TicketError(f"cannot write {folder}: {reason.strerror or reason}") from reason
    finally:
        if staging is not None and staging.exists():
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _without_bars() -> Iterator[None]:
    """The library's progress bars say nothing about one small file."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
