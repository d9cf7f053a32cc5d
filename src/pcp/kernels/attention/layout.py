"""The operands of attention as kernels of NVIDIA GPUs take them: bfloat16, (batch, length, heads, width), as products write.

Nothing is transposed in memory for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.attention.heads import Heads
from pcp.kernels.attention.key_cotangents import are_added_up, without_mean
from pcp.kernels.attention.lengths import Lengths, has_lengths, lengths_axes, takes_lengths
from pcp.kernels.named import Named
from pcp.ops.elementwise import convert
from pcp.ops.movement import broadcast_to, reshape, transpose
from pcp.rewrite.raising.attention import CONTRACTED, FREE
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Four axes of each operand, the first of the sets of keys as the batch.

    Arguments:
        heads: which axis of which operand is what.
        lengths: of the sequences; None if all of them counts.
    """

    heads: Heads
    lengths: Lengths | None = None

    @classmethod
    def of(cls, op: ir.Operation) -> "Layout":
        """That of an attention or of its gradient."""
        heads = Heads.of(op)
        assert heads is not None
        return cls(heads, Lengths.of(op, heads))

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Batch, heads of the query, heads of the keys, queries, keys, width."""
        heads = self.heads
        rest = math.prod(heads.sizes[axis] for axis in heads.batch[1:])
        groups = math.prod(heads.sizes[axis] for axis in heads.groups)
        batch = heads.sizes[heads.batch[0]] if heads.batch else 1
        return batch, rest * groups, rest, *heads.lengths, heads.sizes[CONTRACTED]

    def taken(self, tensor: Tensor, kind: str) -> Tensor:
        """An operand with the axes batch, length, heads, width; 0 where it does not count."""
        names, flat = self.heads.attributes[kind], self._flat(kind)
        inside = self._inside(tensor, kind)
        ordered = transpose(convert(inside, DType.bf16), [names.index(axis) for axis in flat])
        return reshape(ordered, self.shape(kind))

    def returned(self, tensor: Tensor, kind: str) -> Tensor:
        """The opposite, in float32."""
        names, flat = self.heads.attributes[kind], self._flat(kind)
        wide = reshape(tensor, [self.heads.sizes[axis] for axis in flat])
        ordered = convert(transpose(wide, [flat.index(axis) for axis in names]), DType.f32)
        return self._inside(ordered, kind)

    def cotangents(self, op: ir.Operation, found: Sequence[Tensor]) -> list[Tensor]:
        """The results of a gradient, from the cotangents of query, key and value."""
        named, kinds = Named.of(op), ("query", "key", "value")
        wrt = named.attributes["wrt"]
        returned = {
            place: self.returned(x, kind) for place, (x, kind) in enumerate(zip(found, kinds, strict=True))
        }
        if 1 in wrt and are_added_up(op.results[wrt.index(1)]):
            names = self.heads.attributes["key"]
            count = None if self.lengths is None else self.lengths.keys_along(names)
            returned[1] = self._inside(without_mean(returned[1], names.index(self.heads.keys), count), "key")
        return named.cotangents(op, returned)

    def shape(self, kind: str) -> tuple[int, int, int, int]:
        """Of an operand or the result."""
        batch, of_query, of_keys, queries, keys, width = self.sizes
        if kind in ("query", "result"):
            return batch, queries, of_query, width
        return batch, keys, of_keys, width

    def spread(self, mask: Tensor, kind: str) -> Tensor:
        """A mask as (batch, heads of the query, queries, keys), one of the first two of size 1 where all of them are alike."""
        heads = self.heads
        many = (*heads.batch[1:], *heads.groups)
        axes = (*heads.batch[:1], *many, heads.queries, heads.keys)
        narrow = heads.ordered(mask, kind, axes)
        *outer, _, _ = narrow.shape
        of_batch, of_heads = outer[: len(heads.batch[:1])], outer[len(heads.batch[:1]) :]
        if max(of_heads, default=1) > 1:
            of_heads = [heads.sizes[axis] for axis in many]
        wide = broadcast_to(narrow, (*of_batch, *of_heads, *heads.lengths))
        return reshape(wide, (math.prod(of_batch), math.prod(of_heads), *heads.lengths))

    def _inside(self, tensor: Tensor, kind: str) -> Tensor:
        return tensor if self.lengths is None else self.lengths.inside(tensor, kind)

    def _flat(self, kind: str) -> list[int]:
        heads = self.heads
        length = heads.queries if kind in ("query", "result") else heads.keys
        groups = heads.groups if kind in ("query", "result") else ()
        width = CONTRACTED if kind in ("query", "key") else FREE
        return [*heads.batch[:1], length, *heads.batch[1:], *groups, width]


def takes_one_length_each(op: ir.Operation, heads: Heads) -> bool:
    """Whether the lengths of an attention, if it has any, are one number for each of the batch."""
    return takes_lengths(op, heads) and (not has_lengths(heads) or lengths_axes(heads) == heads.batch[:1])
