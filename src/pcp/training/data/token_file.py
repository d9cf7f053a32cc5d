"""Tokens on disk: a header that says what they are, then the numbers, mapped into memory instead of read.

Layout, little-endian: 8 bytes magic; u32 version; u32 bytes per token (2 or 4); u64 tokens; u64 vocabulary
size; u64 tokens of the training part; 32 bytes SHA-256 of the payload; 32 bytes SHA-256 of everything
before; zeros up to byte 128; the payload.
"""

import hashlib
import os
import struct
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.token_range import check_tokens
from pcp.training.data.tokenizer import Tokens, token_dtype

_MAGIC = b"PCPTOKEN"
_VERSION = 1
_FIELDS = struct.Struct("<8sIIQQQ32s")
_HEADER_BYTES = 128
_CHUNK_TOKENS = 1 << 21


class TokenFileMissing(PCPError):
    """There is no token file at the path."""


class TokenFileForeign(PCPError):
    """The file is not a token file."""


class TokenFileNewer(PCPError):
    """The token file was written by a newer version of PCP."""


class TokenFileTruncated(PCPError):
    """The token file is shorter or longer than its header says."""


class TokenFileCorrupt(PCPError):
    """The header or the tokens are not what was written."""


@dataclass(frozen=True, eq=False)
class TokenFile:
    """An opened token file.

    Arguments:
        vocabulary_size: every token is smaller.
        training: the first part of the tokens, for training; read-only, mapped from the file.
        validation: the rest, for validation.
        digest: SHA-256 of the tokens' bytes, in hex; it names the data of a run.
    """

    path: Path
    vocabulary_size: int
    training: npt.NDArray[np.unsignedinteger]
    validation: npt.NDArray[np.unsignedinteger]
    digest: str

    @classmethod
    def open(cls, path: Path, *, verify: bool = True) -> "TokenFile":
        """Map a token file into memory.

        Arguments:
            verify: whether to read it all once and compare its digest; a damaged file is otherwise only
                noticed where its header or length is wrong.

        Raises:
            TokenFileMissing, TokenFileForeign, TokenFileNewer, TokenFileTruncated, TokenFileCorrupt: as
                named.
        """
        item_bytes, count, vocabulary_size, training_count, digest = _read_header(path)
        if count == 0:
            raise TokenFileTruncated(f"{path} holds no tokens. Make the file anew from a longer text.")
        tokens = np.memmap(path, np.dtype(f"<u{item_bytes}"), "r", offset=_HEADER_BYTES, shape=(count,))
        if verify and _digest_of(tokens) != digest:
            raise TokenFileCorrupt(
                f"The tokens in {path} do not have the digest in its header. Make the file anew."
            )
        return cls(path, vocabulary_size, tokens[:training_count], tokens[training_count:], digest.hex())


def write_token_file(
    path: Path, tokens: Tokens, vocabulary_size: int, *, training_fraction: float = 0.9
) -> TokenFile:
    """Write tokens to a file, which appears complete or not at all.

    Arguments:
        path: the file to make or replace.
        tokens: a vector of token numbers.
        vocabulary_size: every token must be smaller.
        training_fraction: share of the tokens, from the start, that is the training part.

    Raises:
        TokenOutOfRange: a token lies outside the vocabulary.
    """
    return write_token_stream(path, (tokens,), None, vocabulary_size, training_fraction=training_fraction)


def write_token_stream(
    path: Path,
    training: Iterable[npt.NDArray[np.integer[Any]]],
    validation: Iterable[npt.NDArray[np.integer[Any]]] | None,
    vocabulary_size: int,
    *,
    training_fraction: float = 0.9,
    source: str = "",
) -> TokenFile:
    """Write tokens that come in pieces; see `write_token_file`.

    Arguments:
        training: vectors of token numbers.
        validation: those of the validation part; None takes the end of the others.
        source: where they come from, for the message.
    """
    dtype = np.dtype(token_dtype(vocabulary_size)).newbyteorder("<")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(bytes(_HEADER_BYTES))

            def write(pieces: Iterable[npt.NDArray[np.integer[Any]]]) -> int:
                count = 0
                for whole in pieces:
                    for start in range(0, whole.size, _CHUNK_TOKENS):
                        piece = whole[start : start + _CHUNK_TOKENS]
                        check_tokens(piece, vocabulary_size, source or str(path), count)
                        stored = np.ascontiguousarray(piece, dtype)
                        digest.update(stored.data)
                        file.write(stored.data)
                        count += stored.size
                return count

            count = write(training)
            split = int(count * training_fraction) if validation is None else count
            count += 0 if validation is None else write(validation)
            fields = _FIELDS.pack(
                _MAGIC, _VERSION, dtype.itemsize, count, vocabulary_size, split, digest.digest()
            )
            file.seek(0)
            file.write(fields + hashlib.sha256(fields).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    return TokenFile.open(path, verify=False)


def _read_header(path: Path) -> tuple[int, int, int, int, bytes]:
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise TokenFileMissing(f"There is no token file at {path}. Make one with write_token_file.") from None
    if header[:8] != _MAGIC:
        raise TokenFileForeign(
            f"{path} is not a token file: it begins with {header[:8]!r}, expected {_MAGIC!r}."
        )
    if len(header) < _HEADER_BYTES:
        raise TokenFileTruncated(f"{path} ends inside its header, after {size} bytes. Make the file anew.")
    _, version, item_bytes, count, vocabulary_size, training_count, digest = _FIELDS.unpack_from(header)
    if version > _VERSION:
        raise TokenFileNewer(
            f"{path} has format version {version}; this PCP reads up to {_VERSION}. Update PCP."
        )
    checksum = header[_FIELDS.size : _FIELDS.size + 32]
    if hashlib.sha256(header[: _FIELDS.size]).digest() != checksum or item_bytes not in (2, 4):
        raise TokenFileCorrupt(f"The header of {path} is damaged. Make the file anew.")
    expected = _HEADER_BYTES + count * item_bytes
    if size != expected:
        raise TokenFileTruncated(f"{path} has {size} bytes; its header says {expected}. Make the file anew.")
    return item_bytes, count, vocabulary_size, training_count, digest


def _digest_of(tokens: npt.NDArray[np.unsignedinteger]) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, tokens.size, _CHUNK_TOKENS):
        digest.update(np.ascontiguousarray(tokens[start : start + _CHUNK_TOKENS]).data)
    return digest.digest()
