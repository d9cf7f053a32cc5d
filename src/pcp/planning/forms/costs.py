"""What operations on matrices cost here: measured once for each of their shapes, and guessed where there is no time."""

from collections.abc import Iterable

from pcp.ir import DType, Program
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking, Question
from pcp.rewrite.equality import Operation, Step
from pcp.rewrite.equality.emission import computed
from pcp.tracing import spec, trace

_SECONDS, _CALLS = 0.02, 5
LABEL = "as written"
"""What the measurements are called in the database."""


class MeasuredCosts:
    """Seconds of operations.

    Arguments:
        evidence: that knows and measures.
        dtype: of the matrices.
    """

    def __init__(self, evidence: Evidence, dtype: DType) -> None:
        self._evidence, self._dtype = evidence, dtype
        self.measured: dict[Operation, float] = {}

    def __call__(self, operation: Operation) -> float:
        """Seconds of an operation; a guess, on the scale of what was measured, where it was not."""
        if operation in self.measured:
            return self.measured[operation]
        ratios = [seconds / each.estimate for each, seconds in self.measured.items()]
        scale = sorted(ratios)[len(ratios) // 2] if ratios else 1.0
        return scale * operation.estimate

    def measure(self, operations: Iterable[Operation]) -> Asking[bool]:
        """Measure those that were not; whether there were any, and time for one of them."""
        has_measured = False
        for operation in dict.fromkeys(operations):
            if operation in self.measured:
                continue
            alone = self._alone(operation)
            row = yield from Question(
                alone.digest,
                LABEL,
                lambda alone=alone: self._request(alone),  # type: ignore[misc]  # mypy infers no type of a default
                enough=lambda row: bool(row.plain_seconds) or row.failure is not None,
                what=f"{operation.op} of {operation.shapes} alone",
                about=f"{operation.op} of {operation.shapes}",
            ).asked()
            if row is None:
                break
            if row.plain_seconds:
                self.measured[operation] = undisturbed(row.plain_seconds)
                has_measured = True
        return has_measured

    def _request(self, alone: Program) -> Request:
        return Request(
            alone,
            alone,
            LABEL,
            inputs=Recipe(sets=1),
            target=self._evidence.target,
            calls=_CALLS,
            timing_seconds=_SECONDS,
        )

    def _alone(self, operation: Operation) -> Program:
        is_slice, end = operation.op in ("Columns", "Rows"), operation.result[operation.op == "Columns"]
        step = Step(operation.op, (0,) * len(operation.shapes), (0, end) if is_slice else ())
        return trace(
            lambda *of: computed(step, list(of)), *(spec(shape, self._dtype) for shape in operation.shapes)
        )
