"""The fastest of all programs that are equal by algebra: by measured costs of operations, then by times of the whole."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pcp.backends import Target
from pcp.ir import DType, Program
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning.equality.costs import MeasuredCosts
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import is_faster_in
from pcp.rewrite.equality import Choice, Graph, Limits, Matrices, choices, emitted, matrices_of, saturated

MARGIN = 0.02
"""The least gain, as a part of the time, as planning asks for."""
_LARGE = 1 << 24
"""Elements of arguments and results from which on float64 is not computed, and errors are those from the plain program."""
_SETTLES = 8


@dataclass(frozen=True, slots=True)
class Tried:
    """One equal program, as it was measured.

    Arguments:
        program: another form of what was asked about.
        operations: what it computes of matrices, by name, in order.
        cost: seconds of these operations alone.
        row: times beside the plain program's, error, memory, or the reason of a failure.
        refused: why it may not be taken; empty if it may.
    """

    program: Program
    operations: tuple[str, ...]
    cost: float
    row: Measurement
    refused: str


@dataclass(frozen=True, slots=True)
class Found:
    """What came of looking for a faster equal program.

    Arguments:
        program: the fastest; the one that was asked about, if no other is surely faster.
        tried: what was measured, the least cost first.
        graph: what was grown; None where there are not two products.
        measured: how many operations were measured alone.
        best: that of `tried` which was taken.
    """

    program: Program
    tried: tuple[Tried, ...] = ()
    graph: Graph | None = None
    measured: int = 0
    best: Tried | None = None


def equal_program(
    program: Program,
    target: Target,
    bench: Bench,
    tolerance: float,
    *,
    limits: Limits = Limits(),  # noqa: B008  (a frozen value)
    memory: int | None = None,
    most: int = 4,
    cost_seconds: float = 20.0,
    seconds: float = 1.0,
    progress: Callable[[str], object] = lambda words: None,  # noqa: ARG005  (says nothing)
) -> Found:
    """The fastest equal program whose results are within a tolerance.

    Arguments:
        program: any Program; only its products of matrices, sums and transpositions are reordered.
        target: what it is compiled for.
        bench: that measures.
        tolerance: the largest error of any result against float64.
        limits: of the e-graph.
        memory: bytes that a call may take; None for any.
        most: programs that are measured.
        cost_seconds: in which operations may be measured alone.
        seconds: that a program is timed beside the plain one.
        progress: called with what is done next.

    Raises:
        EqualityUnavailable: egglog is not installed.
        PlainProgramFailed: the program does not run.
    """
    matrices = matrices_of(program)
    if matrices.products < 2 or not matrices.roots:
        return Found(program)
    graph = saturated(matrices, limits)
    costs = MeasuredCosts(bench, target, _dtype_of(program, matrices), cost_seconds)
    progress("measuring operations")
    chosen: list[Choice] = []
    for _ in range(_SETTLES):  # what was measured may make something else the cheapest
        chosen = choices(graph, costs, 2 * most)
        if not costs.measure(op for each in chosen[:most] for op in each.operations(graph)):
            break
    tried: dict[str, Tried] = {}
    for choice in chosen:
        made = emitted(program, matrices, graph, choice)
        if made is None or made.digest in tried or made.digest == program.digest or len(tried) == most:
            continue
        progress(f"measuring an equal program of {len(choice.nodes)} matrices")
        row = bench.measure(_request(program, made, target, tolerance, seconds))
        names = tuple(op.op for op in choice.operations(graph))
        tried[made.digest] = Tried(made, names, choice.cost, row, _refusal(row, memory))
    sound = [each for each in tried.values() if not each.refused]
    best = min(sound, key=lambda each: each.row.ratio, default=None)
    found = program if best is None else best.program
    return Found(found, tuple(tried.values()), graph, len(costs.measured), best)


def _dtype_of(program: Program, matrices: Matrices) -> DType:
    """The element type of the first root."""
    module = program.module()
    inline_calls(module)
    (index, which), _ = matrices.roots[0]
    operations = list(entry_block(module).operations)
    return spec_of(operations[index].operation.results[which].type).dtype


def _request(program: Program, made: Program, target: Target, tolerance: float, seconds: float) -> Request:
    specs = [*(entry.spec for entry in program.arguments), *(entry.spec for entry in program.results)]
    size = sum(each.size for each in specs)
    return Request(
        program,
        made,
        made.digest,
        exact=widened(program) if size <= _LARGE else None,
        inputs=Recipe(ranges=index_ranges(program)),
        target=target,
        tolerance=tolerance,
        timing_seconds=seconds,
    )


def _refusal(row: Measurement, memory: int | None) -> str:
    if row.failure is not None:
        return f"{row.failure}: {row.detail}"
    if memory is not None and (row.peak_bytes or 0) > memory:
        return f"it takes {row.peak_bytes} bytes; {memory} are allowed"
    if not is_faster_in(row.blocks, MARGIN):
        ratio = "no time" if math.isinf(row.ratio) else f"{row.ratio:.2f} of the time"
        return f"it takes {ratio} of the plain program, which is not surely less than {1 - MARGIN:g}"
    return ""
