"""Tracing: functions become Programs with names, nesting, roles and donations."""

import gc
import resource
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import InvalidShape, Program, Role, TreeMismatch, UnknownDType
from pcp.tensor import DTypeMismatch, ShapeMismatch
from pcp.tracing import InvalidArgument
from tests.execution import run

F = pcp.spec((3,), "f32")
Pair = namedtuple("Pair", ["left", "right"])


def test_names_follow_the_parameters_and_the_nesting() -> None:
    def loss(params: dict[str, Any], tokens: Any, scale: Any = 1.0) -> Any:
        return {"loss": params["layers"][0]["w"] * scale, "pair": Pair(tokens, None)}

    program = pcp.trace(loss, {"layers": [{"w": F}], "b": F}, pcp.spec((2,), "i32"), pcp.spec((), "f32"))
    assert [entry.name for entry in program.arguments] == ["params.b", "params.layers.0.w", "tokens", "scale"]
    assert [entry.name for entry in program.results] == ["loss", "pair.left"]
    assert program.unflatten_results([1, 2]) == {"loss": 1, "pair": (2, None)}


def test_parameters_without_names_get_numbers() -> None:
    program = pcp.trace(lambda x, *xs: x + xs[0], F, F)
    assert [entry.name for entry in program.arguments] == ["x", "1"]


def test_arrays_are_weights_and_specs_inputs() -> None:
    program = pcp.trace(lambda w, x, n: w * x * n, np.ones(3, np.float32), F, 2.0)
    assert [entry.role for entry in program.arguments] == [Role.weight, Role.input, Role.input]
    assert [str(entry.spec) for entry in program.arguments] == ["f32[3]", "f32[3]", "f32[]"]
    again = pcp.trace(lambda w, x: w * x, np.ones(3), F, roles=("input", "weight"))
    assert [entry.role for entry in again.arguments] == [Role.input, Role.weight]
    assert [
        entry.role for entry in pcp.trace(lambda t: t["a"], pcp.specs_of({"a": np.ones(2)})).arguments
    ] == ["weight"]


def test_weights_are_not_in_the_program() -> None:
    large = np.random.default_rng(0).standard_normal((500, 500)).astype(np.float32)
    assert len(pcp.trace(lambda w: w.sum(), large).bytecode) < 3000
    assert len(pcp.trace(lambda: large.sum() + large).bytecode) > 1_000_000


def test_results_may_be_arrays_and_numbers() -> None:
    program = pcp.trace(lambda x: (x, 2, 1.5, True, np.arange(3, dtype=np.int8)), F)
    assert [str(entry.spec) for entry in program.results] == ["f32[3]", "i32[]", "f32[]", "bool[]", "i8[3]"]
    _, two, half, yes, array = pcp.plan(program).run(np.ones(3, np.float32))
    assert (int(two), float(half), bool(yes)) == (2, 1.5, True)
    np.testing.assert_array_equal(array, [0, 1, 2])


def test_one_value_returned_twice_and_an_argument_returned() -> None:
    x = np.array([1, 2, 3], np.float32)
    first, second, third = pcp.plan(pcp.trace(lambda x: (x, x + 1, x), F)).run(x)
    for result, expected in ((first, x), (second, x + 1), (third, x)):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text",), "str was given as an argument of trace; give an array or pcp.spec"),
        ((object(),), "object was given as an argument of trace"),
        (({"a": [F, "x"]},), "str was given as an argument of trace"),
    ],
)
def test_arguments_without_a_shape_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        pcp.trace(lambda x: x, *arguments)


def test_results_that_are_no_tensors_are_refused() -> None:
    with pytest.raises(
        InvalidArgument, match="the traced function returned str; return Tensors, arrays or numbers"
    ):
        pcp.trace(lambda x: (x, "done"), F)


def test_specs_are_checked_when_they_are_made() -> None:
    with pytest.raises(UnknownDType, match="'f33' is not an element type"):
        pcp.spec((3,), "f33")
    with pytest.raises(InvalidShape, match="has the size -3"):
        pcp.spec((-3,), "f32")
    with pytest.raises(ValueError, match="'boss' is not a role; expected 'weight'"):
        pcp.spec((3,), "f32", "boss")


def test_an_error_of_the_function_itself_comes_out_as_it_is() -> None:
    def broken(_: pcp.Tensor) -> pcp.Tensor:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        pcp.trace(broken, F)
    pcp.trace(lambda x: x, F)  # nothing is left behind


S = pcp.spec((3,), "f32", "state")


def test_states_are_donated_to_their_successors() -> None:
    program = pcp.trace(
        lambda s, x, t: ({"n": s["n"] + t, "m": s["m"]}, [x], x.sum()),
        {"m": S, "n": S},
        F,
        pcp.spec((), "f32"),
    )
    assert [entry.alias for entry in program.arguments] == [0, 1, None, None]
    two = pcp.trace(lambda a, x, b: (a + x, [b[0] * 2], x), S, F, [S])
    assert [entry.alias for entry in two.arguments] == [0, None, 1]
    alone = pcp.trace(lambda s: {"n": s["n"] + 1}, {"n": S})
    assert [entry.alias for entry in alone.arguments] == [0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s: s.sum(), r"a state of f32\[3\] was returned as f32\[\]; its type must not change"),
        (lambda s: [s], r"argument 0 is state, so the function must return its successor, nested like it"),
        (lambda s: (1.0, s), r"a state of f32\[3\] was returned as f32\[\]"),
        (lambda s: {"new": s}, r"argument 0 is state, .*; it returned \{new: \*\}"),
    ],
)
def test_a_state_without_a_successor_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        pcp.trace(function, S)


