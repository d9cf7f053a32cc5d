"""What the rows of the derivative tests do not batch: integers, indices, branches and loops that differ between samples."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.batching import BATCHING, BatchMismatch
from tests.autodiff.rows.indexing import ADD
from tests.autodiff.rows.row import from_text
from tests.execution import run

SIZE = 4
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=(SIZE, *shape))


def integers(high: int, *shape: int) -> np.ndarray[Any, Any]:
    """From -1 on, so that some are out of bounds."""
    return RANDOM.integers(-1, high, (SIZE, *shape), dtype=np.int32)


def keys() -> np.ndarray[Any, Any]:
    return np.stack([pcp.random.key(seed) for seed in range(SIZE)])


GATHER = """func.func @main(%x: tensor<4x5xf64>, %i: tensor<3x2xi32>) -> tensor<2x3x2xf64> {
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], start_index_map = [0, 1],
    index_vector_dim = 1>, slice_sizes = array<i64: 2, 2>}> : (tensor<4x5xf64>, tensor<3x2xi32>) -> tensor<2x3x2xf64>
  return %r : tensor<2x3x2xf64> }"""

SCATTER = f"""func.func @main(%x: tensor<4x3xf64>, %i: tensor<4x1xi32>, %u: tensor<4x3xf64>) -> tensor<4x3xf64> {{
  %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    {ADD}
  }}) : (tensor<4x3xf64>, tensor<4x1xi32>, tensor<4x3xf64>) -> tensor<4x3xf64>
  return %r : tensor<4x3xf64> }}"""

# A scalar predicate, scalar bounds, and a reduction and a padding that start from a value of the sample.
SCALARS = """func.func @main(%p: tensor<i1>, %x: tensor<3xf64>, %y: tensor<3xf64>, %s: tensor<f64>) -> (
    tensor<3xf64>, tensor<3xf64>, tensor<f64>, tensor<5xf64>) {
  %a = stablehlo.select %p, %x, %y : tensor<i1>, tensor<3xf64>
  %t = stablehlo.constant dense<0.5> : tensor<f64>
  %b = stablehlo.clamp %s, %x, %t : (tensor<f64>, tensor<3xf64>, tensor<f64>) -> tensor<3xf64>
  %c = stablehlo.reduce(%x init: %s) applies stablehlo.maximum across dimensions = [0] :
    (tensor<3xf64>, tensor<f64>) -> tensor<f64>
  %d = stablehlo.pad %x, %s, low = [1], high = [1], interior = [0] : (tensor<3xf64>, tensor<f64>) -> tensor<5xf64>
  return %a, %b, %c, %d : tensor<3xf64>, tensor<3xf64>, tensor<f64>, tensor<5xf64> }"""


def trips(x: Any, n: Any) -> Any:
    """A loop of n trips, with an inner one of 2 and a carry that is the same for all samples."""

    def step(state: Any) -> Any:
        i, x, k = state
        return i + 1, pcp.fori_loop(0, 2, lambda _, x: pcp.sin(x) + 1.0, x), k * 2

    return pcp.while_loop(lambda state: state[0] < n, step, (0, x, 1))


def scanned(x: Any, rows: Any) -> Any:
    return pcp.scan(lambda c, row: (pcp.tanh(c * row), c.sum()), x, rows)


def switched(k: Any, x: Any, y: Any) -> Any:
    return pcp.switch(k, [lambda x, y: (x, y[0]), lambda x, y: (x * y, y[1]), lambda x, y: (y, x[2])], x, y)


def conditional(p: Any, x: Any) -> Any:
    return pcp.cond(p > 0, lambda x: (pcp.exp(x), 1.0 + 0.0 * p), lambda x: (x * 2.0, 0.0 * p), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "gather": (from_text(GATHER), (normal(4, 5), integers(5, 3, 2))),
    "scatter": (from_text(SCATTER), (normal(4, 3), integers(5, 4, 1), normal(4, 3))),
    "dynamic_slice": (lambda x, i, j: ops.dynamic_slice(x, [i, j], (2, 3)), (normal(4, 5), integers(5), integers(6))),
    "dynamic_update_slice": (
        lambda x, u, i, j: ops.dynamic_update_slice(x, u, [i, j]),
        (normal(4, 5), normal(2, 3), integers(5), integers(6)),
    ),
    "scalars": (from_text(SCALARS), (normal() > 0, normal(3), normal(3), normal() - 1)),
    "trips": (trips, (normal(3), integers(5))),
    "scan": (scanned, (normal(3), normal(5, 3))),
    "switch": (switched, (integers(4), normal(3), normal(3))),
    "cond": (conditional, (normal(), normal(3))),
    "sorting": (lambda x: (pcp.argsort(x, 0), *pcp.top_k(x, 2), pcp.argmax(x, 0)), (normal(3, 4),)),
    "random": (lambda key: (pcp.random.normal(key, (3,)), pcp.random.permutation(key, 5)), (keys(),)),
    "barrier": (lambda x, y: barrier(x * 2, y), (normal(3), normal(2))),
    "windows": (lambda x: ops.max_pool(x, 2), (normal(1, 4, 4, 2),)),
    "strings of operations": (
        lambda x, w: pcp.log_softmax(pcp.einsum("ij,jk->ki", x, w)).cumsum(0)[::-1],
        (normal(2, 3), normal(3, 4)),
    ),
}  # fmt: skip


def barrier(*tensors: Any) -> Any:
    builder = pcp.tensor.current_builder()
    op = builder.emit("stablehlo.optimization_barrier", [t.value for t in tensors], [t.spec for t in tensors])
    return tuple(pcp.Tensor(value, builder) for value in op.results)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_its_samples_whichever_arguments_differ(name: str) -> None:
    function, arrays = CASES[name]
    ways = [
        (0,) * len(arrays),
        *([None] * k + [0] + [None] * (len(arrays) - 1 - k) for k in range(len(arrays))),
    ]
    first = [array[0] for array in arrays]
    single = pcp.trace(lambda *x: leaves(function(*x)), *first)

    def all_ways(*arrays: Any) -> Any:
        return [
            leaves(
                pcp.vmap(function, axes)(
                    *(a if axis == 0 else f for a, f, axis in zip(arrays, first, axes, strict=True))
                )
            )
            for axes in ways
        ]

    found = run(pcp.trace(all_ways, *arrays), *arrays)
    for axes, results in zip(ways, found, strict=True):
        for sample in range(SIZE):
            given = [a[0] if axis is None else a[sample] for a, axis in zip(arrays, axes, strict=True)]
            for mine, other in zip(results, run(single, *given), strict=True):
                np.testing.assert_allclose(mine[sample], other, rtol=1e-12)


def leaves(results: Any) -> list[Any]:
    return [leaf for entry in results for leaf in leaves(entry)] if isinstance(results, tuple) else [results]


def test_axes_of_samples_may_lie_anywhere() -> None:
    def function(p: Any, x: Any) -> Any:
        return {"y": p["w"] @ x + p["b"], "b": p["b"]}

    w, b, x = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(SIZE, 2)), RANDOM.normal(size=(3, SIZE))
    program = pcp.trace(function, {"w": w, "b": b[0]}, pcp.spec((3,), "f64"))
    batch = pcp.vmap(program, ({"w": None, "b": 0}, -1), {"y": 1, "b": 0}, size=SIZE)
    assert [str(entry.spec) for entry in batch.arguments] == ["f64[4,2]", "f64[2,3]", "f64[3,4]"]
    assert [(entry.name, entry.role) for entry in batch.arguments] == [
        ("p.b", "weight"),
        ("p.w", "weight"),
        ("x", "input"),
    ]
    found = run(batch, {"w": w, "b": b}, x)
    np.testing.assert_allclose(found["y"], w @ x + b.T, rtol=1e-12)
    np.testing.assert_array_equal(found["b"], b)


def test_what_is_the_same_for_all_samples_is_computed_once() -> None:
    program = pcp.trace(lambda w, x: pcp.exp(w) @ x, pcp.spec((3, 3), "f64"), pcp.spec((3,), "f64"))
    text = pcp.vmap(program, (None, 0), size=SIZE).text
    assert "stablehlo.exponential %arg0 : tensor<3x3xf64>" in text
    assert "(tensor<3x3xf64>, tensor<4x3xf64>) -> tensor<3x4xf64>" in text
    assert "broadcast" not in text


def test_a_result_that_is_the_same_for_all_samples() -> None:
    spec = pcp.spec((3,), "f64")
    program = pcp.trace(lambda x, y: (x * y, y * 2), spec, spec)
    x, y = RANDOM.normal(size=(SIZE, 3)), RANDOM.normal(size=3)
    repeated = run(pcp.vmap(program, (0, None), size=SIZE), x, y)[1]
    np.testing.assert_array_equal(repeated, np.stack([y * 2] * SIZE))
    np.testing.assert_array_equal(run(pcp.vmap(program, (0, None), (0, None), SIZE), x, y)[1], y * 2)
    with pytest.raises(
        BatchMismatch, match="out_axes is None for the result 0, but it depends on the sample"
    ):
        pcp.vmap(program, (0, None), (None, None), SIZE)


def test_it_nests_with_itself_and_with_gradients() -> None:
    w, x, y = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(5, 2))

    def loss(w: Any, x: Any, y: Any) -> Any:
        return (pcp.tanh(w @ x) * y).sum()

    def function(w: Any, x: Any, y: Any) -> Any:
        each = pcp.vmap(pcp.vmap(pcp.grad(loss), (None, None, 0)), (None, 0, None))(w, x, y)
        whole = pcp.grad(lambda w: pcp.vmap(lambda x: pcp.vmap(lambda y: loss(w, x, y))(y))(x).sum())(w)
        return each, whole

    each, whole = run(pcp.trace(function, w, x, y), w, x, y)
    slope = 1 - np.tanh(x @ w.T) ** 2
    np.testing.assert_allclose(each, np.einsum("ai,bi,aj->abij", slope, y, x), rtol=1e-12)
    np.testing.assert_allclose(each.sum((0, 1)), whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["sort", "case"])
def test_an_operation_without_a_row_is_run_sample_by_sample(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(BATCHING, f"stablehlo.{name}")
    k, x = np.array([0, 1, 1, 0], np.int32), RANDOM.normal(size=(SIZE, 5))

    def function(k: Any, x: Any) -> Any:
        return pcp.switch(k, [pcp.sort, lambda x: x * 2.0], pcp.sin(x))

    with caplog.at_level(logging.INFO, "pcp.batching"):
        program = pcp.vmap(pcp.trace(function, k[0], x[0]), size=SIZE)
    assert f"vmap runs stablehlo.{name} sample by sample: no batching rule covers it" in caplog.text
    expected = np.where(k[:, None] == 0, np.sort(np.sin(x)), np.sin(x) * 2)
    np.testing.assert_allclose(run(program, k, x), expected, rtol=1e-12)


def mapped(*arguments: Any, **options: Any) -> Any:
    return pcp.trace(lambda *x: pcp.vmap(lambda *x: x[0], **options)(*x), *arguments)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: mapped(np.ones((3, 2)), np.ones((4, 2))),
            r"argument.1 is f64\[4,2\] with 4 samples along axis 0, but argument.0 says 3; all must have the same number",
        ),
        (
            lambda: mapped(np.ones((3, 2)), size=5),
            r"argument.0 is f64\[3,2\] with 3 samples along axis 0, but size says 5",
        ),
        (
            lambda: mapped(np.ones((3, 2)), in_axes=2),
            r"argument.0 is f64\[3,2\] and has no axis 2 of samples; name another in in_axes, or None",
        ),
        (lambda: mapped(np.ones(3), in_axes=None), "in_axes is None for every argument"),
        (
            lambda: mapped(np.ones(3), in_axes=(0, 0)),
            r"in_axes \(0, 0\) was given for \(\*\); expected a number, None, or numbers and None nested like it",
        ),
        (
            lambda: mapped(np.ones(3), out_axes=1),
            r"out_axes puts the samples of the result .* along axis 1; expected -1 <= axis <= 0",
        ),
        (lambda: pcp.vmap(pcp.trace(lambda x: x, np.ones(3))), r"give the number of samples: vmap\(program, size=...\)"),
        (
            lambda: pcp.vmap(pcp.trace(lambda x: x, np.ones(3)), 2, size=4),
            r"in_axes puts the samples of argument x of f64\[3\] along axis 2; expected -2 <= axis <= 1",
        ),
    ],
)  # fmt: skip
def test_axes_that_do_not_fit_are_refused(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(BatchMismatch, match=message):
        attempt()


@pytest.mark.parametrize("number", [2, 0.5, True, np.float64(0.5), np.int64(3)])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "i8"])
def test_a_number_adapts_to_the_tensor_that_it_meets_as_it_does_without_samples(
    number: Any, dtype: str
) -> None:
    def scaled(x: pcp.Tensor, factor: Any) -> Any:
        return x * factor, {"sum": factor + x.sum()}

    alone = pcp.trace(lambda x: scaled(x, number), pcp.spec((4,), dtype))
    many = pcp.trace(lambda x: pcp.vmap(scaled, in_axes=(0, None))(x, number), pcp.spec((3, 4), dtype))
    assert [entry.spec.dtype for entry in many.results] == [entry.spec.dtype for entry in alone.results]
    x = np.random.default_rng(5).integers(0, 4, (3, 4)).astype(many.arguments[0].spec.dtype.numpy)
    for each, whole in zip([run(alone, row) for row in x], np.asarray(run(many, x)[0]), strict=True):
        np.testing.assert_array_equal(each[0], whole)


@pytest.mark.parametrize("transform", [pcp.grad, pcp.jacobian, pcp.value_and_grad])
def test_a_number_beside_what_is_differentiated_adapts_too(transform: Any) -> None:
    def loss(x: pcp.Tensor, factor: Any) -> pcp.Tensor:
        return (x * factor).sum()

    program = pcp.trace(lambda x: transform(loss)(x, 0.5), pcp.spec((4,), "bf16"))
    assert {entry.spec.dtype for entry in program.results} == {"bf16"}
