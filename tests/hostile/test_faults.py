"""A full disk, a read-only folder, no home: an error that says so, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from test_find import TINY
from untrained.errors import RunError, TicketError
from untrained.find import find

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system of its own, since root ignores permission bits."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        # Lazily: once, under load, it was still busy here; what the test asks is answered by then.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_the_run_goes_on_after_it(
    letters: Path, tmp_path: Path
) -> None:
    settings = replace(TINY, data=str(letters), controls=False)
    small = tmp_path / "small disk"
    with mounted(small, "size=2m"):
        filler = small / "filler"
        filler.write_bytes(bytes(2**21 - 80_000))
        with pytest.raises((RunError, TicketError), match="No space left on device"):
            find(settings, small / "t")
        assert not list(small.glob(".*"))
        assert not list((small / "t.run").glob(".*"))
        filler.unlink()
        after = find(settings, small / "t")
    assert after["arms"]["found"] is not None


def test_a_read_only_folder_is_an_error(letters: Path, tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    with mounted(folder, "ro"), pytest.raises(RunError, match="Read-only file system"):
        find(replace(TINY, data=str(letters)), folder / "t")


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_no_home_is_no_trouble(letters: Path, tmp_path: Path, home: str | None) -> None:
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "HOME"}
    environment |= {} if home is None else {"HOME": home}
    command = [sys.executable, "-m", "untrained", "find", "--quick", "--no-controls"]
    command += ["--model", "1x16x2", "--length", "16", "--steps", "12", "--tokens", "256"]
    command += ["--data", str(letters), "-o", str(tmp_path / "t")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.run" / "curves.png").exists()


def test_an_interrupt_is_no_traceback(letters: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "untrained", "find", "--quick", "--model", "1x16x2"]
    command += ["--length", "16", "--steps", "100000", "--data", str(letters)]
    command += ["-o", str(tmp_path / "t")]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (tmp_path / "t.run" / "found.safetensors").exists():
        time.sleep(0.05)
    process.send_signal(2)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "untrained: stopped; the same command goes on from here\n"
