"""A text, records or token numbers to shards, a piece at a time."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pcp.temporary import written
from pcp.training.data.encoding import encoded, tokenizer_of
from pcp.training.data.kinds.kind import Gives, UnknownKind
from pcp.training.data.kinds.source import EmptyCorpus, find_source
from pcp.training.data.kinds.table import accepted
from pcp.training.data.shards.index import INDEX_NAME, Shard, ShardIndex
from pcp.training.data.shards.place import Place
from pcp.training.data.token_range import check_tokens
from pcp.training.data.tokenizer import Tokenizer, Tokens, token_dtype

_PIECE = 1 << 20


def write_shards(
    data: str, place: Place, *, tokenizer: str, shard_tokens: int, vocabulary: int = 1024, field: str = ""
) -> ShardIndex:
    """Write the shards of a text, then their index.

    Arguments:
        data: as `pcp train --data` takes texts, records and token numbers.
        tokenizer: `characters`, `bytes`, `bpe` (byte pairs, learnt from the text), or a `tokenizer.json` of the package
            `tokenizers`, or a folder with one.
        shard_tokens: tokens in a shard. The last tenth of the text, but at most so many, is the validation part.
        vocabulary: tokens that `bpe` learns.
        field: of records: the one that holds their text.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
        CorpusNotText, RowUnreadable, FieldMissing: see `Source.texts`.
        MissingExtra: the package `tokenizers` is needed, and not installed.
        TokenizerUnreadable: the file is no tokenizer's.
        CannotCut: the tokenizer gives other tokens for pieces of the text than for all of it.
        TemporaryFolderUnusable: there is no room for the tokens before they are cut.
        PlaceUnreachable: the place cannot be written to.
    """
    source = find_source(data, field)
    if source.gives is Gives.samples:
        raise UnknownKind(
            f"{data} is {source.parts[0].kind.name}; shards are written from a text, from records, or from token numbers\n"
            + accepted()
        )
    parts = source.parts + source.validation
    with written(Path(tempfile.gettempdir())), ExitStack() as stack:
        encoder = tokenizer_of(source, tokenizer, vocabulary)
        # How many tokens there are is known when all are: they wait in a file.
        spool = stack.enter_context(tempfile.TemporaryFile())
        dtype = np.dtype(token_dtype(encoder.vocabulary_size))
        for tokens in encoded(source, parts, encoder):
            check_tokens(tokens, encoder.vocabulary_size, data, spool.tell() // dtype.itemsize)
            spool.write(np.asarray(tokens, dtype).data)
        total = spool.tell() // dtype.itemsize
        spool.seek(0)
        pieces = (np.frombuffer(data, dtype) for data in iter(lambda: spool.read(_PIECE), b""))
        _expect_tokens(data, total)
        return _written(place, encoder, pieces, total, shard_tokens)


def _expect_tokens(text: str, total: int) -> None:
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
