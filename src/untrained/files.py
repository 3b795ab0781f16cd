"""How is a file written so that a crash leaves the old one or the new one, never half of it?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from untrained.errors import RunError, UntrainedError


def write_atomic(path: Path, data: bytes, *, error: type[UntrainedError] = RunError) -> None:
    """Write a file whole or not at all. A link is followed.

    Raises:
        error: the disk is full, the folder is read-only or missing, or something that is no file
            has this name; a file that was there is kept.
    """
    path = check_replaceable(path, error=error)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as reason:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        kept = "; the file that was there is unchanged" if path.exists() else ""
        raise error(f"cannot write {path}: {reason.strerror or reason}{kept}") from reason


def check_replaceable(path: Path, *, error: type[UntrainedError] = RunError) -> Path:
    """Where a path leads, if a file can be put there.

    Raises:
        error: a device, pipe or folder has this name.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise error(f"{path} is not an ordinary file, so it is not replaced; give another name")
    return target


def make_folder(path: Path) -> None:
    """Make a folder and its parents.

    Raises:
        RunError: it cannot be made, or a file of that name is in the way.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise RunError(f"cannot make the folder {path}: {reason.strerror or reason}") from reason


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
