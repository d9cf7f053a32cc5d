"""The cache of a decoder that serves many rows at once: keys and values in pages, which a table gives to rows.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike
from pcp.ir.types import dtype_of
from pcp.nn.attention import scaled_dot_product_attention
from pcp.ops.elementwise import convert, maximum, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.reading import take
from pcp.ops.indexing.updating import index_update
from pcp.ops.linear.stored import FORMATS
from pcp.ops.movement import expand_dims, iota, reshape
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor

Layer = dict[str, Any]
Cache = list[Layer]

FORMS = ("f32", "bf16", "int8")
"""What caches may be kept in."""

SPARE = 0
"""The page that belongs to no row: what rows write beyond their count goes there, and nobody reads it."""


def empty(layers: int, pages: int, page: int, heads: int, width: int, dtype: DTypeLike) -> Cache:
    """Zeros of shape (pages, page, heads, width) for the keys and the values of each layer; of i8, scales as well."""
    shape, numpy_type = (pages, page, heads, width), dtype_of(dtype).numpy
    kinds: dict[str, Any] = {"key": (shape, numpy_type), "value": (shape, numpy_type)}
    if dtype_of(dtype) is DType.i8:
        kinds |= {f"{kind}_scales": (shape[:-1], np.dtype(np.float32)) for kind in ("key", "value")}
    return [{kind: np.zeros(*each) for kind, each in kinds.items()} for _ in range(layers)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens that rows read at once, and where they stand.

    Arguments:
        places: of each token in its row, (rows, chunk).
        lengths: tokens of each row that are read after this chunk, (rows,).
        count: how many of the chunk are tokens, (rows,).
        table: the pages of each row in the order of places, (rows, pages of a row).
    """

    places: Tensor
    lengths: Tensor
    count: Tensor
    table: Tensor

    @staticmethod
    def of(tokens: TensorLike, start: TensorLike, count: TensorLike, table: TensorLike) -> "Chunk":
        """The chunk of `tokens` (rows, chunk).

        Raises:
            ShapeMismatch: the shapes do not belong together.
        """
        ids, first, many, pages = map(as_tensor, (tokens, start, count, table))
        rows = ids.shape[:1]
        if ids.ndim != 2 or pages.ndim != 2 or not first.shape == many.shape == pages.shape[:1] == rows:
            raise ShapeMismatch(
                f"read: tokens {ids.shape}, start {first.shape}, count {many.shape} and table {pages.shape} were given; "
                "expected (rows, chunk), (rows,), (rows,) and (rows, pages of a row)"
            )
        places = expand_dims(first, 1) + iota(ids.shape, 1)
        return Chunk(places, first + many, many, pages)

    def written(self, layer: Layer, key: Tensor, value: Tensor) -> Layer:
        """The cache of one layer with keys and values (rows, chunk, heads, width) of this chunk."""
        page = layer["key"].shape[1]
        inside = iota(self.places.shape, 1) < expand_dims(self.count, 1)
        pages = reshape(where(inside, take_along_axis(self.table, self.places // page, 1), SPARE), (-1,))
        slots = reshape(self.places % page, (-1,))
        new = {"key": key, "value": value}
        for kind in [kind for kind in new if f"{kind}_scales" in layer]:
            rows = convert(reshape(new[kind], (-1, new[kind].shape[-1])), DType.f32)
            new[kind], new[f"{kind}_scales"] = FORMATS["int8"].written(rows)
        return {kind: _scattered(as_tensor(layer[kind]), pages, slots, each) for kind, each in new.items()}

    def attended(
        self, query: Tensor, layer: Layer, window: int | None = None, cap: float | None = None
    ) -> Tensor:
        """Attention of queries (rows, chunk, heads, width) over the pages of their rows, up to their own places.

        Arguments:
            layer: the cache, which holds this chunk.
            window, cap: as of `scaled_dot_product_attention`.
        """
        key, value = (self._read(layer, kind, query) for kind in ("key", "value"))
        rows, keys = key.shape[:2]
        theirs = iota((rows, 1, 1, keys), 3)
        own = reshape(self.places, (rows, 1, self.places.shape[1], 1))
        seen = theirs <= own
        if window is not None:
            seen = seen & (theirs > own - window)
        # What a page held before, be it infinite or NaN, counts nowhere.
        held = reshape(iota((rows, keys), 1) < expand_dims(self.lengths, 1), (rows, keys, 1, 1))
        return scaled_dot_product_attention(query, key, where(held, value, 0.0), mask=seen, cap=cap)

    def last(self, x: Tensor) -> Tensor:
        """What stands at the last token of each row, (rows, 1, width), of x (rows, chunk, width)."""
        if x.shape[1] == 1:
            return x
        at = reshape(maximum(self.count - 1, 0), (x.shape[0], 1, 1))
        return take_along_axis(x, at, 1)

    def _read(self, layer: Layer, kind: str, query: Tensor) -> Tensor:
        """Keys or values of all rows (rows, keys, heads, width), in the type of queries."""
        stored = self._gathered(as_tensor(layer[kind]))
        if f"{kind}_scales" not in layer:
            return convert(stored, query.dtype)
        scales = self._gathered(as_tensor(layer[f"{kind}_scales"]))
        return convert(FORMATS["int8"].read(stored, scales), query.dtype)

    def _gathered(self, stored: Tensor) -> Tensor:
        _, page, *rest = stored.shape
        rows, many = self.table.shape
        return reshape(take(stored, self.table, 0), (rows, many * page, *rest))


def _scattered(stored: Tensor, pages: Tensor, slots: Tensor, new: Tensor) -> Tensor:
    """The cache (pages, page, heads, ...) with new numbers in some slots of pages."""
    updates = convert(reshape(new, (-1, *stored.shape[2:])), stored.dtype)
    return index_update(stored, (pages, slots), updates)
