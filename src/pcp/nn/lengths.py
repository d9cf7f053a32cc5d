"""Sequences of different lengths in one batch of attention: what counts, and what stands beyond."""

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ops.elementwise import convert, less, maximum, minimum, where
from pcp.ops.movement import iota, reshape
from pcp.ops.reductions.primitives import any_
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor


def lengths_of(kind: str, lengths: Tensor, batch: int, most: int) -> Tensor:
    """Lengths in 32 bits, none below 0 or above what there is.

    Arguments:
        kind: their name, for messages.
        lengths: whole numbers of shape (batch,).
        most: how many queries or keys there are.

    Raises:
        ShapeMismatch: it is not one number for each sequence.
        DTypeMismatch: they are no whole numbers.
    """
    if lengths.shape != (batch,):
        raise ShapeMismatch(
            f"attention: {kind} {lengths.shape} were given; expected one for each sequence, ({batch},)"
        )
    if not lengths.dtype.is_integer:
        raise DTypeMismatch(
            f"attention: {kind} of type {lengths.dtype} were given; expected whole numbers, as i32"
        )
    wide = lengths if lengths.dtype.itemsize >= 4 else convert(lengths, DType.i32)
    return convert(minimum(maximum(wide, 0), most), DType.i32)


@dataclass(frozen=True, slots=True)
class Padded:
    """Which queries and keys count.

    Arguments:
        scores: their shape (batch, groups, queries, [heads of a group,] keys).
        lengths: `query_lengths` and `key_lengths`, those that are given.
    """

    scores: tuple[int, ...]
    lengths: Mapping[str, Tensor]

    def query(self, x: Tensor) -> Tensor:
        """Queries (batch, queries, groups, ...), 0 beyond their length."""
        inside = self._inside("query_lengths", 2)
        return x if inside is None else where(reshape(inside, (*inside.shape, *[1] * (x.ndim - 2))), x, 0.0)

    def key(self, x: Tensor) -> Tensor:
        """The same of keys or values."""
        inside = self._inside("key_lengths", -1)
        return x if inside is None else where(reshape(inside, (*inside.shape, 1, 1)), x, 0.0)

    def seen(self, visible: Iterable[Tensor]) -> tuple[Tensor | None, Tensor]:
        """Which keys a query looks at, None if at all; and which queries count: those within their length that see a key.

        A query that sees none looks at all of them, for softmax has to be a number.

        Arguments:
            visible: what else says which keys are seen; broadcasts to the scores.
        """
        batch, _, queries, *shared, keys = self.scores
        ones = [1] * len(shared)
        of_keys, of_queries = self._inside("key_lengths", -1), self._inside("query_lengths", 2)
        said, counts = list(visible), []
        if of_keys is not None:
            said.append(reshape(of_keys, (batch, 1, 1, *ones, keys)))
        if of_queries is not None:
            counts.append(reshape(of_queries, (batch, 1, queries, *ones, 1)))
        if not said:
            return None, counts[0]
        seen = functools.reduce(operator.and_, said)
        some = any_(seen, -1, keepdims=True)
        return seen | ~some, functools.reduce(operator.and_, counts, some)

    def _inside(self, kind: str, axis: int) -> Tensor | None:
        """Whether each query or key (batch, places) is within its length; None if no length is given."""
        if kind not in self.lengths:
            return None
        places = (self.scores[0], self.scores[axis])
        return less(iota(places, 1), reshape(self.lengths[kind], (places[0], 1)))
