"""How is a model shipped as a seed, masks and the few tensors that were trained?

`Ticket` is the object; `docs/ticket-format.md` describes the file, for readers in any language.
"""

from __future__ import annotations

from untrained.ticket.ticket import Ticket

__all__ = ["Ticket"]
