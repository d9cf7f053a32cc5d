"""What is asked where a kernel is judged on a region, and how wrong it may be there.

A region is judged in one way, wherever it is from: a site of a program, a problem of a family, a gradient of one.
"""

import math
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.kernels import Claims
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.measuring.at_site import TIMES_PLAIN
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.measuring.request import ProgramText, PythonFunction, Request
from pcp.planning.plan import plan
from pcp.rewrite.row import Effect

SECONDS = 1.5
"""How long a candidate and the region are timed in turn, in one block."""
LEAST = 1e-5
"""The error that another order of sums explains in any case."""
SETS = 2
"""Lists of normal operands that a kernel is judged on."""
HUGE = 1 << 24
"""Elements of all arrays from which on the region itself says what is right: float64 would take too long."""

Made = Program | PythonFunction | ProgramText
"""What a kernel from outside is, where it is run."""


def least_limit(plain_error: float | None) -> float:
    """The error that another order of sums explains, from the error of the region itself."""
    return max(LEAST, TIMES_PLAIN * (plain_error or 0.0))


def limit_of(candidate: Candidate, problem: Problem, plain: Request, bench: Bench) -> float:
    """The largest error that is admitted on a problem; 0 asks for the same bits.

    Arguments:
        plain: asks for the error of the region itself, which is measured where that counts.

    Raises:
        PlainProgramFailed: the region itself does not run.
    """
    claimed = candidate.claimed(problem)
    if candidate.effect is Effect.exact:
        return 0.0
    if candidate.effect is Effect.lowers_precision and claimed is not None:
        return claimed
    return min(least_limit(bench.measure(plain).least_plain), claimed or math.inf)


def examples(region: Program, sets: int, seed: int = 0) -> list[tuple[list[Any], list[Any]]]:
    """Lists of operands, each with what the region is for them in float64."""
    exact, recipe = plan(widened(region)), Recipe(seed, sets, ranges=site_ranges(region))
    pairs = []
    for index in range(sets):
        operands = random_arguments(region.arguments, recipe, index)
        results, _ = flatten(exact.run(*widened_arrays(region.arguments, operands)))
        pairs.append((operands, [np.asarray(each) for each in results]))
    return pairs


def request_of(
    region: Program,
    made: Made,
    label: str,
    target: Target,
    seconds: float = 0.0,
    site: Claims | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> Request:
    """What is asked of a kernel beside the region that it claims to compute.

    Arguments:
        seconds: that both are timed in turn.
        label, site, tolerance: as of `Request`.
        seed: of the operands.
    """
    sides = (region.arguments, region.results)
    elements = sum(entry.spec.size for side in sides for entry in side)
    return Request(
        region,
        made,
        label,
        exact=widened(region) if elements <= HUGE else None,
        inputs=Recipe(seed, SETS, ranges=site_ranges(region)),
        target=target,
        tolerance=tolerance,
        timing_seconds=seconds,
        site=site,
    )
