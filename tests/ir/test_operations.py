"""The flat list of operations agrees with the program and with the user's lines."""

from typing import Any

import pcp
from pcp.ir import Program
from pcp.ir.operations import operations_of


def body(x: Any, y: Any) -> Any:
    total = (x * y).sum(0)
    return total + 1.0


def test_every_operation_in_order_with_its_line() -> None:
    program = pcp.trace(body, pcp.spec((2, 3), "f32"), pcp.spec((2, 3), "f32"))
    found = operations_of(program)
    assert [op.name for op in found if op.depth == 0] == [
        "multiply", "constant", "reduce", "constant", "broadcast_in_dim", "add",
    ]  # fmt: skip
    multiply, _, reduce, inner, *_, add = found
    assert (multiply.operands, multiply.results) == ((0, 1), (2,))
    assert reduce.operands == (2, 3)
    assert (inner.name, inner.depth) == ("add", 1)
    assert inner.operands == (5, 6)
    assert add.operands[0] == reduce.results[0]
    assert [str(spec) for spec in multiply.specs] == ["f32[2,3]"]
    assert multiply.bytes == 24
    first = body.__code__.co_firstlineno
    assert [op.location for op in (multiply, reduce, add)] == [
        f"{__file__}:{first + line}, in body" for line in (1, 1, 2)
    ]
    assert str(multiply).startswith("%2 = multiply(%0, %1) -> f32[2,3]  # ")
    assert str(inner).startswith("  %7 = add(%5, %6)")


def test_calls_are_inlined() -> None:
    program = Program.parse(
        "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = call @f(%a) : (tensor<f32>) -> tensor<f32> %1 = stablehlo.negate %0 : tensor<f32>"
        " return %1 : tensor<f32> }"
        "func.func private @f(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = stablehlo.exponential %a : tensor<f32> return %0 : tensor<f32> }"
    )
    assert [(op.name, op.operands, op.results) for op in operations_of(program)] == [
        ("exponential", (0,), (1,)),
        ("negate", (1,), (2,)),
    ]


def test_values_that_are_no_tensors_of_static_shape_have_no_spec() -> None:
    program = Program.parse(
        "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = stablehlo.create_token : !stablehlo.token return %a : tensor<f32> }"
    )
    [token] = operations_of(program)
    assert token.specs == (None,)
    assert token.bytes == 0
    assert "-> ?" in str(token)
