"""The fastest equal program is found by measuring, within tolerance and memory."""

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import pytest

import pcp
from pcp.backends import Target
from pcp.planning.equality import equal_program
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request

pytest.importorskip("egglog", reason="egglog is not installed")
TIMES = tuple(1e-3 + 1e-6 * count for count in range(9))
ROW = Measurement("s", "p", "h", "v", TIMES, TIMES, error=1e-7, plain_error=1e-7, peak_bytes=1000)


def chain(*factors: Any) -> Any:
    made = factors[0]
    for factor in factors[1:]:
        made = made @ factor
    return made


class FakeBench:
    """Operations alone take what they cost; whole programs what a test says, in turn."""

    def __init__(self, *wholes: Measurement) -> None:
        self.wholes = list(wholes)
        self.alone = 0
        self.tolerances: list[float | None] = []

    def measure(self, request: Request) -> Measurement:
        if request.path == "plain":
            self.alone += 1
            size = sum(math.prod(entry.spec.shape) for entry in request.subject.arguments)
            return replace(ROW, plain_seconds=tuple(1e-9 * size + each for each in TIMES))
        self.tolerances.append(request.tolerance)
        assert request.exact is not None
        return self.wholes.pop(0)


def program(*sizes: int) -> pcp.Program:
    return pcp.trace(chain, *(pcp.spec(shape, "f32") for shape in itertools.pairwise(sizes)))


def found(bench: FakeBench, **words: Any) -> Any:
    return equal_program(program(6, 5, 4, 3, 2), Target.of("cpu:0"), cast(Bench, bench), 1e-4, **words)


def faster(ratio: float, **more: Any) -> Measurement:
    return replace(ROW, seconds=tuple(ratio * each for each in TIMES), **more)


def test_the_fastest_that_is_right_and_fits_is_taken() -> None:
    bench = FakeBench(
        faster(0.5),
        replace(ROW, seconds=(), failure=Failure.inaccurate, detail="the error of result 0 is 0.1"),
        faster(0.3, peak_bytes=9000),
        faster(0.4),
    )
    made = found(bench, memory=5000)
    assert [each.refused for each in made.tried] == [
        "",
        "inaccurate: the error of result 0 is 0.1",
        "it takes 9000 bytes; 5000 are allowed",
        "",
    ]
    assert made.best is made.tried[3]
    assert made.program.digest == made.best.program.digest != program(6, 5, 4, 3, 2).digest
    assert bench.tolerances == [1e-4] * 4
    assert made.measured == bench.alone > 3


def test_the_program_stays_where_nothing_is_surely_faster() -> None:
    made = found(FakeBench(*[faster(0.99)] * 4))
    assert made.best is None
    assert made.program.digest == program(6, 5, 4, 3, 2).digest
    assert (
        "it takes 0.99 of the time of the plain program, which is not surely less than 0.98"
        in made.tried[0].refused
    )


def test_one_product_is_not_looked_at() -> None:
    given = program(4, 3, 2)
    assert equal_program(given, Target.of("cpu:0"), cast(Bench, FakeBench()), 1e-4).program is given


def test_operations_are_guessed_where_there_is_no_time() -> None:
    bench = FakeBench(*[faster(0.5)] * 4)
    assert found(bench, cost_seconds=0.0).measured == bench.alone == 0


def test_a_chain_that_ends_in_a_vector_becomes_fast() -> None:
    given = program(256, 256, 256, 256, 1)
    with Bench() as bench:
        made = equal_program(given, Target.of("cpu:0"), bench, 1e-4, most=2, seconds=0.3)
    assert made.best is not None
    assert made.best.row.ratio < 0.7
    assert made.best.row.error is not None
    assert made.best.row.error < 1e-5
