"""The check that tokens fit a vocabulary, made where data enters: an embedding would clamp them silently."""

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError

_CHUNK = 1 << 22


class TokenOutOfRange(PCPError):
    """A token is negative, or not smaller than the vocabulary size."""


def check_tokens(tokens: npt.NDArray[np.integer], vocabulary_size: int, source: str, first: int = 0) -> None:
    """Check every token of an array, a piece at a time so that a mapped file is not held in memory.

    Arguments:
        tokens: integers of any shape.
        vocabulary_size: every token must be at least 0 and smaller than this.
        source: where the tokens come from, for the message.
        first: the position of the first of them there.

    Raises:
        TokenOutOfRange: naming the first token that does not fit, and its position.
    """
    if not np.issubdtype(tokens.dtype, np.integer):
        raise TokenOutOfRange(f"Tokens of {source} have dtype {tokens.dtype}, expected integers.")
    flat = tokens.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        piece = flat[start : start + _CHUNK]
        if piece.max() < vocabulary_size and piece.min() >= 0:
            continue
        position = int(np.flatnonzero((piece >= vocabulary_size) | (piece < 0))[0])
        raise TokenOutOfRange(
            f"Token {piece[position]} at position {first + start + position} of {source} is outside the vocabulary: expected "
            f"0 <= token < {vocabulary_size}. Encode the data with the tokenizer of this model."
        )
