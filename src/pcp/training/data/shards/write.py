"""A text file to shards, a piece at a time."""

import codecs
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pcp.training.data.corpus import CorpusNotText, EmptyCorpus, MissingCorpus
from pcp.training.data.shards.index import INDEX_NAME, Shard, ShardIndex
from pcp.training.data.shards.place import Place
from pcp.training.data.tokenizer import ByteTokenizer, CharacterTokenizer, Tokens

_PIECE = 1 << 20


def write_shards(text: Path, place: Place, *, characters: bool, shard_tokens: int) -> ShardIndex:
    """Write the shards of a text, then their index.

    Arguments:
        characters: whether a token is a character; otherwise it is a byte.
        shard_tokens: tokens in a shard. The last tenth of the text, but at most so many, is the validation part.

    Raises:
        MissingCorpus, EmptyCorpus, CorpusNotText: the text cannot be read.
        PlaceUnreachable: the place cannot be written to.
    """
    found: set[str] = set()
    total = 0
    for piece in _pieces(text, characters):
        total += len(piece)
        found.update(piece if isinstance(piece, str) else ())
    if total < 2:
        raise EmptyCorpus(
            f"{text} has {total} tokens; expected at least 2, one to train on and one to validate."
        )
    tokenizer = CharacterTokenizer("".join(sorted(found))) if characters else ByteTokenizer()
    validation = max(1, min(total - int(total * 0.9), shard_tokens))
    size = tokenizer.vocabulary_size
    unwritten = ShardIndex(tokenizer.to_json(), size, (), Shard("", 0))
    encoded = (
        tokenizer.encode(piece) if isinstance(piece, str) else ByteTokenizer().encode_bytes(piece)
        for piece in _pieces(text, characters)
    )
    shards = []
    for tokens in _cut(encoded, total - validation, shard_tokens):
        data = tokens.astype(unwritten.dtype).tobytes()
        shards.append(Shard(hashlib.sha256(data).hexdigest(), tokens.size))
        place.write(shards[-1].name, data)
    index = ShardIndex(unwritten.tokenizer, size, tuple(shards[:-1]), shards[-1])
    place.write(INDEX_NAME, index.to_json().encode())
    return index


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


def _pieces(text: Path, characters: bool) -> Iterator[str | bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with text.open("rb") as file:
            while piece := file.read(_PIECE):
                yield decoder.decode(piece) if characters else piece
            if characters:
                decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise CorpusNotText(
            f"{text} is not UTF-8 text: {error.reason}. Convert it, or use --tokenizer bytes."
        ) from None
    except OSError as error:
        raise MissingCorpus(f"cannot read {text}: {error.strerror}. Give a text file.") from None
