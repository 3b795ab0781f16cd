"""The public page: what `import untrained` gives."""

from __future__ import annotations

import re
from pathlib import Path

import untrained as ut


def test_every_public_name_exists_once() -> None:
    assert len(ut.__all__) == len(set(ut.__all__))
    assert all(hasattr(ut, name) for name in ut.__all__)


def test_nothing_public_is_left_off_the_page() -> None:
    import types

    found = {
        name
        for name, value in vars(ut).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert found - {"annotations"} == set(ut.__all__) - {"layouts", "tasks"}


def test_every_public_object_says_what_it_is() -> None:
    for name in ut.__all__:
        value = getattr(ut, name)
        if callable(value):
            assert (value.__doc__ or "").strip(), name


def test_the_version_is_that_of_the_project() -> None:
    pyproject = Path(ut.__file__).parents[2] / "pyproject.toml"
    match = re.search(r'^version = "(.+)"', pyproject.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    assert match[1] == ut.__version__
