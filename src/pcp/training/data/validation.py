"""Windows that cover the whole validation part, and a mean over them that is exact for any chunk size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcp.training.data.batches import InvalidBatches, TinyCorpus, TokenArray, check_sizes


@dataclass(frozen=True, eq=False)
class ValidationChunk:
    """Some consecutive windows.

    Arguments:
        inputs: i32[rows, context].
        targets: i32[rows, context]; the token after each input.
        windows: how many of the rows, the first ones, are windows of the validation part; the others only fill up the chunk.
    """

    inputs: TokenArray
    targets: TokenArray
    windows: int


def validation_windows(
    tokens: npt.NDArray[np.integer], context: int, batch: int
) -> Iterator[ValidationChunk]:
    """Cut the validation part into consecutive windows, `batch` at a time; a last partial window is dropped.

    Every chunk has `batch` rows, so that one compiled program serves all; surplus rows of the last one repeat the last window.

    Arguments:
        tokens: the validation part, a vector of integers.
        context: positions in a window.
        batch: windows in a chunk.

    Returns:
        The chunks, in order; there is at least one.

    Raises:
        TinyCorpus: the tokens do not fill one window.
        InvalidBatches: a size is smaller than 1.
    """
    check_sizes(batch, context)
    count = (tokens.size - 1) // context
    if count < 1:
        raise TinyCorpus(
            f"The validation part has {tokens.size} tokens; one window of context {context} needs "
            f"{context + 1}. Give a longer text, or make --context smaller."
        )
    return _chunks(tokens, context, batch, count)


def _chunks(
    tokens: npt.NDArray[np.integer], context: int, batch: int, count: int
) -> Iterator[ValidationChunk]:
    for first in range(0, count, batch):
        real = min(batch, count - first)
        span = tokens[first * context : (first + real) * context + 1].astype(np.int32)
        inputs, targets = (
            np.pad(rows.reshape(real, context), ((0, batch - real), (0, 0)), "edge")
            for rows in (span[:-1], span[1:])
        )
        yield ValidationChunk(inputs, targets, real)


def mean_loss(rows: Iterable[tuple[ValidationChunk, npt.ArrayLike]]) -> float:
    """Average the loss over all windows, in float64.

    Arguments:
        rows: for each chunk, the chunk and a vector with one loss for each of its rows.

    Raises:
        InvalidBatches: losses of another shape; no chunks.
    """
    total, windows = 0.0, 0
    for chunk, of_rows in rows:
        losses = np.asarray(of_rows, np.float64)
        if losses.shape != (len(chunk.inputs),):
            raise InvalidBatches(
                f"Losses of shape {losses.shape} were given for a chunk of {len(chunk.inputs)} rows; expected one loss a row."
            )
        # Selected, not multiplied: a NaN in a row that fills up must not count.
        total += float(losses[: chunk.windows].sum())
        windows += chunk.windows
    if not windows:
        raise InvalidBatches("The mean loss over no windows was asked for; expected at least one chunk.")
    return total / windows
