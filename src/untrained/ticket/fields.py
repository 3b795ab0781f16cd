"""Does a JSON object from a file hold what it should?

Every field is taken by its name and checked; what is left over is refused, since it may change
the meaning of the rest.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable
from typing import Any

from untrained.errors import TicketError

_DIMENSIONS = 16
_LENGTH = 2**48
"""No axis is longer, so that sizes stay small numbers."""


class Fields:
    """A JSON object of which nothing has been believed yet.

    Args:
        held: what `json` read.
        where: what errors call it.

    Raises:
        TicketError: from every method, for a field that is missing or not what it should be.
    """

    def __init__(self, held: object, where: str) -> None:
        self._where = where
        if not isinstance(held, dict):
            raise self.refuse("", held, "an object")
        self._held = dict(held)

    def take(self, key: str) -> Any:
        """A field of any type; the caller checks it."""
        if key not in self._held:
            raise TicketError(f"{self._where} lacks {key}")
        return self._held.pop(key)

    def text(self, key: str, *, limit: int = 1024) -> str:
        """Text of at most so many characters."""
        value = self.take(key)
        if not isinstance(value, str) or len(value) > limit:
            raise self.refuse(key, value, f"text of at most {limit:,} characters")
        return value

    def name(self, key: str) -> str:
        """Text that is safe to print: one line, no control characters."""
        value = self.text(key)
        if not value.isprintable():
            raise self.refuse(key, value, "a name in printable characters")
        return value

    def whole(self, key: str, *, limit: int = _LENGTH) -> int:
        """A whole number, 0 <= value <= limit."""
        value = self.take(key)
        if type(value) is not int or not 0 <= value <= limit:
            raise self.refuse(key, value, f"a whole number from 0 to {limit:,}")
        return value

    def choice(self, key: str, allowed: Iterable[str]) -> str:
        """One of some words."""
        value, words = self.take(key), tuple(allowed)
        if not isinstance(value, str) or value not in words:
            raise self.refuse(key, value, f"one of {', '.join(words)}")
        return value

    def digest(self, key: str) -> str:
        """A SHA-256 in lower hexadecimal."""
        value = self.take(key)
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise self.refuse(key, value, "a SHA-256, 64 hexadecimal digits")
        return value

    def shape(self, key: str) -> tuple[int, ...]:
        """The lengths of a tensor's axes."""
        value = self.items(key, limit=_DIMENSIONS)
        lengths = all(type(length) is int and 0 <= length <= _LENGTH for length in value)
        if not lengths or math.prod(value) > _LENGTH:
            raise self.refuse(key, value, "the shape of a tensor")
        return tuple(value)

    def items(self, key: str, *, limit: int) -> list[Any]:
        """A list of at most so many things."""
        value = self.take(key)
        if not isinstance(value, list) or len(value) > limit:
            raise self.refuse(key, value, f"a list of at most {limit:,}")
        return value

    def fields(self, key: str) -> Fields:
        """An object within this one."""
        return Fields(self.take(key), f"{self._where}, {key}")

    def rest(self) -> dict[str, Any]:
        """All fields that were not taken."""
        held, self._held = self._held, {}
        return held

    def done(self) -> None:
        """Refuse fields that nobody took."""
        if self._held:
            unknown = ", ".join(reprlib.repr(key) for key in sorted(self._held)[:3])
            raise TicketError(
                f"{self._where} holds {unknown}, which format version 0 does not know; written by "
                "a newer untrained?"
            )

    def refuse(self, key: str, value: object, wanted: str) -> TicketError:
        """The error that says what a field is and what it should be."""
        what = f"{self._where}: {key}" if key else self._where
        return TicketError(f"{what} is {reprlib.repr(value)}, not {wanted}")
