"""How text becomes tokens: bytes and merges, their JSON, Hugging Face's reading of it, refusals."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from untrained.errors import DataError, RunError
from untrained.tasks.tokenizer import (
    SEPARATOR,
    Tokenizer,
    byte_tokenizer,
    make_tokenizer,
    train_bpe,
)

TEXTS = ["the cat sat on the mat, and the hat sat on the cat. ", "Über 🙂 den Wäldern. "] * 5
BYTE, BPE = byte_tokenizer(), train_bpe(TEXTS, 280)
STRANGE = f" Héllo  {SEPARATOR}\r\n\n\t🙂 Ā it's 123 the cat\0\ufeff"

both = pytest.mark.parametrize("tokenizer", [BYTE, BPE], ids=lambda t: t.name)


@both
@given(text=st.text())
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.bytes_per_token[ids].sum() == len(text.encode())


def test_the_id_of_a_byte_is_the_byte() -> None:
    assert BYTE.encode(STRANGE).tolist() == list(STRANGE.encode())
    assert (BYTE.name, BYTE.vocab_size, BYTE.separator) == ("byte", 256, 0)
    assert BYTE.bytes_per_token.tolist() == [1] * 256


def test_the_library_gives_the_bytes_that_the_short_cut_does() -> None:
    ids = BYTE._backend.encode(STRANGE).ids
    assert ids == BYTE.encode(STRANGE).tolist()


def test_merges_make_text_shorter() -> None:
    assert (BPE.name, BPE.vocab_size) == ("bpe:280", 280)
    assert len(BPE.encode(TEXTS[0])) < len(TEXTS[0]) / 2
    assert BPE.bytes_per_token.max() > 2


@both
def test_ids_are_as_narrow_as_they_can_be(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a").dtype == (np.uint8 if tokenizer is BYTE else np.uint16)
    assert tokenizer.encode("").dtype == tokenizer.encode("a").dtype
    assert len(tokenizer.encode("")) == 0


def test_no_text_can_spell_the_separator() -> None:
    assert BPE.tokens[BPE.separator] == SEPARATOR
    assert BPE.bytes_per_token[BPE.separator] == 1
    for tokenizer in (BPE, pickle.loads(pickle.dumps(BPE)), copy.deepcopy(BPE)):
        assert tokenizer.separator not in tokenizer.encode(f"a{SEPARATOR}b {SEPARATOR}")


@both
def test_half_a_character_becomes_a_replacement(tokenizer: Tokenizer) -> None:
    first = tokenizer.encode("é")[:1] if tokenizer is BYTE else [tokenizer.tokens.index("Ã")]
    assert tokenizer.decode([*first, *tokenizer.encode("a")]) == "\ufffda"


@both
@pytest.mark.parametrize("strange", [-1, 280, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer, strange: int) -> None:
    with pytest.raises(
        DataError, match=f"{strange} is no token of {tokenizer.name}; its ids are 0"
    ):
        tokenizer.decode([1, strange])


@both
def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"U\+DCFF at character 2"):
        tokenizer.encode("ab\udcff")


class TestTraining:
    def test_the_same_texts_give_the_same_vocabulary(self) -> None:
        assert all(train_bpe(iter(TEXTS), 280) == BPE for _ in range(5))

    def test_a_name_stands_for_a_tokenizer(self) -> None:
        assert make_tokenizer("byte", []) == BYTE
        assert make_tokenizer("bpe:280", TEXTS) == BPE

    @pytest.mark.parametrize(
        "name", ["", "bytes", "bpe", "bpe:", "bpe:4k", "bpe:-1", "bpe:²", "x:9"]
    )
    def test_an_unknown_name_lists_the_known_ones(self, name: str) -> None:
        with pytest.raises(RunError, match="there are byte and bpe:V"):
            make_tokenizer(name, TEXTS)

    @pytest.mark.parametrize("size", [0, 256, 2**20 + 1])
    def test_a_size_out_of_range_is_refused(self, size: int) -> None:
        with pytest.raises(RunError, match="has 257 to 1048576 tokens"):
            make_tokenizer(f"bpe:{size}", TEXTS)

    def test_too_little_text_says_how_many_tokens_it_yields(self) -> None:
        with pytest.raises(DataError, match=r"bpe:4096: the text yields only 292 tokens"):
            train_bpe(TEXTS, 4096)


class TestJson:
    @both
    def test_what_is_written_is_read(self, tokenizer: Tokenizer) -> None:
        text = tokenizer.to_json()
        for read in (Tokenizer.from_json(text), Tokenizer.from_json(text.encode())):
            assert read == tokenizer
            assert hash(read) == hash(tokenizer)
            assert read.to_json() == text

    @both
    def test_copies_are_equal(self, tokenizer: Tokenizer) -> None:
        tokenizer.encode(STRANGE)
        for same in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
            assert same == tokenizer
            assert np.array_equal(same.encode(STRANGE), tokenizer.encode(STRANGE))

    def test_an_older_file_of_gpt2s_kind_is_read(self) -> None:
        held = json.loads(BPE.to_json())
        model = held["model"]
        order = [*(token for token in model["vocab"] if token != SEPARATOR), SEPARATOR]
        model["vocab"] = {token: number for number, token in enumerate(order)}
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
        model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""
        del model["byte_fallback"], model["ignore_merges"], held["pre_tokenizer"]["use_regex"]
        held["added_tokens"][0] |= {"id": 279, "normalized": True}
        held["post_processor"] = held["decoder"]
        read = Tokenizer.from_json(json.dumps(held))
        assert (read.separator, read.merges) == (279, BPE.merges)
        assert read.decode(read.encode(STRANGE)) == STRANGE

    @both
    def test_hugging_face_gives_the_same_ids_before_and_after_saving(
        self, tokenizer: Tokenizer, tmp_path: Path
    ) -> None:
        theirs = tokenizer.to_transformers(model_max_length=64)
        theirs.save_pretrained(tmp_path)
        for each in (theirs, AutoTokenizer.from_pretrained(tmp_path)):
            assert each(STRANGE)["input_ids"] == tokenizer.encode(STRANGE).tolist()
            assert each.decode(tokenizer.encode(STRANGE).tolist()) == STRANGE
            assert (len(each), each.model_max_length) == (tokenizer.vocab_size, 64)
            assert each.eos_token_id == (None if tokenizer is BYTE else tokenizer.separator)


def damaged(path: str, value: object) -> str:
    """The JSON of BPE with another value at a path."""
    held = json.loads(BPE.to_json())
    *folders, last = path.split(".")
    place = held
    for folder in folders:
        place = place[folder]
    place[last] = value
    return json.dumps(held)


VOCAB: dict[str, int] = json.loads(BPE.to_json())["model"]["vocab"]
ADDED: dict[str, Any] = json.loads(BPE.to_json())["added_tokens"][0]


@pytest.mark.parametrize(
    "text", ["", "{", b"\xff", "[" * 100_000, "9" * 10_000, "nul", b"\0" * 10], ids=repr
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(DataError, match="is not JSON"):
        Tokenizer.from_json(text)


@pytest.mark.parametrize("text", ["null", "3", "[]", "{}", '"model"', '{"model": []}'])
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"pre_tokenizer\.type is None, where only 'ByteLevel'"):
        Tokenizer.from_json(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("truncation", {"max_length": 0}),
        ("padding", {"strategy": "BatchLongest"}),
        ("normalizer", {"type": "Lowercase"}),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "((a*)*)*["}}),
        ("pre_tokenizer.add_prefix_space", True),
        ("pre_tokenizer.use_regex", False),
        ("post_processor", {"type": "TemplateProcessing"}),
        ("decoder", {"type": "WordPiece"}),
        ("model", None),
        ("model.type", "Unigram"),
        ("model.dropout", 0.5),
        ("model.unk_token", SEPARATOR),
        ("model.continuing_subword_prefix", "éé"),
        ("model.end_of_word_suffix", "</w>"),
        ("model.byte_fallback", True),
        ("model.ignore_merges", True),
        ("model.vocab", None),
        ("model.vocab", [["a", 1]]),
        ("model.vocab", {}),
        ("model.vocab", {"a": 2**32}),
        ("model.vocab", VOCAB | {"a": -1}),
        ("model.vocab", VOCAB | {"a": 1.5}),
        ("model.vocab", VOCAB | {"a": True}),
        ("model.vocab", VOCAB | {"a": VOCAB["b"]}),
        ("model.vocab", VOCAB | {"": 280}),
        ("model.vocab", VOCAB | {"a b": 280}),
        ("model.vocab", VOCAB | {"\ud800": 280}),
        ("model.vocab", VOCAB | {"far": 10**18}),
        ("model.vocab", {token: number for token, number in VOCAB.items() if token != "a"}),
        ("model.vocab", {f"{token}x": number for token, number in VOCAB.items()}),
        ("model.merges", None),
        ("model.merges", ["t h e"]),
        ("model.merges", [["t"]]),
        ("model.merges", [["t", 3]]),
        ("model.merges", [{"t": "h"}]),
        ("model.merges", [["t", "zz"]]),
        ("model.merges", [["z", "q"]]),
        ("model.merges", [["", "t"]]),
        ("added_tokens", []),
        ("added_tokens", [None]),
        ("added_tokens", [ADDED | {"content": "the"}]),
        ("added_tokens", [ADDED | {"content": ""}]),
        ("added_tokens", [ADDED, ADDED | {"content": "<pad>", "id": 280}]),
        ("added_tokens", [ADDED | {"id": 3}]),
        ("added_tokens", [ADDED | {"id": None}]),
        ("added_tokens", [ADDED | {"special": False}]),
        ("added_tokens", [ADDED | {"lstrip": True}]),
    ],
    ids=repr,
)
def test_a_damaged_or_hostile_file_is_refused(path: str, value: object) -> None:
    with pytest.raises(DataError) as caught:
        Tokenizer.from_json(damaged(path, value))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("tokens", "merges", "message"),
    [
        (("a",), (), "no token for 255 of the 256 bytes, such as 0x"),
        ((*BYTE.tokens, "a"), (), "257, of them 256 different"),
        ((*BYTE.tokens, "日"), (), "the token '日' is no run of bytes"),
        (BYTE.tokens, (("a", "b"),), "the merge of 'a' and 'b' is not in the vocabulary"),
        ((*BYTE.tokens, SEPARATOR, "<|"), (("<|", "endoftext|>"),), "the merge of"),
    ],
)
def test_a_vocabulary_is_checked_when_made(
    tokens: tuple[str, ...], merges: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Tokenizer(tokens, merges)
