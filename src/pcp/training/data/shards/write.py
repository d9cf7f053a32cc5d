"""A text file to shards, a piece at a time."""

import codecs
import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pcp.errors import PCPError
from pcp.temporary import written
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.corpus import CorpusNotText, EmptyCorpus, MissingCorpus
from pcp.training.data.kinds.plain_text import HEAD_BYTES, refuse_structure, refuse_zeros, text_pieces
from pcp.training.data.shards.index import INDEX_NAME, Shard, ShardIndex
from pcp.training.data.shards.place import Place
from pcp.training.data.tokenizer import (
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    TokenizerUnreadable,
    Tokens,
    token_dtype,
)

_PIECE = 1 << 20
_WINDOW = 1 << 14
"""Characters at the end of a piece in which a word has to end."""
_CHECKED = 256
"""Characters on both sides of a cut whose tokens are compared."""
_BETWEEN_WORDS = re.compile(r"(?<=\w) (?=\w)")


class CannotCut(PCPError):
    """A text that cannot be encoded in pieces."""


def write_shards(
    text: Path, place: Place, *, tokenizer: str, shard_tokens: int, vocabulary: int = 1024
) -> ShardIndex:
    """Write the shards of a text, then their index.

    Arguments:
        tokenizer: `characters`, `bytes`, `bpe` (byte pairs, learnt from the text), or a `tokenizer.json` of the package
            `tokenizers`.
        shard_tokens: tokens in a shard. The last tenth of the text, but at most so many, is the validation part.
        vocabulary: tokens that `bpe` learns.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, CorpusNotText: the file cannot be read, or is no text.
        MissingExtra: the package `tokenizers` is needed, and not installed.
        TokenizerUnreadable: the file is no tokenizer's.
        CannotCut: the tokenizer gives other tokens for pieces of the text than for all of it.
        TemporaryFolderUnusable: there is no room for the tokens before they are cut.
        PlaceUnreachable: the place cannot be written to.
    """
    with written(Path(tempfile.gettempdir())), ExitStack() as stack:
        encoder: Tokenizer
        if tokenizer == "bytes":
            encoder, total = ByteTokenizer(), sum(map(len, _pieces(text)))
            encoded: Iterator[Tokens] = map(ByteTokenizer().encode_bytes, _pieces(text))
        elif tokenizer == "characters":
            characters: set[str] = set()
            total = 0
            for piece in _decoded(text):
                total += len(piece)
                characters.update(piece)
            _expect_tokens(text, total)
            encoder = CharacterTokenizer("".join(sorted(characters)))
            encoded = map(encoder.encode, _decoded(text))
        else:
            if tokenizer == "bpe":
                encoder = BytePairTokenizer.train(_decoded(text), vocabulary)
            else:
                encoder = BytePairTokenizer(_definition(Path(tokenizer)))
            # How many tokens there are is known when all are: they wait in a file.
            spool = stack.enter_context(tempfile.TemporaryFile())
            dtype = np.dtype(token_dtype(encoder.vocabulary_size))
            for piece in _in_words(_decoded(text), encoder):
                spool.write(encoder.encode(piece).tobytes())
            total = spool.tell() // dtype.itemsize
            spool.seek(0)
            encoded = (np.frombuffer(data, dtype) for data in iter(lambda: spool.read(_PIECE), b""))
        _expect_tokens(text, total)
        return _written(place, encoder, encoded, total, shard_tokens)


def _expect_tokens(text: Path, total: int) -> None:
    if total < 2:
        raise EmptyCorpus(
            f"{text} has {total} tokens; expected at least 2, one to train on and one to validate."
        )


def _written(
    place: Place, tokenizer: Tokenizer, encoded: Iterator[Tokens], total: int, shard_tokens: int
) -> ShardIndex:
    validation = max(1, min(total - int(total * 0.9), shard_tokens))
    unwritten = ShardIndex(tokenizer.to_json(), tokenizer.vocabulary_size, (), Shard("", 0))
    shards = []
    for tokens in _cut(encoded, total - validation, shard_tokens):
        data = tokens.astype(unwritten.dtype).tobytes()
        shards.append(Shard(hashlib.sha256(data).hexdigest(), tokens.size))
        place.write(shards[-1].name, data)
    index = ShardIndex(unwritten.tokenizer, unwritten.vocabulary_size, tuple(shards[:-1]), shards[-1])
    place.write(INDEX_NAME, index.to_json().encode())
    return index


def _definition(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerUnreadable(
            f"cannot read the tokenizer {file}: {error}. Give characters, bytes, bpe, or a tokenizer.json."
        ) from None


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


def _cut(encoded: Iterator[Tokens], training: int, size: int) -> Iterator[Tokens]:
    """Cut a stream of tokens every `size`, and where the training part ends."""
    held: list[Tokens] = []
    count, place = 0, 0
    for tokens in encoded:
        while tokens.size:
            wanted = min(size, training - place if place < training else size)
            part = tokens[: wanted - count]
            held.append(part)
            count += part.size
            tokens = tokens[part.size :]
            if count == wanted:
                yield np.concatenate(held)
                place, held, count = place + count, [], 0
    if held:
        yield np.concatenate(held)


def _decoded(text: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for number, piece in enumerate(_pieces(text)):
            refuse_zeros(text, piece, number * HEAD_BYTES)
            if number == 0:
                refuse_structure(text, piece, len(piece) < HEAD_BYTES)
            yield decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise CorpusNotText(
            f"{text} is not UTF-8 text: {error.reason}. Convert it, or use --tokenizer bytes."
        ) from None


def _pieces(text: Path) -> Iterator[bytes]:
    try:
        yield from text_pieces(text, HEAD_BYTES)
    except OSError as error:
        raise MissingCorpus(f"cannot read {text}: {error.strerror}. Give a text file.") from None
