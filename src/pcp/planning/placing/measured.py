"""Times of operations and of whole programs in several places, from the database or measured now."""

import hashlib
import math
import time
from collections.abc import Sequence

import numpy as np

from pcp.backends import Target
from pcp.backends.regions import copied
from pcp.ir import DType, Program, TensorSpec
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.placing.cheapest import CopyCost
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question

TIMING_SECONDS = 0.1
"""How long one operation is timed alone."""
CALLS = 3
SIZES = (1 << 10, 1 << 20)
"""Elements of the arrays by which copies are timed."""
REPEATS = 5


def measured_operation(program: Program, name: str, other: Target, evidence: Evidence) -> Asking[Answer]:
    """One operation elsewhere in turn with itself on the target of the search; None if there is no time.

    Arguments:
        program: the operation alone.
        name: what it is called.
    """

    def request() -> Request:
        return Request(
            program,
            program,
            f"{name} on {other}",
            inputs=Recipe(sets=1, ranges=index_ranges(program)),
            target=evidence.target,
            calls=CALLS,
            timing_seconds=TIMING_SECONDS,
            elsewhere=other,
        )

    place = f"{other} {hardware_of(other).digest} {versions(other.backend)}"
    return (
        yield from Question(
            hashlib.sha256(f"{program.digest} alone and on {place}".encode()).hexdigest(),
            f"{name} on {other}",
            request,
            enough=lambda row: row.failure is not None or bool(row.seconds),
            what=f"{name} on {other}",
            about=f"one {name}, on {other}",
        ).asked()
    )


def copy_costs(places: Sequence[Target]) -> dict[tuple[int, int], CopyCost]:
    """What copies between places cost, timed now in this process: some milliseconds for each pair.

    Where two share their arrays nothing is copied, and the time of the smallest copy stands for that of beginning a region.
    """
    costs = {}
    for source, one in enumerate(places):
        for place, other in enumerate(places):
            if source == place:
                continue
            if one.shares_arrays_with(other):
                costs[source, place] = CopyCost(_copy_seconds(one, other, SIZES[0]), math.inf)
                continue
            small, large = (_copy_seconds(one, other, size) for size in SIZES)
            rate = (SIZES[1] - SIZES[0]) * DType.f32.itemsize / max(large - small, 1e-9)
            costs[source, place] = CopyCost(small, rate)
    return costs


def _copy_seconds(source: Target, place: Target, size: int) -> float:
    spec = TensorSpec((size,), DType.f32)
    array = source.place(np.zeros(size, np.float32), spec)
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        place.runner.wait([copied(array, spec, place)])
        best = min(best, time.perf_counter() - began)
    return best
