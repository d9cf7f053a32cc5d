"""Every operation at the edges of its types and shapes: NumPy's numbers, whatever the layout, simplified or not, by XLA and in
the arena.

The quick part takes this run's share of five element types and a few shapes; the long one is the whole product of operations,
element types, shapes and fillings. An operation that has no row in the tables of `tests/ops` has none here and fails.
"""

from typing import Any

import numpy as np
import pytest
from tests.execution import QUICK
from tests.ops.composed_rows import TESTED_ELSEWHERE
from tests.ops.edges.cases import EVERY, LAYOUTS, Case, cases_of, same
from tests.ops.rows import OWN_TEST
from tests.suite.share import part

import pcp
from pcp.ir import DType
from pcp.ir.tree import flatten
from pcp.rewrite.simplify import simplify
from pcp.tensor import OPERATIONS

ARENA = "arena:cpu"


def traced(cases: list[Case], apply: Any = lambda case, operands: case.row.apply(*operands)) -> pcp.Program:
    """One program of all cases."""
    given = [case.operands for case in cases]
    return pcp.trace(
        lambda given: [apply(case, operands) for case, operands in zip(cases, given, strict=True)],
        given,
        roles=("input",),
    )


def _planned(program: pcp.Program) -> pcp.Plan:
    return pcp.plan(program, cache=False, options=QUICK)


def differences(case: Case, result: Any, expected: Any) -> Any:
    """The places where a result is not NumPy's: another NaN, infinity or integer, or further away than the row allows."""
    array, wanted = np.asarray(result), np.asarray(expected)
    assert array.shape == wanted.shape, case.label
    if array.dtype.kind in "biu":
        return np.argwhere(array != wanted.astype(array.dtype))
    name = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
    own = name.get(array.dtype, array.dtype)
    limits = DTYPE_LIMITS[own]
    wide = array.astype(np.complex128)
    with np.errstate(all="ignore"):
        narrow = wanted.astype(array.dtype).astype(np.complex128)
        wanted = wanted.astype(np.complex128)
        scale = (
            np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
            if case.fill != "extreme"
            else np.maximum(np.abs(wanted), 1)
        )
        near = np.abs(wide - wanted) <= case.row.ulps * limits[0] * scale
        at_the_limit = np.isinf(wide) & (np.abs(wanted) >= limits[1] * (1 - case.row.ulps * limits[0]))
    same = near | at_the_limit | (np.isnan(wide) & np.isnan(narrow)) | (wide == narrow)
    return np.argwhere(~same)


DTYPE_LIMITS = {
    dtype.numpy: (step, largest)
    for dtype, step, largest in (
        (DType.bf16, 2.0**-7, 3.3895e38),
        (DType.f16, 2.0**-10, 65504.0),
        (DType.f32, 2.0**-23, float(np.finfo(np.float32).max)),
        (DType.f64, 2.0**-50, float(np.finfo(np.float64).max)),
    )
}
"""How far neighbours of 1 are apart, and the largest number."""


def complaints(cases: list[Case], results: Any) -> list[str]:
    """Which results are not NumPy's, and where they begin to differ."""
    found = []
    for case, result in zip(cases, results, strict=True):
        pairs = (
            zip(result, case.expected, strict=True)
            if isinstance(result, tuple)
            else [(result, case.expected)]
        )
        for made, wanted in pairs:
            places = differences(case, made, wanted)
            if len(places):
                place = tuple(places[0])
                numbers = f"{np.asarray(made)[place]} for {np.asarray(wanted)[place]}"
                found.append(f"{case.label}: {len(places)} differ, first at {place}: {numbers}")
    return found


def check(name: str, thorough: bool) -> None:
    cases = list(cases_of(name, thorough, of=1 if thorough else 3))
    program = traced(cases)
    operands = [case.operands for case in cases]
    plan = _planned(program)
    results = plan.run(operands)
    assert complaints(cases, results) == []
    in_arena = pcp.plan(program, ARENA).run(operands)
    assert complaints(cases, in_arena) == []
    plain = [np.asarray(leaf) for leaf in flatten(results)[0]]
    # How elements lie is nothing that an operation knows: together the operations of a run see every layout.
    for layout, laid in part(
        LAYOUTS.items(), 1 if thorough else len(LAYOUTS), lambda each: f"{name} {each[0]}"
    ):
        again = plan.run([[laid(np.asarray(x)) for x in given] for given in operands])
        for one, other in zip(plain, flatten(again)[0], strict=True):
            assert same(one, other), f"{name} {layout}"
    simpler = simplify(program)
    if simpler.digest == program.digest:  # the same program, which gives the same
        return
    # In the arena, which computes every operation as it is written, and compiles nothing; long tests also do so by XLA.
    simplified = pcp.plan(simpler, ARENA).run(operands)
    for one, other in zip(flatten(in_arena)[0], flatten(simplified)[0], strict=True):
        assert same(one, other), f"{name} simplified: {np.asarray(one)} and {np.asarray(other)}"
    if thorough:
        for one, other in zip(plain, flatten(_planned(simpler).run(operands))[0], strict=True):
            assert same(one, other), f"{name} simplified: {one} and {np.asarray(other)}"


@pytest.mark.parametrize("name", sorted(EVERY))
def test_it_computes_what_numpy_does_at_the_edges(name: str) -> None:
    check(name, thorough=False)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(EVERY))
def test_it_computes_what_numpy_does_at_every_edge(name: str) -> None:
    check(name, thorough=True)


def test_no_operation_is_without_edges() -> None:
    """Another name of an operation is the same function."""
    covered = set(EVERY) | OWN_TEST | TESTED_ELSEWHERE
    functions = {OPERATIONS[name] for name in covered}
    assert [name for name in OPERATIONS if OPERATIONS[name] not in functions] == []
    assert [name for name in EVERY if next(cases_of(name, thorough=False), None) is None] == []
