"""A Plan runs a Program: nested arrays in, jax arrays out, state donated, weights bound."""

import logging
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.backends.xla import XLABackend
from pcp.ir import DType, Role, TensorSpec, TreeMismatch
from pcp.planning.arguments import (
    ArgumentCountMismatch,
    ArgumentDTypeMismatch,
    ArgumentShapeMismatch,
    DonatedArray,
)
from pcp.planning.compiled import CannotBind, DonatedTwice


def counter_step(state: dict[str, Any], x: pcp.Tensor) -> tuple[dict[str, Any], pcp.Tensor]:
    return {"sum": state["sum"] + x, "count": state["count"] + 1}, (state["sum"] * x).sum()


@pytest.fixture(scope="module")
def step() -> pcp.Program:
    state = {"sum": pcp.spec((4,), "f32", "state"), "count": pcp.spec((), "i32", "state")}
    return pcp.trace(counter_step, state, pcp.spec((4,), "f32"))


@pytest.fixture
def state() -> dict[str, Any]:
    return {"sum": np.random.default_rng(0).standard_normal(4).astype(np.float32), "count": np.int32(3)}


X = np.random.default_rng(1).standard_normal(4).astype(np.float32)


def test_nested_numpy_in_nested_jax_out(step: pcp.Program, state: dict[str, Any]) -> None:
    plan = pcp.plan(step)
    new, product = plan.run(state, X)
    assert sorted(new) == ["count", "sum"]
    assert isinstance(new["sum"], jax.Array)
    np.testing.assert_array_equal(new["sum"], state["sum"] + X)
    assert int(new["count"]) == 4
    np.testing.assert_allclose(product, (state["sum"] * X).sum(), rtol=1e-5)


def test_the_state_it_returned_goes_in_again(step: pcp.Program, state: dict[str, Any]) -> None:
    plan = pcp.plan(step)
    expected = state["sum"]
    current = state
    for _ in range(5):
        current, _ = plan.run(current, jnp.asarray(X))
        expected = expected + X
    np.testing.assert_array_equal(current["sum"], expected)
    assert int(current["count"]) == 8


def test_numpy_memory_is_never_written_to_nor_read_after_the_call(step: pcp.Program) -> None:
    plan = pcp.plan(step)
    raw = np.zeros(64, np.float32)
    offset = (
        -(raw.ctypes.data // 4) % 16
    )  # 64-byte aligned, which is when XLA would use the memory where it lies
    aligned = raw[offset : offset + 4]
    aligned[:] = [1, 2, 3, 4]
    given = {"sum": aligned, "count": np.int32(0)}
    new, _ = plan.run(given, aligned)
    new, _ = plan.run(new, X)
    np.testing.assert_array_equal(aligned, [1, 2, 3, 4])
    bound = pcp.plan(pcp.trace(lambda w, x: w * x, aligned, pcp.spec((4,), "f32"))).bind(aligned)
    aligned[:] = 9
    np.testing.assert_array_equal(bound.run(np.ones(4, np.float32)), [1, 2, 3, 4])


def test_only_what_no_call_consumes_may_share_the_callers_memory(
    step: pcp.Program, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[tuple[TensorSpec, bool]] = []
    place = XLABackend.place

    def recorded(self: XLABackend, array: Any, spec: TensorSpec, device: Any, *, alias: bool) -> Any:
        shared.append((spec, alias))
        return place(self, array, spec, device, alias=alias)

    monkeypatch.setattr(XLABackend, "place", recorded)
    pcp.plan(step).run(state, X)
    assert [alias for _, alias in shared] == [False, False, True]


@pytest.mark.parametrize("dtype", list(DType))
def test_every_element_type_goes_through_unchanged(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 256, (3, dtype.itemsize), np.uint8)
    array = (bits[:, 0] > 99) if dtype is DType.bool else bits.reshape(-1).view(dtype.numpy)
    if dtype.bits < 8:  # the rest of the byte means nothing
        array = array.astype(np.int8).astype(dtype.numpy)
    plan = pcp.plan(pcp.trace(lambda x: x, pcp.spec((3,), dtype)), cache=False)
    result = plan.run(array)
    assert result.dtype == dtype.numpy
    assert np.asarray(result).tobytes() == array.tobytes()
    assert np.asarray(plan.run(result)).tobytes() == array.tobytes()


def test_float64_needs_no_switch_and_leaves_none_set() -> None:
    third = np.float64(1) / 3
    result = pcp.plan(pcp.trace(lambda x: x + 1e-12, pcp.spec((), "f64"))).run(third)
    assert result.dtype == np.float64
    assert float(result) == third + 1e-12
    assert not jax.config.jax_enable_x64
    assert jnp.ones(2).dtype == np.float32


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 0)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2.5, np.float32)
    result = pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec(shape, "f32")), cache=False).run(x)
    np.testing.assert_array_equal(result, x + 1)


