"""What lies in the folder of a run, and who may write there?

    settings.json       what the run is; written once all settings have been seen to work
    NAME.json           the result of an arm
    NAME.safetensors    the checkpoint of an arm
    results.json, curves.png, probe.safetensors, lock

Whatever else lies there is somebody else's, and stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from untrained.errors import RunError
from untrained.files import make_folder, write_atomic

_OURS = {".json", ".safetensors", ".png"}
_LOCK = "lock"
_SETTINGS = "settings.json"


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @contextmanager
    def locked(self, *, fresh: bool = False) -> Iterator[None]:
        """Refuse a second process on the same folder, for the length of a `with` block.

        Args:
            fresh: empty the folder first.

        Raises:
            RunError: the folder is in use, cannot be written, or (fresh) holds what no run wrote.
        """
        import fcntl

        make_folder(self.path)
        try:
            file = (self / _LOCK).open("w")
        except OSError as reason:
            raise RunError(f"cannot write {self / _LOCK}: {reason.strerror}") from reason
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(
                    f"another process is writing to {self.path}; wait for it, or give "
                    "another output with -o"
                ) from None
            if fresh:
                self._empty()
            yield

    def _empty(self) -> None:
        held = [path for path in self.path.iterdir() if path.name != _LOCK]
        for path in held:
            if path.is_symlink() or not path.is_file() or path.suffix not in _OURS:
                raise RunError(
                    f"{path} was not written by a run, so nothing in {self.path} was deleted; "
                    "move it away, or give another output with -o"
                )
        for path in held:
            path.unlink()

    def check(self, settings: dict[str, Any], *, free: tuple[str, ...]) -> None:
        """Require that the folder is new, or belongs to the same settings.

        Args:
            settings: what the run is, as JSON values.
            free: the settings that may differ.

        Raises:
            RunError: it belongs to another run.
        """
        if not (self / _SETTINGS).exists():
            return
        held = read_json(self / _SETTINGS)
        both = {*settings, *held} - {*free}
        differing = sorted(key for key in both if settings.get(key) != held.get(key))
        if differing:
            sides = ", ".join(f"{key}: {held.get(key)} there" for key in differing)
            raise RunError(
                f"{self.path} holds a run of other settings ({sides[:300]}); "
                "give another output with -o, or --fresh to delete it"
            )

    def remember(self, settings: dict[str, Any]) -> None:
        """From now on the folder belongs to these settings."""
        write_atomic(self / _SETTINGS, json.dumps(settings, indent=1).encode())

    def once(
        self, name: str, identity: str, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """A result of this identity from the folder, or measured now and put there."""
        path = self / f"{name}.json"
        if path.exists():
            held = read_json(path)
            if held.pop("identity", None) == identity:
                return held
        result = measure()
        write_atomic(path, json.dumps({"identity": identity, **result}, indent=1).encode())
        return result


def fingerprint(*parts: Any) -> str:
    """A hash of JSON values."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        RunError: it is none.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as reason:
        raise RunError(f"{path} is damaged ({reason}); delete it to measure it again") from None
    if not isinstance(held, dict):
        raise RunError(f"{path} does not hold a result; delete it to measure it again")
    return held
