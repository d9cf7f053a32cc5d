"""The operands of attention as kernels of NVIDIA GPUs take them: bfloat16, (batch, length, heads, width), as products write.

Nothing is transposed in memory for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.attention.heads import Heads, Names, Order, along
from pcp.kernels.attention.key_cotangents import are_added_up, mean_of
from pcp.kernels.attention.lengths import Lengths, lengths_axes, takes_lengths
from pcp.kernels.named import Named
from pcp.ops.elementwise import convert
from pcp.ops.movement import broadcast_to, reshape
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
        (batch, queries, of_query, width), (_, keys, of_keys, _) = (
            self.heads.shape(kind, Order.by_length) for kind in ("query", "key")
        )
        return batch, of_query, of_keys, queries, keys, width

    def taken(self, tensor: Tensor, kind: str) -> Tensor:
        """An operand with the axes batch, length, heads, width; 0 where it does not count."""
        return self.heads.turned(convert(self._inside(tensor, kind), DType.bf16), kind, Order.by_length)

    def centred(self, named: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Operands by their kinds, keys and values without their means, and what that took off each query's result."""
        means = {kind: self.mean(named[kind], kind) for kind in ("key", "value")}
        return named | {kind: named[kind] - each for kind, each in means.items()}, self.spread(means["value"])

    def mean(self, tensor: Tensor, kind: str) -> Tensor:
        """The mean of all keys or values that count, with size 1 along these; 0 where it is no number."""
        names = self.heads.attributes[kind]
        return mean_of(self._inside(tensor, kind), names.index(self.heads.keys), self._count(names))

    def spread(self, means: Tensor) -> Tensor:
        """Means of values for every query: batch, length, heads, width."""
        names, axes = self.heads.attributes["value"], self.heads.attributes["result"]
        place = names.index(self.heads.keys)
        narrow = reshape(means, (*means.shape[:place], *means.shape[place + 1 :]))
        aligned = along(narrow, (*names[:place], *names[place + 1 :]), axes)
        wide = broadcast_to(aligned, [self.heads.sizes[axis] for axis in axes])
        return self.heads.turned(wide, "result", Order.by_length)

    def returned(self, tensor: Tensor, kind: str) -> Tensor:
        """The opposite, in float32."""
        ordered = self.heads.returned(tensor, kind, Order.by_length)
        return self._inside(convert(ordered, DType.f32), kind)

    def cotangents(
        self,
        op: ir.Operation,
        cotangents: Sequence[Tensor],
        further: Mapping[int, Tensor] = MappingProxyType({}),
    ) -> list[Tensor]:
        """The results of a gradient, from the cotangents of query, key and value, and further ones by their places."""
        named = Named.of(op)
        wrt = named.attributes["wrt"]
        kinds = enumerate(zip(cotangents, ATTENTION.operands, strict=True))
        returned = {place: self.returned(x, kind) for place, (x, kind) in kinds}
        if 1 in wrt and are_added_up(op.results[wrt.index(1)]):
            returned[1] = self._inside(returned[1] - self.mean(returned[1], "key"), "key")
        return named.cotangents(op, {**returned, **further})

    def _count(self, names: Names) -> Tensor | None:
        return None if self.lengths is None else along(self.lengths.keys, self.lengths.axes, names)

    def _inside(self, tensor: Tensor, kind: str) -> Tensor:
        return tensor if self.lengths is None else self.lengths.inside(tensor, kind)


def takes_one_length_each(op: ir.Operation, heads: Heads) -> bool:
    """Whether the lengths of an attention, if it has any, are one number for each of the batch."""
    return takes_lengths(op, heads) and (
        not heads.sight.has_lengths or lengths_axes(heads) == heads.batch[:1]
    )
