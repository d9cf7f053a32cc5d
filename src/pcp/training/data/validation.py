"""Windows that cover the whole validation part, and a mean over them that is exact for any chunk size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcp.training.data.batches import InvalidBatches, TinyCorpus, TokenArray, check_sizes
from pcp.training.data.token_range import check_tokens


@dataclass(frozen=True, eq=False)
class ValidationChunk:
    """Some consecutive windows.

    Arguments:
        inputs: i32[rows, context].
        targets: i32[rows, context]; the token after each input.
        weights: f32[rows]: 1 for a window of the validation part, 0 for a row that only fills up the chunk.
    """

    inputs: TokenArray
    targets: TokenArray
    weights: npt.NDArray[np.float32]

    @property
    def windows(self) -> int:
        """The number of real windows, which are the first rows."""
        return int(self.weights.sum())


def validation_windows(
    tokens: npt.NDArray[np.integer],
    context: int,
    batch: int,
    *,
    pad: bool = True,
    vocabulary_size: int | None = None,
) -> Iterator[ValidationChunk]:
    """Cut the validation part into consecutive windows, `batch` at a time; a last partial window is dropped.

    With `pad`, every chunk has `batch` rows, so that one compiled program serves all; surplus rows repeat
    the last window with weight 0. A program that returns the loss of each row then gives the exact mean
    through `mean_loss`. Without `pad` the last chunk is smaller and its mean weighs as many windows as it
    has.

    Arguments:
        tokens: the validation part, a vector of integers.
        context: positions in a window.
        batch: windows in a chunk.
        pad: whether to fill up the last chunk.
        vocabulary_size: where given, the tokens are checked against it.

    Returns:
        The chunks, in order; there is at least one.

    Raises:
        TinyCorpus: the tokens do not fill one window.
        InvalidBatches: a size is smaller than 1.
        TokenOutOfRange: a token does not fit the vocabulary.
    """
    check_sizes(batch, context)
    count = (tokens.size - 1) // context
    if count < 1:
        raise TinyCorpus(
            f"The validation part has {tokens.size} tokens; one window of context {context} needs "
            f"{context + 1}. Give a longer text, or make --context smaller."
        )
    if vocabulary_size is not None:
        check_tokens(tokens, vocabulary_size, "the validation part")
    return _chunks(tokens, context, batch, count, pad)


def _chunks(
    tokens: npt.NDArray[np.integer], context: int, batch: int, count: int, pad: bool
) -> Iterator[ValidationChunk]:
    for first in range(0, count, batch):
        real = min(batch, count - first)
        span = tokens[first * context : (first + real) * context + 1].astype(np.int32)
        inputs, targets = span[:-1].reshape(real, context), span[1:].reshape(real, context)
        weights = np.ones(real, np.float32)
        if pad and real < batch:
            inputs, targets = (
                np.concatenate([rows, np.repeat(rows[-1:], batch - real, axis=0)])
                for rows in (inputs, targets)
            )
            weights = np.concatenate([weights, np.zeros(batch - real, np.float32)])
        yield ValidationChunk(inputs, targets, weights)


def mean_loss(rows: Iterable[tuple[ValidationChunk, npt.ArrayLike]]) -> float:
    """Average the loss over all real windows, in float64.

    Arguments:
        rows: for each chunk, the chunk and its losses: a vector with one loss for each row, or a scalar, the
            mean over the rows of a chunk without padding.

    Returns:
        The mean over every window.

    Raises:
        InvalidBatches: a scalar for a padded chunk, whose padding cannot be taken out of a mean; losses of
            another length; no chunks.
    """
    total, windows = 0.0, 0
    for chunk, given in rows:
        losses = np.asarray(given, np.float64)
        if losses.ndim == 0 and chunk.windows == len(chunk.weights):
            total += float(losses) * chunk.windows
        elif losses.shape == chunk.weights.shape:
            # Selected, not multiplied: a NaN in a padded row must not count.
            total += float(losses[: chunk.windows].sum())
        else:
            raise InvalidBatches(
                f"Losses of shape {losses.shape} were given for a chunk of {len(chunk.weights)} rows, "
                f"{chunk.windows} of them real; expected one loss a row, or a mean of a chunk without padding."
            )
        windows += chunk.windows
    if not windows:
        raise InvalidBatches("The mean loss over no windows was asked for; expected at least one chunk.")
    return total / windows
