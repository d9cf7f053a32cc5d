"""Sequences of different lengths in one batch, as kernels of attention take them.

Which queries count is one number for each sequence: queries that see no key, because they are beyond a window of the last key
or there is no key, stand after all others.
"""

import math
from dataclasses import dataclass, replace

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.attention.heads import Heads, Names
from pcp.kernels.named import Named, tensors
from pcp.ops.elementwise import greater, less, maximum, minimum, where
from pcp.ops.movement import full, iota, reshape, transpose
from pcp.tensor import Tensor

KINDS = ("query_lengths", "key_lengths")


def has_lengths(heads: Heads) -> bool:
    """Whether an attention has lengths."""
    return any(kind in heads.attributes for kind in KINDS)


def lengths_axes(heads: Heads) -> Names:
    """The axes that lengths run along, in the order of the sets of keys."""
    named = {axis for kind in KINDS for axis in heads.attributes.get(kind, ())}
    return tuple(axis for axis in heads.batch if axis in named)


def takes_lengths(op: ir.Operation, heads: Heads) -> bool:
    """Whether kernels can count by the lengths of an attention, if it has any."""
    given = heads.attributes
    if not has_lengths(heads):
        return True
    axes = {axis for kind in KINDS for axis in given.get(kind, ())}
    counts = Named.of(op).operands[3:]
    return (
        axes <= set(heads.batch)
        and "mask" not in given
        and "bias" not in given
        and given["fill"] == -math.inf
        and (not given["causal"] or heads.last_key is not None)
        and all(spec.dtype is DType.i32 for spec in counts)
    )


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many queries and keys of each sequence count.

    Arguments:
        heads: which axis of which operand is what.
        axes: that the lengths run along.
        queries, keys: of the sizes of these axes. Of the queries those that see a key count.
    """

    heads: Heads
    axes: Names
    queries: Tensor
    keys: Tensor

    @classmethod
    def of(cls, op: ir.Operation, heads: Heads) -> "Lengths | None":
        """Those of an attention or of its gradient; None if all count."""
        if not has_lengths(heads):
            return None
        kinds = [kind for kind in KINDS if kind in heads.attributes]
        given = dict(zip(kinds, tensors(op)[3:], strict=False))
        axes = lengths_axes(heads)
        sizes = [heads.sizes[axis] for axis in axes]
        queries, keys = (full(sizes, most, DType.i32) for most in heads.lengths)
        if "key_lengths" in given:
            spread = _along(given["key_lengths"], heads.attributes["key_lengths"], axes)
            keys = minimum(maximum(spread, 0), keys)
        reach = where(greater(keys, 0), heads.lengths[0], 0)
        if heads.window is not None:
            reach = minimum(reach, keys + (heads.window - 1 - heads.attributes["offset"]))
        queries = minimum(queries, reach)
        if "query_lengths" in given:
            spread = _along(given["query_lengths"], heads.attributes["query_lengths"], axes)
            queries = minimum(maximum(spread, 0), queries)
        return cls(heads, axes, queries, keys)

    def inside(self, x: Tensor, kind: str) -> Tensor:
        """An operand or result, 0 where it does not count."""
        names = self.heads.attributes[kind]
        axis, ends = (
            (self.heads.queries, self.queries)
            if kind in ("query", "result")
            else (self.heads.keys, self.keys)
        )
        return where(less(iota(x.shape, names.index(axis)), _along(ends, self.axes, names)), x, 0.0)

    def keys_along(self, names: Names) -> Tensor:
        """How many keys count, as it broadcasts to something with axes of these names."""
        return _along(self.keys, self.axes, names)

    def mask(self) -> tuple[Tensor, Names]:
        """Which keys count, as a mask with its axes."""
        names = (*self.axes, self.heads.keys)
        shape = [self.heads.sizes[axis] for axis in names]
        return less(iota(shape, len(self.axes)), _along(self.keys, self.axes, names)), names


def _along(lengths: Tensor, axes: Names, names: Names) -> Tensor:
    """Lengths as they broadcast to something with axes of these names."""
    order = sorted(range(len(axes)), key=lambda place: names.index(axes[place]))
    sizes = dict(zip(axes, lengths.shape, strict=True))
    return reshape(transpose(lengths, order), [sizes.get(axis, 1) for axis in names])


@dataclass(frozen=True, slots=True)
class Masked:
    """An attention for kernels that count by masks.

    Arguments:
        heads: with a mask in place of the lengths.
        operands: query, key, value and masks; 0 stands for what does not count.
        lengths: what they are made by; None if all of it counts.
    """

    heads: Heads
    operands: list[Tensor]
    lengths: Lengths | None

    @classmethod
    def of(cls, op: ir.Operation) -> "Masked":
        """That of an attention or of its gradient."""
        heads = Heads.of(op)
        assert heads is not None
        given, lengths = tensors(op)[: len(Named.of(op).operands)], Lengths.of(op, heads)
        if lengths is None:
            return cls(heads, given, None)
        operands = [
            lengths.inside(x, kind) for x, kind in zip(given, ("query", "key", "value"), strict=False)
        ]
        if "key_lengths" not in heads.attributes:
            return cls(heads, operands, lengths)
        mask, names = lengths.mask()
        return cls(replace(heads, attributes={**heads.attributes, "mask": names}), [*operands, mask], lengths)

    def inside(self, x: Tensor, kind: str) -> Tensor:
        """A result or cotangent, 0 where it does not count."""
        return x if self.lengths is None else self.lengths.inside(x, kind)
