"""Which errors can a user meet?

    UntrainedError (a ValueError)
    ├── RandomError     a law, seed or stream name that cannot be drawn from
    ├── MaskError       scores or masks that make no sense (NaN, a keep outside (0, 1])
    ├── RecipeError     a recipe that cannot be read, or does not fit the model
    ├── ApplyError      a model and its search that have come apart (see `engine`)
    ├── ConstructError  a target that cannot be built, a subset sum that cannot be solved
    ├── DataError       text that is missing, unreadable or too short
    ├── TicketError     a file that is not a sound ticket, or does not rebuild
    └── RunError        a run folder, checkpoint or setting that cannot be used

Every message names both sides (what was found, what was expected) and the way out.
The command line prints them as one line; nothing else is caught there.
"""

from __future__ import annotations


class UntrainedError(ValueError):
    """The base of every error that a user can cause."""


class RandomError(UntrainedError):
    """A law, seed or stream name that cannot be drawn from."""


class MaskError(UntrainedError):
    """Scores or masks that do not make sense together."""


class RecipeError(UntrainedError):
    """A recipe that cannot be read, or that does not fit the model."""


class ApplyError(UntrainedError):
    """A model and the search that belongs to it have come apart."""


class ConstructError(UntrainedError):
    """A target that cannot be built, or a subset sum that cannot be solved."""


class DataError(UntrainedError):
    """Text that is missing, unreadable or too short."""


class TicketError(UntrainedError):
    """A file that is not a sound ticket, or that does not rebuild."""


class RunError(UntrainedError):
    """A run folder, a checkpoint or a setting that cannot be used."""