def test_arrays_of_the_other_byte_order() -> None:
    """The order of bytes is no part of an element type, neither of an argument nor of a constant."""
    x = np.random.default_rng(4).standard_normal((4, 6)).astype(np.float32)
    other = x.astype(x.dtype.newbyteorder())
    plan = pcp.plan(pcp.trace(lambda y: (y, np.asarray(other)), other, roles=("input",)), cache=False)
    assert plan.run(other)[0].dtype == np.float32
    for made in plan.run(other):
        np.testing.assert_array_equal(made, x)


def test_arrays_that_are_not_contiguous() -> None:
    x = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    plan = pcp.plan(pcp.trace(lambda x: x * 2, pcp.spec((6, 2), "f32")), cache=False)
    np.testing.assert_array_equal(plan.run(x.T[:, ::2]), x.T[:, ::2] * 2)


def test_python_numbers_are_scalars_of_the_expected_type() -> None:
    plan = pcp.plan(pcp.trace(lambda x, i: x * i, pcp.spec((), "f64"), pcp.spec((), "u8")), cache=False)
    assert float(plan.run(0.1, 3)) == 0.1 * 3
    with pytest.raises(ArgumentDTypeMismatch, match="argument i is 300, which u8 does not hold"):
        plan.run(0.1, 300)
    with pytest.raises(ArgumentDTypeMismatch, match="argument i has element type float64"):
        plan.run(0.1, 2.5)


Cell = namedtuple("Cell", ["h", "c"])


def test_named_tuples_come_out_and_go_in_again() -> None:
    spec = pcp.spec((2,), "f32", "state")
    program = pcp.trace(lambda cell: Cell(cell.h + 1, cell.c * 2), Cell(spec, spec))
    plan = pcp.plan(program)
    cell = Cell(np.zeros(2, np.float32), np.ones(2, np.float32))
    for _ in range(3):
        cell = plan.run(cell)
    assert type(cell).__name__ == "Cell"
    np.testing.assert_array_equal(cell.h, [3, 3])
    np.testing.assert_array_equal(cell.c, [8, 8])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s, _: (s,), ArgumentCountMismatch, "1 argument was given; the plan takes 2: state, x"),
        (lambda s, x: (s, x, x), ArgumentCountMismatch, "3 arguments were given; the plan takes 2: state, x"),
        (
            lambda s, x: ({"sum": s["sum"]}, x),
            TreeMismatch,
            "argument state is a dict with keys sum, but the program expects a dict with keys count, sum",
        ),
        (lambda s, x: ({**s, "sum": [s["sum"]]}, x), TreeMismatch, "argument state.sum is a list"),
        (lambda s, x: ({**s, "sum": None}, x), TreeMismatch, r"argument state.sum is None; the plan expects"),
        (lambda s, _: (s, "x"), TreeMismatch, r"argument x is 'x'; the plan expects an array of f32\[4\]"),
        (
            lambda s, x: (s, x[:3]),
            ArgumentShapeMismatch,
            r"argument x has shape \(3,\); the plan expects f32\[4\]",
        ),
        (
            lambda s, x: ({**s, "sum": jnp.zeros((2, 2))}, x),
            ArgumentShapeMismatch,
            r"argument state.sum has shape \(2, 2\); the plan expects f32\[4\]",
        ),
        (
            lambda s, x: (s, x.astype(np.float64)),
            ArgumentDTypeMismatch,
            r"argument x has element type float64; the plan expects f32\[4\]; convert it with .astype\('float32'\)",
        ),
        (
            lambda s, x: (s, jnp.asarray(x).astype(jnp.int32)),
            ArgumentDTypeMismatch,
            "argument x has element type int32",
        ),
        (lambda s, x: (s, x.astype(">f8")), ArgumentDTypeMismatch, "argument x has element type >f8"),
        (
            lambda s, x: (s, x.astype(ml_dtypes.bfloat16)),
            ArgumentDTypeMismatch,
            "argument x has element type bfloat16",
        ),
        (lambda s, _: (s, np.array(["a"] * 4)), ArgumentDTypeMismatch, "argument x has element type <U1"),
    ],
)
def test_arguments_that_do_not_match_are_explained(
    step: pcp.Program, state: dict[str, Any], change: Any, error: type[Exception], message: str
) -> None:
    plan = pcp.plan(step)
    for _ in range(2):  # before and after a call that warms the fast way up
        with pytest.raises(error, match=message):
            plan.run(*change(state, X))
        plan.run(plan.run(state, X)[0], jnp.asarray(X))


