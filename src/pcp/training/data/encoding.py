"""From the documents of a corpus to tokens, a piece at a time: nothing is whole in memory."""

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.kinds.kind import Gives
from pcp.training.data.kinds.source import EmptyCorpus, Part, Source
from pcp.training.data.tokenizer import (
    ByteTokenizer,
    CharacterTokenizer,
    NumberTokenizer,
    Tokenizer,
    TokenizerUnreadable,
    Tokens,
)

LEARNT = ("characters", "bytes", "bpe")
"""Tokenizers that need no file."""
_PIECE = 1 << 20
_WINDOW = 1 << 14
"""Characters at the end of a piece in which a word has to end."""
_CHECKED = 256
"""Characters on both sides of a cut whose tokens are compared."""
_BETWEEN_WORDS = re.compile(r"(?<=\w) (?=\w)")


class CannotCut(PCPError):
    """A text that cannot be encoded in pieces."""


def tokenizer_of(source: Source, name: str, vocabulary: int) -> Tokenizer:
    """The tokenizer for a corpus.

    Arguments:
        name: `characters` or `bpe`, which are learnt from it; `bytes`; or a `tokenizer.json` of the package `tokenizers`, or a
            folder with one. A corpus of token numbers needs none: as many tokens are known as its largest number says.
        vocabulary: tokens that `bpe` learns.

    Raises:
        TokenizerUnreadable: there is no such tokenizer.
        MissingExtra: the package `tokenizers` is needed, and not installed.
        PCPError, OSError: the corpus cannot be read; see `Source.texts`.
    """
    if source.gives is Gives.tokens and name in LEARNT:
        return NumberTokenizer(1 + _largest(source))
    pieces = {"\n"} if _has_many(source) else set[str]()
    return learnt_or_read(itertools.chain(pieces, _all(source)), name, vocabulary)


def learnt_or_read(pieces: Iterable[str], name: str, vocabulary: int) -> Tokenizer:
    """The tokenizer for a text that comes in pieces; see `tokenizer_of`."""
    if name == "bytes":
        return ByteTokenizer()
    if name == "bpe":
        return BytePairTokenizer.train(pieces, vocabulary)
    if name == "characters":
        characters: set[str] = set()
        for piece in pieces:
            characters.update(piece)
        if not characters:
            raise EmptyCorpus("the text has no characters; give one with some")
        return CharacterTokenizer("".join(sorted(characters)))
    return tokenizer_in(Path(name))


def tokenizer_in(path: Path) -> BytePairTokenizer:
    """The tokenizer of a `tokenizer.json`, or of a folder that holds one.

    Raises:
        TokenizerUnreadable: there is none.
        MissingExtra: the package `tokenizers` is not installed.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        definition = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TokenizerUnreadable(
            f"cannot read the tokenizer {file}: {reason}. Give {', '.join(LEARNT)}, a tokenizer.json, or a folder with one"
        ) from None
    return BytePairTokenizer(definition)


def encoded(
    source: Source, parts: tuple[Part, ...], tokenizer: Tokenizer
) -> Iterator[npt.NDArray[np.integer[Any]]]:
    """The tokens of some files of a corpus, in pieces; between two documents stands the token that ends one, or a line break.

    Raises:
        CannotCut: the tokenizer gives other tokens for pieces of a document than for all of it.
        PCPError, OSError: the corpus cannot be read; see `Source.texts`.
    """
    if source.gives is Gives.tokens:
        for part in parts:
            yield from part.kind.read(part.path)
        return
    if isinstance(tokenizer, ByteTokenizer) and source.gives is Gives.text:
        # Bytes need not be text.
        for number, part in enumerate(parts):
            if number:
                yield tokenizer.encode("\n")
            yield from map(tokenizer.encode_bytes, part.kind.read(part.path))
    elif isinstance(tokenizer, BytePairTokenizer):
        yield from _of_byte_pairs(source.texts(parts), tokenizer)
    else:  # which encode each character by itself
        yield from map(tokenizer.encode, _gathered(_joined(source.texts(parts))))


def _joined(documents: Iterable[Iterable[str]]) -> Iterator[str]:
    for number, document in enumerate(documents):
        if number:
            yield "\n"
        yield from document


def _gathered(pieces: Iterable[str]) -> Iterator[str]:
    """The same text in pieces that are long: a short one takes as much time."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def _of_byte_pairs(documents: Iterable[Iterable[str]], tokenizer: BytePairTokenizer) -> Iterator[Tokens]:
    held: list[str] = []
    begins: list[bool] = []  # a document after others
    size = 0
    for number, document in enumerate(documents):
        for place, piece in enumerate(_in_words(document, tokenizer)):
            held.append(piece)
            begins.append(number > 0 and place == 0)
            size += len(piece)
            if size >= _PIECE:
                yield from _together(held, begins, tokenizer)
                held, begins, size = [], [], 0
    yield from _together(held, begins, tokenizer)


def _together(pieces: list[str], begins: list[bool], tokenizer: BytePairTokenizer) -> Iterator[Tokens]:
    for tokens, begin in zip(tokenizer.encode_all(pieces), begins, strict=True):
        if begin:
            end = tokenizer.end_of_text
            yield tokenizer.encode("\n") if end is None else np.array([end], np.uint32)
        yield tokens


def _largest(source: Source) -> int:
    """The largest token number of a corpus."""
    largest = -1
    for tokens in (each for part in source.parts + source.validation for each in part.kind.read(part.path)):
        for start in range(0, tokens.size, _PIECE):
            largest = max(largest, int(tokens[start : start + _PIECE].max()))
    if largest < 0:
        raise EmptyCorpus(f"{source.data} has no token numbers of at least 0; give a file with some")
    return largest


def _has_many(source: Source) -> bool:
    """Whether there may be more than one document in a part of a corpus."""
    return max(len(source.parts), len(source.validation)) > 1 or source.gives is Gives.records


def _all(source: Source) -> Iterator[str]:
    for pieces in source.texts(source.parts + source.validation):
        yield from pieces


def _in_words(pieces: Iterable[str], tokenizer: Tokenizer) -> Iterator[str]:
    """The same text in pieces that end before a space between words, where the tokens of both sides are those of the whole.

    Raises:
        CannotCut: they are not; or no word ends in a piece.
    """
    left = ""
    for piece in pieces:
        left += piece
        if len(left) < _PIECE // 2:
            continue
        cut = max((match.start() for match in _BETWEEN_WORDS.finditer(left, len(left) - _WINDOW)), default=0)
        if not cut:
            raise CannotCut(
                f"{_WINDOW} characters hold no space between words: {left[-60:]!r}; use --tokenizer bytes or characters."
            )
        before, after = left[max(0, cut - _CHECKED) : cut], left[cut : cut + _CHECKED]
        if [*tokenizer.encode(before), *tokenizer.encode(after)] != [*tokenizer.encode(before + after)]:
            raise CannotCut(
                f"the tokenizer gives other tokens for {before[-20:]!r} and {after[:20]!r} than for both together, so a large "
                "text cannot be encoded in pieces; use one that encodes words by themselves, as GPT-2's does."
            )
        yield left[:cut]
        left = left[cut:]
    yield left
