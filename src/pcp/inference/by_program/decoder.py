"""A decoder of which only a program is known, as the engine reads texts with it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.batching.vmap import vmap
from pcp.inference.by_program.axes import NotADecoder
from pcp.inference.by_program.chunk_program import chunk_program, kept_of
from pcp.ir import Program, TensorSpec
from pcp.models.paged import SPARE, Chunk
from pcp.models.parameters import Parameters
from pcp.ops.elementwise import where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.reading import take
from pcp.ops.indexing.updating import index_update
from pcp.ops.movement import expand_dims, iota, reshape
from pcp.tensor import Tensor, as_tensor
from pcp.tracing import call

ARRAYS = "arrays"
"""Under which the parameters of a program are, in its order."""


@dataclass(frozen=True, slots=True)
class ProgramDecoder:
    """A program that scores whole texts, read in chunks; what later tokens look at is kept in pages.

    Arguments:
        digest: of the program, which says all.
        vocabulary, context: its numbers of tokens and of places.
        program: `(parameters.., tokens (1, context)) -> scores (1, context, vocabulary)`.
        kept, queries: what is kept of a text, each (context, ...), and where queries stand; see `kept_of`.
    """

    digest: str
    vocabulary: int
    context: int
    program: Program = field(repr=False, compare=False)
    kept: tuple[TensorSpec, ...] = field(repr=False, compare=False)
    queries: int = field(default=0, repr=False, compare=False)

    @staticmethod
    def of(program: Program) -> "ProgramDecoder":
        """The decoder that a program is.

        Raises:
            NotADecoder: the program takes something else than tokens, returns something else than scores, or a score depends on
                tokens in a way that is not understood.
        """
        tokens, results = program.arguments[-1].spec, program.results
        is_one_text = len(tokens.shape) == 2 and tokens.shape[0] == 1 and not tokens.dtype.is_float
        scores = results[0].spec.shape
        one_or_all = ((1,), (1, 1), tokens.shape)
        if not is_one_text or len(results) != 1 or scores[:-1] not in one_or_all:
            raise NotADecoder(
                f"the program takes {tokens} and returns {', '.join(str(each.spec) for each in results)}; expected tokens "
                "(1, length) of integers, and one result, scores of shape (1, length, vocabulary), or (1, 1, vocabulary)"
            )
        kept, queries = kept_of(program)
        return ProgramDecoder(program.digest, scores[-1], tokens.shape[1], program, tuple(kept), queries)

    def least_width(self, page: int) -> int:
        """See `Reads`: a program has one length."""
        return -(-self.context // page)

    @property
    def identity(self) -> object:
        """See `Reads`."""
        return self.digest, self.queries

    def empty_cache(self, parameters: Parameters, pages: int, page: int, form: str = "") -> Any:
        """See `Reads`; of the element types of the program."""
        del parameters, form
        return [np.zeros((pages, page, *each.shape[1:]), each.dtype.numpy) for each in self.kept]

    def read(
        self,
        parameters: Any,
        cache: Any,
        tokens: Tensor,
        start: Tensor,
        count: Tensor,
        table: Tensor,
        every: bool,
    ) -> tuple[Any, Tensor]:
        """See `Reads`."""
        rows, chunk = tokens.shape
        own = Chunk.of(tokens, start, count, table)
        one = chunk_program(self.program, chunk, self.kept, self.queries)
        held = [self._held(as_tensor(each), own) for each in cache]
        weights = parameters[ARRAYS]
        many = vmap(one, in_axes=([None] * len(weights), 0, 0, [0] * len(held)), out_axes=0, size=rows)
        kept, scores = call(many, weights, reshape(tokens, (rows, 1, chunk)), start, held)
        grown = [_grown(as_tensor(each), new, own) for each, new in zip(cache, kept, strict=True)]
        scores = reshape(scores, (rows, chunk, self.vocabulary))
        return grown, scores if every else own.last(scores)[:, 0]

    def _held(self, stored: Tensor, own: Chunk) -> Tensor:
        """What rows hold, (rows, context, ...)."""
        page, *rest = stored.shape[1:]
        rows, many = own.table.shape
        found = reshape(take(stored, own.table, 0), (rows, many * page, *rest))
        return found if many * page == self.context else found[:, : self.context]


def _grown(stored: Tensor, new: Tensor, own: Chunk) -> Tensor:
    """The cache (pages, page, ...) with what is new of each row, (rows, chunk, ...)."""
    page = stored.shape[1]
    inside = iota(own.places.shape, 1) < expand_dims(own.count, 1)
    pages = reshape(where(inside, take_along_axis(own.table, own.places // page, 1), SPARE), (-1,))
    slots = reshape(own.places % page, (-1,))
    return index_update(stored, (pages, slots), reshape(new, (-1, *stored.shape[2:])))