def test_programs_are_called_inside_programs() -> None:
    inner = pcp.trace(lambda p, x: {"y": p["w"] * x}, {"w": F}, F)
    program = pcp.trace(lambda x: pcp.call(inner, {"w": x}, np.array([1, 2, 3], np.float32))["y"] + 1, F)
    x = np.array([4, 5, 6], np.float32)
    np.testing.assert_array_equal(pcp.plan(program).run(x), x * [1, 2, 3] + 1)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda p, x: pcp.call(p, x),
            TreeMismatch,
            "argument is a tuple of 1, but the program expects a tuple of 2",
        ),
        (lambda p, x: pcp.call(p, [x], x), TreeMismatch, r"argument.0 is a list of 1"),
        (
            lambda p, x: pcp.call(p, x[:2], x),
            ShapeMismatch,
            r"call: argument x has shape \(2,\); the program expects f32\[3\]",
        ),
        (
            lambda p, x: pcp.call(p, x.astype("bf16"), x),
            DTypeMismatch,
            r"call: argument x has element type bf16; the program expects f32\[3\]",
        ),
    ],
)
def test_calls_are_checked(function: Any, error: type[Exception], message: str) -> None:
    inner = pcp.trace(lambda x, y: x + y, F, F)
    with pytest.raises(error, match=message):
        pcp.trace(lambda x: function(inner, x), F)


def test_a_foreign_program_is_called_like_any_other() -> None:
    foreign = Program.parse(
        "func.func @anything(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {"
        " %0 = call @twice(%a) : (tensor<3xf32>) -> tensor<3xf32> return %0, %a : tensor<3xf32>, tensor<3xf32> }"
        "func.func private @twice(%a: tensor<3xf32>) -> tensor<3xf32> {"
        " %0 = stablehlo.add %a, %a : tensor<3xf32> return %0 : tensor<3xf32> }"
    )
    program = pcp.trace(lambda x: sum(pcp.call(foreign, x)), F)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(pcp.plan(program).run(x), 3 * x)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_tracing_many_times_does_not_leak() -> None:
    def build() -> None:
        pcp.trace(lambda x: ((x @ x.T) * 2 + 1).sum(), pcp.spec((8, 8), "f32"))

    for _ in range(100):
        build()
    gc.collect()
    before = resident_bytes()
    for _ in range(400):
        build()
    gc.collect()
    assert resident_bytes() - before < 400 * 5000  # a leaked module takes more


def selection(order: str) -> pcp.Program:
    """The two approximately largest, or smallest, elements, by a custom call that names a function of its module."""
    return pcp.Program.parse(f"""module {{
      func.func @before(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {{
        %p = stablehlo.compare {order}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        return %p : tensor<i1>
      }}
      func.func public @main(%x: tensor<5xf32>) -> tensor<2xf32> {{
        %places = stablehlo.iota dim = 0 : tensor<5xi32>
        %none = stablehlo.constant dense<-1> : tensor<i32>
        %worst = stablehlo.constant dense<{"0xFF800000" if order == "GT" else "0x7F800000"}> : tensor<f32>
        %r:2 = stablehlo.custom_call @ApproxTopK(%x, %places, %worst, %none) {{called_computations = [@before],
          mhlo.backend_config = {{aggregate_to_topk = true, is_fallback = true, recall_target = 0.95 : f32,
          reduction_dim = 0 : i64, reduction_input_size_override = -1 : i64, top_k = 2 : i64}}}}
          : (tensor<5xf32>, tensor<5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
        return %r#0 : tensor<2xf32>
      }}
    }}""")


def test_a_called_program_brings_the_functions_that_it_names() -> None:
    largest, smallest = selection("GT"), selection("LT")
    x = np.array([3, 1, 5, 2, 4], np.float32)

    def function(x: pcp.Tensor) -> tuple[pcp.Tensor, ...]:
        return pcp.call(largest, x), pcp.call(smallest, x), pcp.call(largest, -x)

    program = pcp.trace(function, x)
    assert program.text.count("func.func private @before") == 2
    first, second, third = run(program, x)
    np.testing.assert_array_equal(np.sort(first), [4, 5])
    np.testing.assert_array_equal(np.sort(second), [1, 2])
    np.testing.assert_array_equal(np.sort(third), [-2, -1])


def test_a_called_program_may_hold_composites() -> None:
    inner = pcp.Program.parse("""module {
      func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
        %y = stablehlo.add %x, %x : tensor<2xf32>
        return %y : tensor<2xf32>
      }
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %y = stablehlo.composite "mine.twice" %x {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
        return %y : tensor<2xf32>
      }
    }""")
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run(pcp.trace(lambda x: pcp.call(inner, x) + 1, x), x), [3, 5])
