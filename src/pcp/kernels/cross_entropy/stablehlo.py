"""Kernels for `pcp.cross_entropy` and its gradient.

The logits of a language model are its largest tensor, so what matters is how often they are read, and whether a few rows at a
time stay in the cache meanwhile.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, is_named, tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.along_axis import take_along_axis
from pcp.ops.elementwise import equal, exp, greater_equal, less, log, maximum, minimum, where
from pcp.ops.movement import concatenate, expand_dims, iota, reshape
from pcp.ops.reduction import max_, sum_
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor

BYTES = 4 << 20
"""A block of rows is about as large as a core's cache."""

BLOCKS = 64
"""Blocks are written out one by one, so there are no more."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Logits and targets of examples, one a row.

    Arguments:
        named: the composite.
        logits: shape (rows, classes).
        targets: shape (rows,), integers that are brought into the range of classes as the composite says.
        known: shape (rows,), whether a target is a class; None if all are.
    """

    named: Named
    logits: Tensor
    targets: Tensor
    known: Tensor | None

    @classmethod
    def of(cls, op: ir.Operation) -> "Rows":
        """Those of a composite."""
        named = Named.of(op)
        x, t = tensors(op)[:2]
        classes = x.shape[-1]
        targets = reshape(t, (t.size,)).astype(DType.i32)
        if named.attributes["wraps"]:
            targets = where(less(targets, 0), targets + classes, targets)
        inside = minimum(maximum(targets, 0), classes - 1)
        known = None
        if not named.attributes["clamps"]:
            known = greater_equal(targets, 0) & less(targets, classes)
        return cls(named, reshape(x, (t.size, classes)), inside, known)

    def blocks(self, rows: int | None) -> list["Rows"]:
        """The rows in blocks of so many; all at once if None."""
        count = self.logits.shape[0]
        step = rows or count
        return [
            Rows(
                self.named,
                self.logits[start : start + step],
                self.targets[start : start + step],
                None if self.known is None else self.known[start : start + step],
            )
            for start in range(0, count, step)
        ]

    def losses(self) -> Tensor:
        """The loss of each row, or its negative."""
        x = self.logits
        largest = max_(x, -1, keepdims=True)
        total = reshape(log(sum_(exp(x - largest), -1, keepdims=True)) + largest, (x.shape[0],))
        picked = reshape(take_along_axis(x, expand_dims(self.targets, 1), 1), (x.shape[0],))
        given = self.named.attributes
        if given["negated"]:  # the logarithm of the likelihood, which is picked from a row of its own
            found = picked - total
            return found if self.known is None else where(self.known, found, given["outside"])
        return total - (picked if self.known is None else where(self.known, picked, given["outside"]))

    def gradient(self, cotangent: Tensor) -> Tensor:
        """The cotangent of the logits: softmax, less 1 at the target, times that of the loss."""
        x = self.logits
        weights = exp(x - max_(x, -1, keepdims=True))
        factor = expand_dims(cotangent, 1)
        softmax = weights * (factor / sum_(weights, -1, keepdims=True))
        chosen = equal(iota(x.shape, 1), expand_dims(self.targets, 1))
        if self.known is not None:
            chosen = chosen & expand_dims(self.known, 1)
        if self.named.attributes["negated"]:
            known = self.known
            found = where(chosen, factor, 0.0) - softmax
            return found if known is None else where(expand_dims(known, 1), found, 0.0)
        return softmax - where(chosen, factor, 0.0)


def _rows_of_block(op: ir.Operation) -> int:
    """How many rows fit the cache, as far as there are not too many blocks."""
    x = Named.of(op).operands[0]
    classes = x.shape[-1]
    rows = math.prod(x.shape[:-1])
    return max(BYTES // (4 * classes), -(-rows // BLOCKS), 1)


def _loss(chunked: bool) -> Callable[[ir.Operation], list[Tensor]]:
    def build(op: ir.Operation) -> list[Tensor]:
        rows = Rows.of(op)
        parts = [block.losses() for block in rows.blocks(_rows_of_block(op) if chunked else None)]
        return [reshape(concatenate(parts), rows.named.results[0].shape)]

    return build


def _gradient(chunked: bool) -> Callable[[ir.Operation], list[Tensor]]:
    def build(op: ir.Operation) -> list[Tensor]:
        rows = Rows.of(op)
        given = tensors(op)[2]
        g = reshape(given, (given.size,))
        step = _rows_of_block(op) if chunked else g.size
        parts = [block.gradient(g[i * step : (i + 1) * step]) for i, block in enumerate(rows.blocks(step))]
        found = reshape(concatenate(parts), rows.named.operands[0].shape)
        return rows.named.cotangents(op, {0: found})

    return build


def _has_blocks(op: ir.Operation, platform: str) -> bool:
    rows = math.prod(Named.of(op).operands[0].shape[:-1])
    return applies_to_f32(op, platform) and rows > _rows_of_block(op)


register_family(
    Family(
        "cross_entropy",
        "-log softmax(logits)[target] of every example",
        is_named("pcp.cross_entropy"),
        gradient="cross_entropy_gradient",
    )
)
register_family(
    Family("cross_entropy_gradient", "the gradient of cross entropy", is_named("pcp.cross_entropy.vjp"))
)
for _name, _about, _applies, _build in (
    ("cross_entropy.gathered", "the logits of the targets are gathered", applies_to_f32, _loss(False)),
    ("cross_entropy.chunked", "as gathered, some rows at a time", _has_blocks, _loss(True)),
    (
        "cross_entropy_gradient.fused",
        "softmax less 1 at the target, instead of the derivative of each operation",
        applies_to_f32,
        _gradient(False),
    ),
    ("cross_entropy_gradient.chunked", "as fused, some rows at a time", _has_blocks, _gradient(True)),
):
    register_kernel(Kernel(_name, Effect.reassociating, _about, _applies, _build))
