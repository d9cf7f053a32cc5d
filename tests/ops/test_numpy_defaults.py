"""Names that NumPy has, too, mean what they mean there: called with defaults, positionally, on random arrays."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from tests.ops.families.rows import FAMILIES

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
MOST = np.arange(60).reshape(X.shape) % 7 != 0
GAPS = np.where(FLAGS, X, np.nan).astype(np.float32)
GAPS[0, 0, :2] = [np.inf, -np.inf]

Arguments = tuple[Any, ...]
SHARED: dict[str, list[Arguments]] = {
    "all": [(FLAGS,), (FLAGS, 1), (INTEGERS,), (FLAGS, {"axis": 1, "where": X < 0.4})],
    "any": [(FLAGS,), (FLAGS, 1), (X, 2)],
    "arange": [(5,), (2, 9), (2, 9, 3)],
    "argmax": [(X,), (X, 1), (INTEGERS,), (X, 1, {"keepdims": True}), (X, {"keepdims": True})],
    "argmin": [(X,), (X, 0), (X, -1, {"keepdims": True})],
    "argsort": [(X,), (X, 0), (X, None)],
    "around": [(X, 2)],
    "broadcast_to": [(ROW, (2, 6))],
    "clip": [(X, -1, 0.5), (X, None, 0.5), (X, -1, None), (X, 1, -1), (X, {"min": -1, "max": 0.5}), (X, {"max": 0.2})],
    "concatenate": [((X, X),), ((X, X), 1), ((X, ROW), None), ((X, X), {"dtype": np.float64})],
    "cross": [(X[..., :3], X[..., 2:]), (X[..., :2], X[..., 2:]), (X[..., :2], X[..., 2:4]), (X[:, :3], X[:, 1:], {"axis": 0})],
    "count_nonzero": [(INTEGERS,), (INTEGERS, 0)],
    "cumprod": [(X,), (X, 0)],
    "cumsum": [(X,), (X, 1), (INTEGERS,), (INTEGERS, 1, {"dtype": np.float32})],
    "diag": [(ROW,), (SQUARE[0],), (ROW, 1)],
    "diagonal": [(SQUARE,), (X,), (SQUARE, 1), (SQUARE, 0, 1, 2)],
    "diff": [(X,), (X, 2), (X, 0), (X, 1, 0), (X, 9), (X, {"prepend": 0.5, "append": X[..., :2]})],
    "dot": [(X, SQUARE[0, :, :1].repeat(5, 1).T), (ROW, ROW), (X, 3), (X, X[0].T), (X, ROW[:5])],
    "expand_dims": [(X, 1), (X, (0, -1))],
    "eye": [(3,), (3, 4), (3, 4, 1)],
    "flip": [(X,), (X, 1)],
    "floor_divide": [(INTEGERS, OTHERS), (X, 0.3)],
    "inner": [(X, X), (ROW, ROW)],
    "full": [((2, 6), ROW), ((2, 2), 1.5), ((2, 2), 3, {"dtype": np.float32})],
    "full_like": [(X, 2.0), (X, 2, np.int32), (X, 2.0, {"shape": (2, 2)})],
    "isclose": [(X, X + 1e-6), (X, X + 1e-3), (GAPS, GAPS), (GAPS, GAPS, {"equal_nan": True})],
    "kron": [(X[0], SQUARE), (ROW, ROW), (X, 2.0)],
    "linspace": [(0.0, 1.0), (0.0, 1.0, 5), (0, 9, 5, {"dtype": np.int32}), (ROW, 2.0, 5, {"axis": 1}), (0, 1, 4, False, True)],
    "matrix_transpose": [(X,)],
    "matvec": [(X, X[:, 0])],
    "max": [(X,), (X, 1), (X, 1, {"initial": 0.3, "where": X < 0.2}), (X, (0, 2), {"keepdims": True})],
    "maximum": [(INTEGERS, OTHERS)],
    "mean": [(X,), (X, (0, 2)), (INTEGERS,), (X, 1, {"where": MOST}), (INTEGERS, {"dtype": np.float64})],
    "median": [(X,), (X, 1)],
    "min": [(X,), (X, 1)],
    "moveaxis": [(X, 0, 2)],
    "nan_to_num": [(GAPS,), (GAPS, {"nan": 1.0, "posinf": 2.0, "neginf": -3.0}), (INTEGERS,), (GAPS + 1j * X,)],
    "outer": [(X, ROW)],
    "power": [(INTEGERS, 3), (np.abs(X), X)],
    "prod": [(X,), (X, 1), (X, 1, {"where": FLAGS, "initial": 2.0}), (INTEGERS, {"dtype": np.float32})],
    "pad": [
        (X, ((1, 2), (0, 1), (2, 2))), (X, 2), (X, (1, 3)), (ROW, [(2, 1)], {"constant_values": 1.5}), (X[:, :1], 3, "reflect"),
        *[(x, widths, mode) for mode in ("edge", "reflect", "symmetric", "wrap") for x, widths in ((X, 2), (ROW, (17, 8)))],
    ],
    "quantile": [(X, 0.3), (X, 0.3, 1)],
    "ravel": [(X,)],
    "remainder": [(INTEGERS, OTHERS), (X, -0.3)],
    "fmod": [(INTEGERS, OTHERS), (X, -0.3)],
    "real": [(X,), (X + 1j * X,)],
    "imag": [(X,), (X + 1j * X,)],
    "repeat": [(X, 2), (X, 2, 1), (X, [2, 0, 1], 0)],
    "reshape": [(X, (5, 12)), (X, -1)],
    "roll": [(X, 2), (X, 2, 1), (X, (1, 2), (0, 1))],
    "round": [(X * 2,), (X, 1), (X * 100, -1), (INTEGERS, -1), (X + 1j * X, 1), (np.array([0.5, 1.5, 2.5, -0.5], np.float32),)],
    "searchsorted": [(np.sort(ROW), ROW), (np.sort(ROW), ROW, "right"), (ROW, X, "left", np.argsort(ROW).astype(np.int32))],
    "sign": [(X,)],
    "sort": [(X,), (X, 0), (X, None)],
    "split": [(SQUARE, 2), (SQUARE, 2, 1), (X, [1, 4, 9], 2), (X, (3, 1), 2)],
    "squeeze": [(X[:1],), (X[:, :1], 1)],
    "stack": [((X, X),), ((X, X), 1)],
    "std": [(X,), (X, 1), (X, 1, {"ddof": 1}), (X, {"ddof": 2, "keepdims": True}), (X, 1, {"where": MOST, "ddof": 1})],
    "sum": [
        (X,), (X, 1), (INTEGERS,), (INTEGERS, {"dtype": np.float32}), (X, 1, {"where": FLAGS}),
        (X, {"initial": 3.0}), (FLAGS, 0),
    ],
    "swapaxes": [(X, 0, 2)],
    "take": [(X, PLACES), (X, PLACES, 0), (X, PLACES, 1)],
    "take_along_axis": [(X, np.argsort(X)), (X, np.argsort(X, 1), 1)],
    "tensordot": [(SQUARE, SQUARE), (X, SQUARE, 0)],
    "tile": [(X, 2), (ROW, (2, 1))],
    "trace": [(SQUARE,), (X,), (SQUARE, 1), (INTEGERS, {"dtype": np.float32}), (SQUARE, 0, 1, 2)],
    "transpose": [(X,), (X, (1, 0, 2))],
    "tril": [(SQUARE,), (SQUARE, 1)],
    "triu": [(SQUARE,), (SQUARE, -1)],
    "trunc": [(X * 3,)],
    "unstack": [(X,)],
    "var": [(X,), (X, 1), (X, (0, 1), {"ddof": 1}), (X, 2, {"where": MOST}), (X + 1j * X, 0), (X, {"correction": 1})],
    "vdot": [(X, X), (ROW + 1j * ROW, ROW + 2j)],
    "vecdot": [(X, X), (X, X + 1j * X, {"axis": 1}), (X, X[:1, :, :1] * np.ones(5, np.float32))],
    "vecmat": [(X[:, :, 0], X)],
    "where": [(FLAGS, X, 0)],
    **FAMILIES,
}  # fmt: skip
"""Calls that NumPy takes as well; a dictionary at the end holds keywords."""

DIFFERENT = {
    "broadcast_arrays": "a tuple, where NumPy has a list",
    "divide": "elementwise; integers give f32",
    "einsum": "test_indexing.py",
    "matmul": "tests/ops/rows.py",
    "meshgrid": "vectors in a row",
    "ones": "f32, where NumPy has f64",
    "put_along_axis": "returns the tensor, where NumPy writes into it",
    "zeros": "f32, where NumPy has f64",
    **dict.fromkeys((
        "abs", "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cbrt", "conj", "equal", "greater",
        "greater_equal", "hypot", "less", "less_equal", "minimum", "multiply", "not_equal", "ones_like", "reciprocal",
        "rint", "square", "subtract", "zeros_like", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
        "arctanh", "ceil", "cos", "cosh", "exp", "exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "logaddexp",
        "logical_and", "logical_not", "logical_or", "logical_xor", "sin", "sinh", "sqrt", "tan", "tanh",
    ), "elementwise"),
}  # fmt: skip
"""Names that are not called here, with the reason: elementwise ones have rows of their own, others differ on purpose."""


def test_every_shared_name_is_called_or_has_a_reason() -> None:
    owned = {name for name, function in OPERATIONS.items() if function.__name__.rstrip("_") == name}
    shared = {
        name for name in owned | SHARED.keys() if hasattr(np, name) and not inspect.isclass(getattr(np, name))
    }
    assert shared == SHARED.keys() | (DIFFERENT.keys() & shared)
    assert not SHARED.keys() & DIFFERENT.keys()
    assert DIFFERENT.keys() <= OPERATIONS.keys()


@pytest.mark.filterwarnings("ignore:Arrays of 2-dimensional vectors:DeprecationWarning")
def test_calls_with_defaults_give_what_numpy_gives() -> None:
    calls = [(name, given) for name, cases in SHARED.items() for given in cases]

    def everything() -> list[Any]:
        return [_by(OPERATIONS[name], given) for name, given in calls]

    found = pcp.plan(pcp.trace(everything), "arena:cpu").run()
    for (name, given), result in zip(calls, found, strict=True):
        arguments, named = _with_names(given)
        wanted = getattr(np, name)(*arguments, **named)
        many = isinstance(wanted, list | tuple)
        for mine, theirs in zip(result if many else [result], wanted if many else [wanted], strict=True):
            shown = f"{name}{[getattr(each, 'shape', each) for each in given]}"
            assert np.shape(mine) == np.shape(theirs), shown
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=3e-5, atol=3e-6, err_msg=shown)


def _by(function: Callable[..., Any], given: Arguments) -> Any:
    """A call whose arrays of the data stand as Tensors."""

    def tensor(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return [ops.convert(each, each.dtype) for each in value]
        return ops.convert(value, value.dtype) if isinstance(value, np.ndarray) else value

    arguments, named = _with_names(given)
    return function(
        *(tensor(each) for each in arguments), **{name: tensor(each) for name, each in named.items()}
    )


def _with_names(given: Arguments) -> tuple[Arguments, dict[str, Any]]:
    return (given[:-1], given[-1]) if given and isinstance(given[-1], dict) else (given, {})


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
