"""Showing the tapped values of a program: they become further results, which are handed to a callback after every call."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends import Executable, MemoryUse
from pcp.backends.base import Buffer
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ops.tapping import TAP
from pcp.planning.instrument import flat, with_extras
from pcp.tensor import Tensor, current_builder

log = logging.getLogger("pcp.planning.diagnostics.taps")

Show = Callable[[str, np.ndarray[Any, Any]], object]
"""What is called with the label and the value of every tap, in the order of the program; `print` will do."""


def with_taps(program: Program) -> tuple[Program, list[str]]:
    """A program that returns its tapped values after its results, and their labels."""
    labels: list[str] = []

    def tapped(operations: list[ir.Operation], _: list[Tensor]) -> list[tuple[str, Tensor]]:
        for op in operations:
            if TAP in op.attributes:
                labels.append(ir.StringAttr(op.attributes[TAP]).value)
            elif len(op.regions):
                _warn_of_taps_inside(op)
        return [
            (f"tap.{index}", Tensor(op.results[0], current_builder()))
            for index, op in enumerate(op for op in operations if TAP in op.attributes)
        ]

    return with_extras(flat(program), tapped, donate=True), labels


def _warn_of_taps_inside(outer: ir.Operation) -> None:
    def visit(op: ir.Operation) -> ir.WalkResult:
        if TAP in op.attributes:
            label = ir.StringAttr(op.attributes[TAP]).value
            log.warning(
                "the tap %r is inside of a %s and shows nothing; tap what it returns", label, outer.name
            )
        return ir.WalkResult.ADVANCE

    outer.walk(visit)


class TappedExecutable:
    """An executable whose last results go to a callback instead of the caller.

    Arguments:
        inner: returns the tapped values after the results.
    """

    def __init__(self, inner: Executable, labels: Sequence[str], show: Show) -> None:
        self._inner = inner
        self._labels = labels
        self._show = show

    @property
    def memory(self) -> MemoryUse:
        """What one call takes, the tapped values included."""
        return self._inner.memory

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results; the taps are shown before this returns."""
        results = self._inner.run(buffers)
        count = len(results) - len(self._labels)
        for label, value in zip(self._labels, results[count:], strict=True):
            self._show(label, np.asarray(value))
        return results[:count]
