"""Kernels for `pcp.cross_entropy` and its gradient.

The logits of a language model are its largest tensor, so what matters is how often they are read, and whether a few rows at a
time stay in the cache meanwhile.
"""

import math
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import CROSS_ENTROPY
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, is_named, tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import equal, exp, greater_equal, less, log, maximum, minimum, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import expand_dims, iota, reshape, zeros
from pcp.ops.reductions.primitives import largest_along, sum_
from pcp.tensor import Tensor

BYTES = 4 << 20
"""A block of rows is about as large as a core's cache."""


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

    def block(self, start: Tensor, count: int) -> "Rows":
        """So many rows from one on."""
        return Rows(
            self.named,
            dynamic_slice(self.logits, (start, 0), (count, self.logits.shape[1])),
            dynamic_slice(self.targets, (start,), (count,)),
            None if self.known is None else dynamic_slice(self.known, (start,), (count,)),
        )

    def computed(self) -> Tensor:
        """The loss of each row, or its negative. The largest logit meets that of the target before the logarithm, which it
        may be so large as to swallow."""
        x = self.logits
        largest = largest_along(x, -1)
        logarithm = log(sum_(exp(x - largest), -1, keepdims=True))
        above = logarithm + (largest - expand_dims(self.chosen(), 1))
        rows = (x.shape[0],)
        return self.losses(reshape(logarithm + largest, rows), reshape(above, rows))

    def chosen(self) -> Tensor:
        """The logit of each row's target."""
        x = self.logits
        return reshape(take_along_axis(x, expand_dims(self.targets, 1), 1), (x.shape[0],))

    def losses(self, total: Tensor, above: Tensor) -> Tensor:
        """The loss of each row, or its negative, from its normaliser, and from what this is above the logit of the target."""
        attributes, known = self.named.attributes, self.known
        if attributes["negated"]:  # the logarithm of the likelihood, which is picked from a row of its own
            return -above if known is None else where(known, -above, attributes["outside"])
        return above if known is None else where(known, above, total - attributes["outside"])

    def factors(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Targets, -1 where none is a class, and factors of (softmax, less 1 at the target) in the cotangent of the logits."""
        factors, targets, known = reshape(cotangent, (cotangent.size,)), self.targets, self.known
        if self.named.attributes["negated"]:
            factors = -factors if known is None else where(known, -factors, 0.0)
        return (targets if known is None else where(known, targets, -1)), factors

    def gradient(self, cotangent: Tensor) -> Tensor:
        """The cotangent of the logits: softmax, less 1 at the target, times the cotangent of the loss."""
        shifted = self.logits - largest_along(self.logits, -1)
        factor = expand_dims(cotangent, 1)
        # Another exponential than that in the sum: XLA would keep one that both use, which is as large as the logits.
        softmax = exp(shifted - log(sum_(exp(shifted), -1, keepdims=True))) * factor
        chosen = equal(iota(self.logits.shape, 1), expand_dims(self.targets, 1))
        if self.known is not None:
            chosen = chosen & expand_dims(self.known, 1)
        if self.named.attributes["negated"]:
            known = self.known
            gradient = where(chosen, factor, 0.0) - softmax
            return gradient if known is None else where(expand_dims(known, 1), gradient, 0.0)
        return softmax - where(chosen, factor, 0.0)


def _rows_of_block(op: ir.Operation) -> int:
    """How many rows fit the cache, as a divisor of their number."""
    x = Named.of(op).operands[0]
    rows, most = math.prod(x.shape[:-1]), max(BYTES // (4 * x.shape[-1]), 1)
    return next(step for step in range(min(rows, most), 0, -1) if rows % step == 0)


def _loss(op: ir.Operation) -> list[Tensor]:
    rows = Rows.of(op)
    return [reshape(rows.computed(), rows.named.results[0].shape)]


def _loss_in_blocks(op: ir.Operation) -> list[Tensor]:
    """A loop over blocks of rows."""
    rows, step = Rows.of(op), _rows_of_block(op)

    def block(index: Tensor, done: Tensor) -> Tensor:
        part = rows.block(index * step, step)
        return dynamic_update_slice(done, part.computed(), (index * step,))

    count = rows.targets.size
    losses = fori_loop(0, count // step, block, zeros((count,)))
    return [reshape(losses, rows.named.results[0].shape)]


def _gradient(op: ir.Operation) -> list[Tensor]:
    rows = Rows.of(op)
    cotangent = tensors(op)[2]
    gradient = rows.gradient(reshape(cotangent, (cotangent.size,)))
    return rows.named.cotangents(op, {0: reshape(gradient, rows.named.operands[0].shape)})


def _gradient_in_blocks(op: ir.Operation) -> list[Tensor]:
    """A loop over blocks of rows, each of which is written into its place."""
    rows, step = Rows.of(op), _rows_of_block(op)
    cotangent = tensors(op)[2]
    g = reshape(cotangent, (cotangent.size,))

    def block(index: Tensor, done: Tensor) -> Tensor:
        start = index * step
        part = rows.block(start, step).gradient(dynamic_slice(g, (start,), (step,)))
        return dynamic_update_slice(done, part, (start, 0))

    gradient = fori_loop(0, g.size // step, block, zeros(rows.logits.shape))
    return rows.named.cotangents(op, {0: reshape(gradient, rows.named.operands[0].shape)})


def _has_blocks(op: ir.Operation) -> bool:
    rows = math.prod(Named.of(op).operands[0].shape[:-1])
    return applies_to_f32(op) and rows > _rows_of_block(op)


register_family(
    Family(
        "cross_entropy",
        "-log softmax(logits)[target] of every example",
        is_named(CROSS_ENTROPY.name),
        gradient="cross_entropy_gradient",
    )
)
register_family(
    Family(
        "cross_entropy_gradient",
        "the gradient of cross entropy",
        is_named(CROSS_ENTROPY.gradient_name),
    )
)
for _name, _about, _applies, _build in (
    ("cross_entropy.gathered", "the logits of the targets are gathered", applies_to_f32, _loss),
    ("cross_entropy.chunked", "as gathered, some rows at a time", _has_blocks, _loss_in_blocks),
    (
        "cross_entropy_gradient.fused",
        "softmax less 1 at the target, instead of the derivative of each operation",
        applies_to_f32,
        _gradient,
    ),
    ("cross_entropy_gradient.chunked", "as fused, some rows at a time", _has_blocks, _gradient_in_blocks),
):
    register_kernel(Kernel(_name, _about, _applies, StableHLO(_build)))
