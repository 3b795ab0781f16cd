"""How does text become tokens?

By byte-level byte-pair encoding, as GPT-2's: every token is a run of bytes, so every text has
tokens, tokens give back exactly the text, and each has a number of bytes to count. The tokenizer
of bytes is the one without merges, whose id is the byte.

A vocabulary is written in the alphabet of GPT-2, one printable character for each byte. One token
need not be a run of bytes: the separator `<|endoftext|>`, which stands before every document and
which no text can spell. A vocabulary without it has the byte 0 instead, which no text contains.

Letters: V tokens.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from untrained.errors import DataError, RunError

Merges: TypeAlias = tuple[tuple[str, str], ...]

SEPARATOR = "<|endoftext|>"
"""The token between documents, in vocabularies that have one."""

LARGEST = 2**20
"""The tokens that a vocabulary has at most."""


def _alphabet() -> dict[str, int]:
    """Character -> byte: printable bytes stand for themselves, the others follow from U+0100."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    themselves = {c: ord(c) for c in characters if ord(c) < 256}
    others = sorted(set(range(256)) - set(themselves.values()))
    return themselves | dict(zip(characters[len(themselves) :], others, strict=True))


_BYTE = _alphabet()
_CHARACTERS = tuple(sorted(_BYTE, key=_BYTE.__getitem__))
"""The alphabet in the order of its bytes."""


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Text to tokens and back. A value: equal when equal, hashed and pickled by what it is.

    Raises:
        DataError: a vocabulary that lacks a byte, has a token twice or one that is no run of
            bytes; a merge whose parts or whole are not in it.
    """

    tokens: tuple[str, ...]
    """The vocabulary in the order of ids, each token in the alphabet of GPT-2."""

    merges: Merges = ()
    """The pairs that become one token, in the order in which they do."""

    def __post_init__(self) -> None:
        held = set(self.tokens)
        if len(held) < len(self.tokens) or len(held) > LARGEST:
            raise DataError(
                f"a vocabulary has at most {LARGEST:,} tokens, each once; this one has "
                f"{len(self.tokens):,}, of them {len(held):,} different"
            )
        if missing := sorted(_BYTE.keys() - held):
            raise DataError(
                f"the vocabulary has no token for {len(missing)} of the 256 bytes, such as "
                f"0x{_BYTE[missing[0]]:02x}; only byte-level tokenizers have one for each"
            )
        for token in held - {SEPARATOR}:
            if not token or not _BYTE.keys() >= set(token):
                raise DataError(
                    f"the token {token[:40]!r} is no run of bytes; only byte-level tokenizers, "
                    f"whose one special token is {SEPARATOR}, can be used"
                )
        for left, right in self.merges:
            if not {left, right, left + right} <= held - {SEPARATOR}:
                raise DataError(
                    f"the merge of {left[:40]!r} and {right[:40]!r} is not in the vocabulary"
                )

    def __repr__(self) -> str:
        return f"Tokenizer({self.name}, {self.vocab_size:,} tokens)"

    @property
    def name(self) -> str:
        """`byte`, or `bpe:V`."""
        return "byte" if self._is_bytes else f"bpe:{self.vocab_size}"

    @property
    def vocab_size(self) -> int:
        """The number of tokens, V."""
        return len(self.tokens)

    @cached_property
    def separator(self) -> int:
        """The id of the token that stands before every document."""
        held = self.tokens
        return held.index(SEPARATOR if SEPARATOR in held else _CHARACTERS[0])

    @cached_property
    def bytes_per_token(self) -> NDArray[np.int64]:
        """How many bytes each token stands for, (V,); the separator counts as one.

        So the bytes of a split are the same number whatever the tokenizer.
        """
        sizes = np.fromiter(map(len, self._spellings), np.int64, self.vocab_size)
        sizes[self.separator] = 1
        sizes.setflags(write=False)
        return sizes

    # --- text ---

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, in the narrowest unsigned integers that hold V of them.

        A separator that is spelled out in the text is text, not a separator.

        Raises:
            DataError: the text has a lone surrogate, which is no character.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as reason:
            raise DataError(
                f"the text has U+{ord(text[reason.start]):04X} at character {reason.start}, half "
                "of a character; was it read from something that is not UTF-8?"
            ) from None
        if self._is_bytes:
            return np.frombuffer(data, np.uint8)
        ids = self._backend.encode(text, add_special_tokens=False).ids
        return np.asarray(ids, np.min_scalar_type(self.vocab_size - 1))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8, such as half a character, become U+FFFD.

        Raises:
            DataError: an id outside the vocabulary.
        """
        numbers = [int(token) for token in ids]
        if strange := [token for token in numbers if not 0 <= token < self.vocab_size]:
            raise DataError(
                f"{strange[0]} is no token of {self.name}; its ids are 0 to {self.vocab_size - 1}"
            )
        return b"".join(self._spellings[token] for token in numbers).decode(errors="replace")

    # --- files ---

    def to_json(self) -> str:
        """The `tokenizer.json` that Hugging Face's libraries read."""
        return json.dumps(_describe(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Tokenizer:
        """Read a `tokenizer.json`: one of ours, or another byte-level one, such as GPT-2's.

        Only what has been checked is kept, and the library never reads the file itself.

        Raises:
            DataError: not JSON, not byte-level, or a vocabulary that is not sound.
        """
        try:
            held = json.loads(text)
        except (ValueError, RecursionError) as reason:
            raise DataError(f"the tokenizer is not JSON: {str(reason)[:200]}") from None
        return cls(*_read(held))

    def to_transformers(self, **settings: Any) -> Any:
        """A `PreTrainedTokenizerFast` that gives the same ids, also once saved and loaded.

        Args:
            settings: those of `PreTrainedTokenizerFast`, such as `model_max_length=64`.
        """
        from transformers import PreTrainedTokenizerFast

        if SEPARATOR in self.tokens:
            settings = {"bos_token": SEPARATOR, "eos_token": SEPARATOR} | settings
        return PreTrainedTokenizerFast(
            tokenizer_object=Backend.from_str(self.to_json()),
            clean_up_tokenization_spaces=False,
            split_special_tokens=True,
            **settings,
        )

    # --- inside ---

    @cached_property
    def _is_bytes(self) -> bool:
        return self.tokens == _CHARACTERS

    @cached_property
    def _spellings(self) -> list[bytes]:
        """The bytes of each token; of the separator, those of its name."""
        return [
            token.encode() if token == SEPARATOR else bytes(map(_BYTE.__getitem__, token))
            for token in self.tokens
        ]

    @cached_property
    def _backend(self) -> Any:
        backend = Backend.from_str(self.to_json())
        backend.encode_special_tokens = True  # a separator in the text is text
        return backend

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[object, object]]:
        return Tokenizer, (self.tokens, self.merges)  # what is cached would lose its settings


def byte_tokenizer() -> Tokenizer:
    """The tokenizer whose ids are bytes: V = 256."""
    return Tokenizer(_CHARACTERS)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn a byte-level vocabulary with a separator; the same texts give the same one.

    Args:
        texts: what to learn from; the train split, and nothing else.
        size: tokens, V: 256 bytes, the separator, and a merge for each further one.

    Raises:
        RunError: a size below 257 or above 1,048,576.
        DataError: the texts have too few repetitions for so many merges.
    """
    if not 257 <= size <= LARGEST:
        raise RunError(f"bpe:{size}: a vocabulary has 257 to {LARGEST} tokens")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[SEPARATOR],
        initial_alphabet=list(_CHARACTERS),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = Tokenizer.from_json(backend.to_str())
    if tokenizer.vocab_size < size:
        raise DataError(
            f"bpe:{size}: the text yields only {tokenizer.vocab_size} tokens; ask for so many, or "
            "give more text"
        )
    return tokenizer


def make_tokenizer(name: str, texts: Iterable[str]) -> Tokenizer:
    """The tokenizer of a name: `byte`, or `bpe:V`, which is learned from the texts.

    Raises:
        RunError: another name, or a size out of range.
        DataError: the texts have too few repetitions for so many merges.
    """
    if name == "byte":
        return byte_tokenizer()
    kind, _, size = name.partition(":")
    if kind != "bpe" or not (size.isascii() and size.isdigit() and len(size) < 10):
        raise RunError(
            f"unknown tokenizer {name[:80]!r}; there are byte and bpe:V, such as bpe:4096"
        )
    return train_bpe(texts, int(size))


# --- tokenizer.json ---


def _describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """What `tokenizer.json` says, every field of it, since the library's defaults may change."""
    tokens = tokenizer.tokens
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    special: dict[str, Any] = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False
    )
    special |= {"id": tokenizer.separator, "content": SEPARATOR, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special] if SEPARATOR in tokens else [],
        "normalizer": None,
        "pre_tokenizer": level | {"use_regex": True},
        "post_processor": None,
        "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": tokenizer.merges,
        },
    }