def test_an_array_of_another_type_and_the_same_size_is_refused_after_many_good_ones() -> None:
    plan = pcp.plan(pcp.trace(lambda x: x * 2, pcp.spec((4,), "f32")))
    good = jnp.asarray(X)
    for _ in range(3):
        plan.run(good)
    with pytest.raises(ArgumentDTypeMismatch, match="int32"):
        plan.run(jnp.ones(4, jnp.int32))
    np.testing.assert_array_equal(plan.run(good), X * 2)


def test_state_is_donated_and_says_so_when_used_again(
    step: pcp.Program, state: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    plan = pcp.plan(step)
    first, _ = plan.run(state, X)
    pointer = first["sum"].unsafe_buffer_pointer()
    second, _ = plan.run(first, X)
    assert first["sum"].is_deleted()
    assert second["sum"].unsafe_buffer_pointer() == pointer
    message = r"argument state.count \(and 1 more\) was donated to an earlier call of the plan; use the state it returned"
    with pytest.raises(DonatedArray, match=message):
        plan.run(first, X)
    plan.run(second, X)
    assert capfd.readouterr().err == ""  # XLA, which would complain there, was not asked


def test_one_array_cannot_be_donated_twice() -> None:
    spec = pcp.spec((3,), "f32", "state")
    plan = pcp.plan(pcp.trace(lambda s: {"m": s["m"] + 1, "v": s["v"] + 2}, {"m": spec, "v": spec}))
    zeros = jnp.zeros(3)
    with pytest.raises(DonatedTwice, match=r"arguments s\.m and s\.v are the same array"):
        plan.run({"m": zeros, "v": zeros})
    same = np.zeros(3, np.float32)
    result = plan.run({"m": same, "v": same})
    np.testing.assert_array_equal(result["v"], [2, 2, 2])


def test_bound_weights_are_placed_once() -> None:
    rng = np.random.default_rng(4)
    weights = {
        "w": rng.standard_normal((4, 2)).astype(np.float32),
        "b": rng.standard_normal(2).astype(np.float32),
    }
    program = pcp.trace(
        lambda p, x, s: (x @ p["w"] + p["b"]) * s, weights, pcp.spec((3, 4), "f32"), pcp.spec((), "f32")
    )
    assert [entry.role for entry in program.arguments] == [Role.weight, Role.weight, Role.input, Role.input]
    plan = pcp.plan(program)
    bound = plan.bind(weights)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    expected = plan.run(weights, x, 2.0)
    np.testing.assert_array_equal(bound.run(x, 2.0), expected)
    np.testing.assert_array_equal(bound.bind(x).run(2.0), expected)
    assert [entry.name for entry in bound.inputs] == ["x", "s"]
    assert "(the first 1 arguments are bound)" in str(bound)
    with pytest.raises(ArgumentCountMismatch, match="3 arguments were given; the plan takes 2: x, s"):
        bound.run(weights, x, 2.0)
    with pytest.raises(ArgumentShapeMismatch, match=r"argument p\.w has shape"):
        plan.bind({**weights, "w": weights["b"]})
    with pytest.raises(ArgumentCountMismatch, match="4 arguments were given to bind; the plan takes 3"):
        plan.bind(weights, x, 2.0, 3.0)


def test_state_cannot_be_bound(step: pcp.Program, state: dict[str, Any]) -> None:
    with pytest.raises(CannotBind, match=r"argument state\.count is state, which every call consumes"):
        pcp.plan(step).bind(state)


def test_a_bound_array_that_was_donated_elsewhere_is_named(step: pcp.Program, state: dict[str, Any]) -> None:
    stepper = pcp.plan(step)
    state, _ = stepper.run(state, X)
    reader = pcp.plan(pcp.trace(lambda w, x: w + x, pcp.spec((4,), "f32"), pcp.spec((4,), "f32"))).bind(
        state["sum"]
    )
    stepper.run(state, X)
    with pytest.raises(DonatedArray, match="argument w was donated to an earlier call"):
        reader.run(X)


def test_what_a_plan_tells_about_itself(step: pcp.Program) -> None:
    plan = pcp.plan(step)
    assert [str(entry.spec) for entry in plan.outputs] == ["i32[]", "f32[4]", "f32[]"]
    assert plan.device == pcp.backends.device()
    use = plan.memory[str(plan.device)]
    assert (use.arguments, use.aliased) == (4 + 16 + 16, 4 + 16)
    assert 4 + 16 + 4 <= use.results <= 4 + 16 + 4 + 3 * 8  # XLA counts a table of pointers to results
    assert use.peak == use.arguments + use.results - use.aliased + use.temporaries
    [multiply] = [op for op in plan.operations if op.name == "multiply"]
    assert multiply.location is not None
    assert multiply.location.partition(":")[0].endswith("test_plan.py")
    text = str(plan)
    assert f"Plan of program {step.digest[:12]} on {plan.device} by xla" in text
    assert "state.count: i32[] donated, state.sum: f32[4] donated, x: f32[4]" in text
    assert "operations" in text
    assert "multiply" in text
    assert "of which 20 bytes in donated arguments" in text


def test_without_time_and_knowledge_the_plain_path_is_used_and_said_to_be(
    step: pcp.Program, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pcp.planning"):
        plan = pcp.plan(step, tolerance=1e-3, budget=0)
    assert plan.path.is_plain
    assert "the error of the plain path is not known" in caplog.text
    assert "tolerance 0.001: the plain path, after 0 measurements" in caplog.text


def test_a_function_without_arguments_or_with_none_used() -> None:
    assert int(pcp.plan(pcp.trace(lambda: pcp.where(True, 3, 4)), cache=False).run()) == 3
    plan = pcp.plan(
        pcp.trace(lambda x, _: x + 1, pcp.spec((), "i32"), {"a": pcp.spec((2,), "f32")}), cache=False
    )
    assert int(plan.run(1, {"a": X[:2]})) == 2


def test_a_foreign_module_runs_with_numbered_arguments() -> None:
    program = pcp.Program.parse(
        "func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {"
        " %0 = stablehlo.subtract %a, %b : tensor<2xf32> return %0 : tensor<2xf32> }"
    )
    plan = pcp.plan(program, cache=False)
    np.testing.assert_array_equal(plan.run(X[:2], X[2:]), X[:2] - X[2:])
    with pytest.raises(ArgumentShapeMismatch, match=r"argument 1 has shape \(4,\)"):
        plan.run(X[:2], X)


def test_memory_stays_flat_over_many_steps(step: pcp.Program, state: dict[str, Any]) -> None:
    plan = pcp.plan(step)
    current, _ = plan.run(state, X)
    x = jnp.asarray(X)
    before = len(jax.live_arrays())
    for _ in range(500):
        current, _ = plan.run(current, x)
    assert len(jax.live_arrays()) == before
