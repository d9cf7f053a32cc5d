"""Forms of a program that should be faster: by egglog, and by what operations on matrices cost here, which is measured once for
each of their shapes, and guessed where there is no time."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec

from pcp.ir import DType, Program
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.paths.kinds import EQUAL
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking, Here, Question
from pcp.planning.search.whole import Whole
from pcp.rewrite.equality import (
    Choice,
    Form,
    FormMismatch,
    Graph,
    Limits,
    Matrices,
    Operation,
    PartForm,
    Step,
    choices,
    form_of,
    is_written,
    made_by,
    matrices_of,
    operations_of,
    saturated,
    steps_as_operations,
)
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


_SETTLES = 8
_HOPELESS = 1.5
"""A part is not computed in a way whose operations take this many times as long, alone, as those that are written: a compiler
fuses some of them, and each has costs of its own alone that it has not in a program."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to compute parts of a program that are alike, the one first that should be the fastest.

    Arguments:
        parts: their numbers.
        graph: what was grown.
        plain: seconds of their operations as they are written, alone.
        ways: with the seconds of the operations of one part, alone.
        measured: how many operations were measured alone, or were known.
    """

    parts: tuple[int, ...]
    graph: Graph
    plain: float
    ways: tuple[tuple[PartForm, float], ...]
    measured: int

    @property
    def saves(self) -> float:
        """Seconds that the fastest way should save in all parts together."""
        return len(self.parts) * (self.plain - self.ways[0][1]) if self.ways else 0.0


@dataclass(slots=True)
class Forms:
    """What came of looking for faster forms.

    Arguments:
        forms: those that should be the fastest first.
        ways: of the parts.
    """

    forms: list[Form] = field(default_factory=list)
    ways: list[Ways] = field(default_factory=list)


def is_here() -> bool:
    """Whether egglog is installed."""
    return find_spec("egglog") is not None


def may_be_equal(whole: Whole, _: object) -> bool:
    """Whether some products of a program may be computed in another order, or joined."""
    program = whole.program
    return is_here() and b"dot_general" in program.bytecode and bool(matrices_of(program).parts)


def equal_forms(_: object, whole: Whole, evidence: Evidence) -> Asking[None]:
    """Show equal programs that should be faster, the fastest first."""
    with evidence.leaving(1 - evidence.strategy.for_costs, of=evidence.seconds_left):
        forms = yield from forms_of(whole.program, evidence)
    yield from ((EQUAL.move(form),) for form in forms.forms)


def forms_of(
    program: Program,
    evidence: Evidence,
    limits: Limits = Limits(),  # noqa: B008  (a frozen value)
    most: int = 4,
) -> Asking[Forms]:
    """Forms of a program that should be faster.

    Arguments:
        program: any; only its products of matrices, sums and transpositions are reordered.
        evidence: what is known of operations alone, and what measures them.
        limits: of each e-graph; after `seconds` in all no further one is begun.
        most: forms at most.

    Raises:
        EqualityUnavailable: egglog is not installed.
    """
    alike: dict[object, list[int]] = {}
    parts = matrices_of(program).parts
    for number, part in enumerate(parts):
        alike.setdefault(part.kind, []).append(number)
    ordered = sorted(alike.values(), key=lambda each: -len(each) * _guess(parts[each[0]]))
    forms, spent = Forms(), 0.0
    for numbers in ordered:
        if spent > limits.seconds:
            break
        ways = yield from _ways(parts[numbers[0]], numbers, evidence, limits, most)
        spent += ways.graph.seconds
        forms.ways.append(ways)
    forms.ways.sort(key=lambda each: -each.saves)
    by_digest: dict[str, Form] = {}
    for chosen in itertools.islice(_together([each for each in forms.ways if each.ways]), 2 * most):
        try:
            form, other = made_by(program, Form(tuple(sorted(chosen))))
        except FormMismatch:  # something would have to be computed before what it takes
            continue
        if other.digest != program.digest and len(by_digest) < most:
            by_digest.setdefault(other.digest, form)
    forms.forms = list(by_digest.values())
    return forms


def _together(ways: list[Ways]) -> Iterator[tuple[PartForm, ...]]:
    """The fastest ways of all parts, then those of some alone, and other ways."""
    if ways:
        yield tuple(each.ways[0][0] for each in ways)
    if len(ways) > 1:
        yield from ((each.ways[0][0],) for each in ways)
    for rank in range(1, max((len(each.ways) for each in ways), default=0)):
        yield tuple(each.ways[min(rank, len(each.ways) - 1)][0] for each in ways)


def _ways(part: Matrices, numbers: list[int], evidence: Evidence, limits: Limits, most: int) -> Asking[Ways]:
    graph = yield from Here("equal programs", lambda: saturated(part, limits)).asked()
    costs = MeasuredCosts(evidence, part.terms[-1].dtype)
    written = operations_of(part)
    chosen: list[Choice] = []
    for _ in range(_SETTLES):  # what was measured may make something else the cheapest
        chosen = choices(graph, costs, 2 * most)
        operations = [*written, *(op for each in chosen[:most] for op in each.operations(graph))]
        if not (yield from costs.measure(operations)):
            break
    forms = [form for each in chosen if not is_written(form := form_of(graph, each, numbers), part)]
    of_forms = {form: steps_as_operations(form, part) for form in forms}
    yield from costs.measure(op for form in forms[:most] for op in of_forms[form])
    plain = sum(map(costs, written))
    ways = {form: sum(map(costs, of_forms[form])) for form in forms}
    hopeful = sorted((cost, form) for form, cost in ways.items() if cost < _HOPELESS * plain)
    taken = tuple((form, cost) for cost, form in hopeful[:most])
    return Ways(tuple(numbers), graph, plain, taken, len(costs.measured))


def _guess(part: Matrices) -> float:
    return sum(each.estimate for each in operations_of(part))
