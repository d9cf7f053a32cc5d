"""The driver of rewrites: order, regions, what is left behind, and rows that do not end."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir.bindings import ir
from pcp.ops.elementwise import negate
from pcp.rewrite import Effect, RewriteDiverges, Row, rewrite
from pcp.tensor import Tensor, current_builder
from tests.execution import run


def tensors(op: ir.Operation) -> list[Tensor]:
    return [Tensor(value, current_builder()) for value in op.operands]


def twice(x: Tensor) -> Tensor:
    return negate(negate(x))


# -(-x) = x
TWICE_NEGATED = Row(
    "twice_negated",
    "stablehlo.negate",
    Effect.exact,
    lambda op: (
        [Tensor(op.operands[0].owner.operation.operands[0], current_builder())]
        if isinstance(op.operands[0].owner, ir.OpView | ir.Operation)
        and op.operands[0].owner.operation.name == "stablehlo.negate"
        else None
    ),
)
# a + b = b + a, for ever
FLIP = Row("flip", "stablehlo.add", Effect.exact, lambda op: [tensors(op)[1] + tensors(op)[0]])
# a + b = -(-a - b)
AS_DIFFERENCE = Row(
    "as_difference",
    "stablehlo.add",
    Effect.exact,
    lambda op: [negate(negate(tensors(op)[0]) - tensors(op)[1])],
)


def test_rows_are_applied_until_none_matches() -> None:
    program = pcp.trace(lambda x: twice(twice(-x)), pcp.spec((3,), "f32"))
    found = rewrite(program, [TWICE_NEGATED])
    assert found.text.count("stablehlo.negate") == 1
    x = np.random.default_rng(0).normal(size=3).astype(np.float32)
    np.testing.assert_array_equal(run(found, x), -x)


def test_a_row_sees_what_another_has_made() -> None:
    program = pcp.trace(lambda x, y: -(x + y), pcp.spec((), "f64"), pcp.spec((), "f64"))
    found = rewrite(program, [TWICE_NEGATED, AS_DIFFERENCE])
    assert found.text.count("stablehlo.negate") == 1
    assert "stablehlo.add" not in found.text
    assert run(found, 2.0, 0.5) == -2.5


def test_operations_in_regions_are_rewritten() -> None:
    def loop(x: pcp.Tensor) -> Any:
        return pcp.fori_loop(0, 2, lambda _, c: pcp.cond(c[0] > 0, lambda: twice(c), lambda: c * 2), x)

    program = pcp.trace(loop, pcp.spec((2,), "f64"))
    found = rewrite(program, [TWICE_NEGATED])
    assert "negate" not in found.text
    np.testing.assert_array_equal(run(found, np.array([-1.0, 2.0])), [-4, 8])


def test_the_signature_stays() -> None:
    program = pcp.trace(
        lambda params, x: {"y": twice(x) * params["w"]}, {"w": np.ones(2)}, pcp.spec((2,), "f64")
    )
    found = rewrite(program, [TWICE_NEGATED])
    assert (found.arguments, found.results) == (program.arguments, program.results)
    assert (found.argument_tree, found.result_tree) == (program.argument_tree, program.result_tree)


def test_a_program_that_no_row_matches_is_returned_as_it_is() -> None:
    program = pcp.trace(lambda x: -x, pcp.spec((), "f32"))
    assert rewrite(program, [TWICE_NEGATED]) is program


def test_the_given_program_does_not_change() -> None:
    program = pcp.trace(twice, pcp.spec((), "f32"))
    text = program.text
    rewrite(program, [TWICE_NEGATED])
    assert program.text == text


def test_rows_without_end_are_stopped() -> None:
    program = pcp.trace(lambda x, y: x + y, pcp.spec((), "f32"), pcp.spec((), "f32"))
    with pytest.raises(
        RewriteDiverges, match="rewrites by 'flip' did not end; its result, or the result of another row"
    ):
        rewrite(program, [FLIP])
