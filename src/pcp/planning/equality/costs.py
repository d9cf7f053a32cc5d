"""What operations on matrices cost here: measured once for each of their shapes, and guessed where there is no time."""

import time
from collections.abc import Iterable

from pcp.backends import Target
from pcp.ir import DType, Program
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import undisturbed
from pcp.rewrite.equality import Operation
from pcp.rewrite.equality.emission import computed
from pcp.rewrite.equality.saturation import Node
from pcp.tracing import spec, trace

_SECONDS, _CALLS = 0.02, 5


class MeasuredCosts:
    """Seconds of operations.

    Arguments:
        bench: that measures.
        target: what operations are compiled for.
        dtype: of the matrices.
        seconds: after which nothing more is measured.
    """

    def __init__(self, bench: Bench, target: Target, dtype: DType, seconds: float) -> None:
        self._bench, self._target, self._dtype = bench, target, dtype
        self._ends = time.monotonic() + seconds
        self.measured: dict[Operation, float] = {}

    def __call__(self, operation: Operation) -> float:
        """Seconds of an operation; a guess, on the scale of what was measured, where it was not."""
        if operation in self.measured:
            return self.measured[operation]
        ratios = [seconds / each.estimate for each, seconds in self.measured.items()]
        scale = sorted(ratios)[len(ratios) // 2] if ratios else 1.0
        return scale * operation.estimate

    def measure(self, operations: Iterable[Operation]) -> bool:
        """Measure those that were not; whether there were any, and time for one of them."""
        found = False
        for operation in dict.fromkeys(operations):
            if operation in self.measured or time.monotonic() >= self._ends:
                continue
            alone = self._alone(operation)
            request = Request(
                alone,
                alone,
                "plain",
                inputs=Recipe(sets=1),
                target=self._target,
                calls=_CALLS,
                timing_seconds=_SECONDS,
            )
            self.measured[operation] = undisturbed(self._bench.measure(request).plain_seconds)
            found = True
        return found

    def _alone(self, operation: Operation) -> Program:
        numbers = (0, operation.result[operation.op == "Columns"])
        node = Node(operation.op, ("",) * len(operation.shapes), numbers)
        return trace(
            lambda *of: computed(node, list(of)), *(spec(shape, self._dtype) for shape in operation.shapes)
        )