_ALLOWED: dict[str, tuple[object, ...]] = {
    "truncation": (None,),
    "padding": (None,),
    "normalizer": (None,),
    "pre_tokenizer.type": ("ByteLevel",),
    "pre_tokenizer.add_prefix_space": (False,),
    "pre_tokenizer.use_regex": (True, None),
    "post_processor.type": ("ByteLevel", None),
    "decoder.type": ("ByteLevel",),
    "model.type": ("BPE",),
    "model.dropout": (None,),
    "model.unk_token": (None,),
    "model.continuing_subword_prefix": (None, ""),
    "model.end_of_word_suffix": (None, ""),
    "model.byte_fallback": (False, None),
    "model.ignore_merges": (False, None),
}
"""What a field may say, None also by its absence. All else would change, lose or cut text."""


def _read(held: object) -> tuple[tuple[str, ...], Merges]:
    """The vocabulary and the merges of a `tokenizer.json`."""
    for path, allowed in _ALLOWED.items():
        if (value := _look_up(held, path)) not in allowed:
            raise DataError(
                f"the tokenizer's {path} is {_print(value)}, where only "
                f"{' or '.join(map(_print, allowed))} keeps every byte of a text; give a "
                "byte-level BPE tokenizer, such as GPT-2's"
            )
    added = _read_added(_look_up(held, "added_tokens"))
    tokens = _read_tokens(_look_up(held, "model.vocab"), added)
    return tokens, _read_merges(_look_up(held, "model.merges"))


