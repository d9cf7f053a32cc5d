"""Names that NumPy has, too, mean what they mean there: called with defaults, positionally, on random arrays."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.tensor import OPERATIONS, DTypeMismatch, ShapeMismatch, WrongArgument

RNG = np.random.default_rng(42)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
SQUARE = RNG.normal(size=(4, 4, 4)).astype(np.float32)
ROW = RNG.normal(size=6).astype(np.float32)
INTEGERS = RNG.integers(-9, 9, (3, 4)).astype(np.int32)
OTHERS = np.where(INTEGERS == 0, 5, -INTEGERS[::-1]).astype(np.int32)
PLACES = RNG.integers(0, 3, (2, 2)).astype(np.int32)
FLAGS = X > 0

Arguments = tuple[Any, ...]
SHARED: dict[str, list[Arguments]] = {
    "all": [(FLAGS,), (FLAGS, 1)],
    "any": [(FLAGS,), (FLAGS, 1)],
    "arange": [(5,), (2, 9), (2, 9, 3)],
    "argmax": [(X,), (X, 1), (INTEGERS,)],
    "argmin": [(X,), (X, 0)],
    "argsort": [(X,), (X, 0)],
    "broadcast_to": [(ROW, (2, 6))],
    "clip": [(X, -1, 0.5), (X, None, 0.5), (X, -1, None), (X, 1, -1)],
    "concatenate": [((X, X),), ((X, X), 1)],
    "count_nonzero": [(INTEGERS,), (INTEGERS, 0)],
    "cumprod": [(X,), (X, 0)],
    "cumsum": [(X,), (X, 1), (INTEGERS,)],
    "diag": [(ROW,), (SQUARE[0],), (ROW, 1)],
    "diagonal": [(SQUARE,), (X,), (SQUARE, 1), (SQUARE, 0, 1, 2)],
    "diff": [(X,), (X, 2), (X, 0), (X, 1, 0), (X, 9)],
    "expand_dims": [(X, 1)],
    "eye": [(3,), (3, 4), (3, 4, 1)],
    "flip": [(X,), (X, 1)],
    "floor_divide": [(INTEGERS, OTHERS), (X, 0.3)],
    "inner": [(X, X), (ROW, ROW)],
    "isclose": [(X, X + 1e-6), (X, X + 1e-3)],
    "linspace": [(0.0, 1.0), (0.0, 1.0, 5)],
    "max": [(X,), (X, 1)],
    "maximum": [(INTEGERS, OTHERS)],
    "mean": [(X,), (X, (0, 2)), (INTEGERS,)],
    "median": [(X,), (X, 1)],
    "min": [(X,), (X, 1)],
    "moveaxis": [(X, 0, 2)],
    "nan_to_num": [(np.where(FLAGS, X, np.nan).astype(np.float32),)],
    "outer": [(X, ROW)],
    "power": [(INTEGERS, 3), (np.abs(X), X)],
    "prod": [(X,), (X, 1)],
    "quantile": [(X, 0.3), (X, 0.3, 1)],
    "ravel": [(X,)],
    "remainder": [(INTEGERS, OTHERS), (X, -0.3)],
    "fmod": [(INTEGERS, OTHERS), (X, -0.3)],
    "repeat": [(X, 2), (X, 2, 1)],
    "reshape": [(X, (5, 12)), (X, -1)],
    "roll": [(X, 2), (X, 2, 1), (X, (1, 2), (0, 1))],
    "round": [(X * 2,), (np.array([0.5, 1.5, 2.5, -0.5], np.float32),)],
    "searchsorted": [(np.sort(ROW), ROW), (np.sort(ROW), ROW, "right")],
    "sign": [(X,)],
    "sort": [(X,), (X, 0)],
    "split": [(SQUARE, 2), (SQUARE, 2, 1)],
    "squeeze": [(X[:1],), (X[:, :1], 1)],
    "stack": [((X, X),), ((X, X), 1)],
    "std": [(X,), (X, 1)],
    "sum": [(X,), (X, 1), (INTEGERS,)],
    "swapaxes": [(X, 0, 2)],
    "take": [(X, PLACES), (X, PLACES, 0), (X, PLACES, 1)],
    "take_along_axis": [(X, np.argsort(X)), (X, np.argsort(X, 1), 1)],
    "tensordot": [(SQUARE, SQUARE), (X, SQUARE, 0)],
    "tile": [(X, 2), (ROW, (2, 1))],
    "trace": [(SQUARE,), (X,), (SQUARE, 1), (SQUARE, 0, 1, 2)],
    "transpose": [(X,), (X, (1, 0, 2))],
    "tril": [(SQUARE,), (SQUARE, 1)],
    "triu": [(SQUARE,), (SQUARE, -1)],
    "trunc": [(X * 3,)],
    "unstack": [(X,)],
    "var": [(X,), (X, 1)],
    "where": [(FLAGS, X, 0)],
}  # fmt: skip
"""Calls without keywords, which NumPy takes as well."""

DIFFERENT = {
    "abs": "elementwise", "add": "elementwise", "bitwise_and": "elementwise", "bitwise_not": "elementwise",
    "bitwise_or": "elementwise", "bitwise_xor": "elementwise", "broadcast_arrays": "a tuple, where NumPy has a list",
    "conj": "elementwise", "cbrt": "elementwise", "divide": "elementwise; integers give f32",
    "einsum": "tests/ops/rows.py", "equal": "elementwise", "full": "an integer is i32", "full_like": "as full",
    "greater": "elementwise", "greater_equal": "elementwise", "hypot": "elementwise", "imag": "elementwise",
    "less": "elementwise", "less_equal": "elementwise", "matmul": "tests/ops/rows.py", "meshgrid": "vectors in a row",
    "minimum": "elementwise", "multiply": "elementwise", "not_equal": "elementwise", "ones": "f32, where NumPy has f64",
    "ones_like": "elementwise", "pad": "widths for each axis, and how many between elements; other forms are refused",
    "put_along_axis": "returns the tensor, where NumPy writes into it", "real": "elementwise", "reciprocal": "elementwise",
    "square": "elementwise", "subtract": "elementwise", "zeros": "f32, where NumPy has f64", "zeros_like": "elementwise",
    **dict.fromkeys((
        "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "ceil", "cos", "cosh", "exp", "exp2", "expm1",
        "floor", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "sin",
        "sinh", "sqrt", "tan", "tanh",
    ), "elementwise"),
}  # fmt: skip
"""Names that are not called here, with the reason: elementwise ones have rows of their own, others differ on purpose."""


def test_every_shared_name_is_called_or_has_a_reason() -> None:
    shared = {name for name in OPERATIONS if hasattr(np, name) and not inspect.isclass(getattr(np, name))}
    assert shared == SHARED.keys() | (DIFFERENT.keys() & shared)
    assert not SHARED.keys() & DIFFERENT.keys()
    assert DIFFERENT.keys() <= OPERATIONS.keys()


def test_calls_with_defaults_give_what_numpy_gives() -> None:
    calls = [(name, given) for name, cases in SHARED.items() for given in cases]

    def everything() -> list[Any]:
        return [_by(OPERATIONS[name], given) for name, given in calls]

    found = pcp.plan(pcp.trace(everything), "arena:cpu").run()
    for (name, given), result in zip(calls, found, strict=True):
        wanted = getattr(np, name)(*given)
        many = isinstance(wanted, list | tuple)
        for mine, theirs in zip(result if many else [result], wanted if many else [wanted], strict=True):
            shown = f"{name}{[getattr(each, 'shape', each) for each in given]}"
            assert np.shape(mine) == np.shape(theirs), shown
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-5, atol=2e-6, err_msg=shown)


def _by(function: Callable[..., Any], given: Arguments) -> Any:
    """A call whose arrays of the data stand as Tensors."""

    def tensor(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return [ops.convert(each, each.dtype) for each in value]
        return ops.convert(value, value.dtype) if isinstance(value, np.ndarray) else value

    return function(*(tensor(each) for each in given))


def test_methods_have_the_defaults_of_the_functions() -> None:
    names = [name for name in dir(pcp.Tensor) if name in OPERATIONS and name not in ("reshape", "transpose")]
    for name in names:
        method, function = (
            inspect.signature(each).parameters for each in (getattr(pcp.Tensor, name), OPERATIONS[name])
        )
        defaults = {entry.name: entry.default for entry in function.values()}
        for entry in list(method.values())[1:]:
            assert entry.default == defaults[entry.name], f"{name}({entry.name})"
    assert "argmax" in names


def test_reductions_of_exponentials_take_all_elements_as_jax_does() -> None:
    def everything(x: pcp.Tensor) -> Any:
        return (
            ops.logsumexp(x), ops.logsumexp(x, 1), ops.logsumexp(x, keepdims=True), ops.cummax(x), ops.cummin(x),
            ops.logcumsumexp(x), ops.softmax(x),
        )  # fmt: skip

    found = pcp.plan(pcp.trace(everything, X), "arena:cpu").run(X)
    wanted = (
        jax.nn.logsumexp(X), jax.nn.logsumexp(X, 1), jax.nn.logsumexp(X, keepdims=True), np.maximum.accumulate(X.ravel()),
        np.minimum.accumulate(X.ravel()), np.logaddexp.accumulate(X.ravel()), jax.nn.softmax(X),
    )  # fmt: skip
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.sum(X, 0, "f32"), WrongArgument, "sum: keepdims = 'f32' was given; expected True or False"),
        (lambda: ops.mean(X, 0, None), WrongArgument, "mean: keepdims = None was given; expected True or False"),
        (lambda: ops.sort(X, 0, "stable"), WrongArgument, "sort: descending = 'stable' was given; expected True or False"),
        (lambda: ops.cumsum(X, 0, np.int32), WrongArgument, "cumsum: reverse = .*int32.* was given; expected True or False"),
        (lambda: ops.argsort(X, descending=1), WrongArgument, "argsort: descending = 1 was given; expected True or False"),
        (lambda: ops.max(X[:0]), ShapeMismatch, r"max: axis 0 of shape \(0, 4, 5\) is empty, and no elements have no max"),
        (lambda: ops.min(X[:, :0], 1), ShapeMismatch, r"min: axis 1 of shape \(3, 0, 5\) is empty"),
        (lambda: ops.argmax(X[:0]), ShapeMismatch, r"argmax: axis 0 of shape \(0,\) is empty"),
        (lambda: ops.diff(X, -1), ShapeMismatch, "diff: n = -1 was given; expected how many times, at least 0"),
        (lambda: ops.convert(FLAGS, bool).astype("bool") - FLAGS, DTypeMismatch, "subtract: element type bool was given"),
    ],
)  # fmt: skip
def test_what_numpy_refuses_or_means_otherwise_is_refused(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(call)


def test_softmax_and_sums_of_no_elements_have_their_neutral_values() -> None:
    empty = np.zeros((3, 0), np.float32)
    program = pcp.trace(lambda x: (ops.softmax(x), ops.logsumexp(x, 1), x.sum(1), x.prod(1), x.max(0)), empty)
    found = pcp.plan(program, "arena:cpu").run(empty)
    assert [np.asarray(each).shape for each in found] == [(3, 0), (3,), (3,), (3,), (0,)]
    np.testing.assert_array_equal(np.asarray(found[1]), -np.inf)
