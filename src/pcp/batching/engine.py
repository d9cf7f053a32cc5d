"""Batching on StableHLO: a program for one sample becomes one for many, operation by operation.

Values that differ between samples (the batched ones) get the samples as a new first axis; what does not depend on them stays
as it is and is computed once. Batched operations are added behind those for one sample, which are dead afterwards.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import Any

from pcp.batching.sample_loop import sample_loop
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ops.batching import BATCHING, Batched, Mixed
from pcp.ops.derivative import rule_name
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.tensor import Tensor

LOG = logging.getLogger("pcp.batching")


class Batching:
    """The walk over the operations of one module.

    Arguments:
        builder: where batched operations are added.
        main: the outermost block. It gets further arguments, which stand for values of one sample in regions that are copied;
            nothing uses them once dead operations are gone.
        size: the number of samples.
    """

    def __init__(self, builder: Builder, main: ir.Block, size: int) -> None:
        self.builder = builder
        self.size = size
        self.batched: dict[Value, Tensor] = {}
        self.functions: dict[tuple[Any, ...], str] = {}
        self.placeholders = 0
        self._main = main
        self._in_place_of: dict[Value, Value] = {}

    def push(self, operations: Sequence[ir.Operation]) -> None:
        """Batch operations of one block, one after another; the builder stands behind the last."""
        pinned = self.builder.pinned
        for op, following in zip_longest(operations, operations[1:]):
            self.builder.pinned = op.location
            # Each right behind its operation, because later ones may use results that stay as they are.
            with nullcontext() if following is None else self.builder.before(following):
                self._push(op)
        self.builder.pinned = pinned

    def lookup(self, value: Value) -> Tensor:
        """What a value is: batched, or the same for all samples."""
        known = self.batched.get(value)
        return Tensor(self._in_place_of.get(value, value), self.builder) if known is None else known

    def with_samples(self, value: Value) -> Tensor:
        """A value with samples along its first axis, repeated if it is the same for all."""
        known = self.batched.get(value)
        return self.repeated(self.lookup(value)) if known is None else known

    def repeated(self, tensor: Tensor) -> Tensor:
        """A tensor once for every sample."""
        return broadcast_in_dim(tensor, (self.size, *tensor.shape), tuple(range(1, tensor.ndim + 1)))

    def placeholder(self, type_: ir.Type) -> Value:
        """A value of one sample, for operations that are yet to be batched; the caller says what it is for all."""
        self.placeholders += 1
        return self._main.add_argument(type_, self.builder.location)

    def _push(self, op: ir.Operation) -> None:
        captured = [v for v in values_from_outside(op) if v in self.batched] if len(op.regions) else []
        if not captured and not any(value in self.batched for value in op.operands):
            return
        batched = Batched(op, self, captured)
        rule = BATCHING.get(op.name)
        pushed = rule(batched) if rule is not None else None
        if pushed is None:
            LOG.info("vmap runs %s sample by sample: no batching rule covers it", rule_name(op))
            pushed = sample_loop(batched)
        results = pushed.results if isinstance(pushed, Mixed) else pushed
        flags = pushed.flags if isinstance(pushed, Mixed) else [True] * len(results)
        for old, new, flag in zip(op.results, results, flags, strict=True):
            if flag:
                self.batched[old] = new
            else:
                old.replace_all_uses_with(new.value)
                self._in_place_of[old] = new.value