def _read_added(added: object) -> dict[str, Any]:
    """The separator and its id, if there is one; it is all that may be added."""
    found = {}
    for entry in added if isinstance(added, list) else []:
        content, number = _look_up(entry, "content"), _look_up(entry, "id")
        strips = any(_look_up(entry, flag) for flag in ("single_word", "lstrip", "rstrip"))
        if content != SEPARATOR or _look_up(entry, "special") is not True or strips:
            raise DataError(
                f"the tokenizer adds the token {_print(content)}; all that it may add is the "
                f"special token {SEPARATOR}, which takes nothing from the text around it"
            )
        found[content] = number
    return found


def _read_tokens(vocabulary: object, added: dict[str, Any]) -> tuple[str, ...]:
    """The tokens in the order of their ids, which have to be 0 to V - 1."""
    if not isinstance(vocabulary, dict):
        raise DataError(f"the tokenizer's model.vocab is {_print(vocabulary)}, not a table of ids")
    ids = vocabulary | added
    if SEPARATOR in vocabulary and vocabulary[SEPARATOR] != added.get(SEPARATOR):
        raise DataError(
            f"the tokenizer's vocabulary and its added_tokens differ in the id of {SEPARATOR}"
        )
    whole = all(type(number) is int for number in ids.values())
    if not whole or sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"the ids of the tokenizer's {len(ids)} tokens are not 0 to {len(ids) - 1}")
    return tuple(sorted(ids, key=ids.__getitem__))


def _read_merges(merges: object) -> Merges:
    """The merges: pairs, or in older files two tokens with a space between."""
    if not isinstance(merges, list):
        raise DataError(f"the tokenizer's model.merges is {_print(merges)}, not a list")
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(p) is str for p in pair)):
            raise DataError(f"the tokenizer merges {_print(pair)}, which is not a pair of tokens")
    return tuple((left, right) for left, right in pairs)


def _look_up(held: object, path: str) -> Any:
    """What lies at a path such as `model.type`; None if nothing does."""
    for key in path.split("."):
        held = held.get(key) if isinstance(held, Mapping) else None
    return held


def _print(value: object) -> str:
    return reprlib.repr(value)
