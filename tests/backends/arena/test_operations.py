"""Operations in the arena beside XLA and StableHLO's interpreter; NumPy's numbers at the edges are in `tests/ops/edges`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.autodiff.rows import ROWS as DERIVATIVES
from tests.autodiff.rows.normalization import GENERAL_BODIES, NORMALIZATION, OTHERS
from tests.backends.arena.lifetimes import problems_of
from tests.execution import run
from tests.interpreter import interpreted
from tests.ir.bare_operations import BARE
from tests.ir.every_operation import layers
from tests.rewrite.simplification.test_rows import CHANGED, cases, inputs, traced

import pcp
from pcp.backends import CompilationFailed, Target
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.lowerings.table import LOWERINGS
from pcp.ir.tree import flatten
from pcp.ops.record import RECORDS, Kind

ARENA = Target.of("arena:cpu")

REFUSED = {
    *("collective_permute", "custom_call", "custom_call with everything", "infeed", "outfeed", "recv", "rng"),
    *("rng_bit_generator", "send"),
}
"""Programs of `BARE` that speak to what lies outside, or draw from a generator of the machine's own."""
UNKNOWN_TO_XLA = {"collective_broadcast"}
KINDS_NOT_RUN = (Kind.replaced, Kind.unsupported, Kind.outside, Kind.broadcasting)
NOT_RUN = {"after_all", "collective_permute", "rng", "rng_bit_generator", "return"}


def arguments_of(program: pcp.Program) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (
            rng.integers(0, 2 if entry.spec.dtype == "bool" else 3, entry.spec.shape)
            if entry.spec.dtype.is_integer or entry.spec.dtype == "bool"
            else rng.uniform(0.3, 0.9, entry.spec.shape)
        ).astype(entry.spec.dtype.numpy)
        for entry in program.arguments
    ]


def assert_as_in_xla(program: pcp.Program, arrays: list[Any]) -> None:
    executable = ARENA.compile(program)
    assert isinstance(executable, ArenaExecutable)
    assert problems_of(executable) == []
    nested = program.argument_tree.unflatten(arrays)
    made, expected = (
        flatten(each)[0] for each in (pcp.plan(program, ARENA).run(*nested), run(program, *nested))
    )
    for one, other in zip(made, expected, strict=True):
        array = np.asarray(one)
        assert (array.shape, array.dtype) == (other.shape, other.dtype)
        near = {2: 1e-2, 4: 1e-4, 8: 1e-4 if array.dtype.kind == "c" else 1e-7}.get(
            array.dtype.itemsize, 1e-7
        )
        wide = np.complex128
        np.testing.assert_allclose(array.astype(wide), other.astype(wide), rtol=near, atol=near)


@pytest.mark.parametrize("name", sorted(BARE.keys() - REFUSED - UNKNOWN_TO_XLA))
def test_an_operation_with_its_attributes_left_out_is_that_of_xla(name: str) -> None:
    program = pcp.Program.parse(BARE[name])
    assert_as_in_xla(program, arguments_of(program))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_speaks_to_the_outside_is_refused(name: str) -> None:
    with pytest.raises(
        CompilationFailed, match=r"the arena cannot run stablehlo\.\w+ at .*: it .*; plan the pr"
    ):
        ARENA.compile(pcp.Program.parse(BARE[name]))


def test_options_are_refused() -> None:
    program = pcp.trace(pcp.tanh, pcp.spec((3,), "f32"))
    with pytest.raises(
        CompilationFailed, match="the arena was given the options a; it has none: leave them out"
    ):
        pcp.plan(program, "arena:cpu", options={"a": 1})


def _of_rows(rows: Any, gradients: bool) -> Iterator[tuple[str, pcp.Program, list[Any]]]:
    for number, row in enumerate(rows):
        if "custom_call" in row.rule or "broadcast_select" in row.rule:
            continue  # LAPACK of XLA's; a dialect of shapes
        rng = np.random.default_rng(number)
        values = [np.asarray(domain(rng)) for domain in row.domains]
        program = pcp.trace(row.function, *values)
        yield row.rule, program, values
        if gradients:
            gradient = pcp.vjp(program)
            yield f"{row.rule} gradient", gradient, [*values, *arguments_of(gradient)[len(values) :]]


def test_bodies_of_any_kind_are_run_as_by_xla() -> None:
    for _, program, arrays in _of_rows([*GENERAL_BODIES, *OTHERS, *NORMALIZATION], gradients=False):
        assert_as_in_xla(program, arrays)


@pytest.mark.long
def test_every_rule_of_differentiation_and_every_layer_is_run_as_by_xla() -> None:
    for _, program, arrays in _of_rows(DERIVATIVES, gradients=True):
        assert_as_in_xla(program, arrays)
    for _, program in layers():
        assert_as_in_xla(program, arguments_of(program))


@pytest.mark.parametrize(("name", "function", "types"), cases(CHANGED)[::4])
def test_small_programs_are_run_as_by_the_interpreter_of_stablehlo(
    name: str, function: Any, types: tuple[str, ...]
) -> None:
    program = traced(function, types)
    arrays = inputs(program, 0, special=False)
    made = flatten(pcp.plan(program, ARENA).run(*program.argument_tree.unflatten(arrays)))[0]
    for one, other in zip(made, interpreted(program, arrays), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.complex128),
            np.asarray(other, np.complex128),
            rtol=1e-5,
            atol=1e-6,
            err_msg=name,
        )


def test_every_operation_that_stays_in_a_program_has_a_form_in_the_arena() -> None:
    missing = {
        record.name.removeprefix("stablehlo.")
        for record in RECORDS.values()
        if record.kind not in KINDS_NOT_RUN and record.name.startswith("stablehlo.")
    } - {name.removeprefix("stablehlo.") for name in LOWERINGS}
    assert missing == NOT_RUN
