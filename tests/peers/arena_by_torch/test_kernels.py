"""Each kernel of torch beside the function of the arena whose place it takes, in every type and layout that it takes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcp.backends.arena.lowerings.elementwise import clamp, logistic, narrowed, power, rsqrt, select
from pcp.backends.arena.lowerings.reductions import along
from pcp.backends.arena.recording import copy_rounded
from pcp.backends.arena.storage import Instruction, Storage, View, row_major
from pcp.backends.arena.torch.kernels import COPIED, INTEGERS, KERNELS, NARROW, REDUCED
from pcp.backends.arena.torch.providing import provide
from pcp.backends.arena.torch.tensors import tensor_over

Array = np.ndarray[Any, Any]

NEAR = {"bfloat16": 1e-2, "float16": 2e-3, "float32": 2e-6, "float64": 1e-13}
NEAR |= {"complex64": NEAR["float32"], "complex128": NEAR["float64"]}
SHAPE = (12, 10)
ONE = {
    *(
        np.exp,
        np.expm1,
        np.log,
        np.log1p,
        np.sqrt,
        rsqrt,
        np.sin,
        np.cos,
        np.tan,
        np.tanh,
        logistic,
        np.floor,
        np.ceil,
    ),
    *(np.rint, np.negative, np.abs),
}
"""Functions of one array; others take two, if `ARGUMENTS` does not say otherwise."""
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda x: x,
    "columns": lambda x: np.asarray(x.T, order="C").T,
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "one element": lambda x: np.broadcast_to(x[:1, :1], x.shape),
    "every second": lambda x: np.repeat(x, 2, 1)[:, ::2],
}


def drawn(dtype: Any, shape: tuple[int, ...] = SHAPE) -> Array:
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(0 if dtype.kind == "u" else -9, 9, shape).astype(dtype)
    made = rng.uniform(0.2, 2.6, shape)
    return (made + 1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else made).astype(dtype)


def arguments_of(function: Any, dtype: Any, laid: Callable[[Array], Array]) -> tuple[list[Any], int]:
    """What a function of the arena takes, and the place of what it writes."""
    x, y, out = laid(drawn(dtype)), laid(drawn(dtype)[::-1].copy()), np.zeros(SHAPE, dtype)
    if function is np.copyto:
        return [out, x[:1, :1] if 0 in x.strides else x], 0
    if function in (narrowed, copy_rounded):
        return [x, out], 1
    if function is select:
        return [laid(drawn(bool)), x, y, out], 3
    if function is clamp:
        return [y[:1, :1], x, y, out], 3
    if function is np.matmul:
        return [x, y.T, np.zeros((SHAPE[0], SHAPE[0]), dtype)], 2
    if function in ONE:
        return [x, out], 1
    y = y[:1] if 0 in y.strides else y
    compares = function in (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
    return [x, y, out.astype(bool) if compares else out], 2


def assert_same(function: Any, kernel: Callable[..., object], arguments: list[Any], written: int) -> None:
    copies = [x.copy() if n == written else x for n, x in enumerate(arguments)]
    tensors = [tensor_over(x) if isinstance(x, np.ndarray) else x for x in copies]
    with np.errstate(all="ignore"):
        function(*arguments)
    kernel(*tensors)
    made, expected = copies[written], arguments[written]
    near = NEAR.get(made.dtype.name, 0.0)
    wide = np.complex128
    scale = abs(expected.astype(wide)).max()
    np.testing.assert_allclose(made.astype(wide), expected.astype(wide), rtol=near, atol=near * scale)


CASES = [
    pytest.param(function, dtype, id=f"{function.__name__}-{dtype.name}")
    for function, kernel in KERNELS.items()
    if function is not along
    for dtype in sorted(kernel.types, key=str)
]


@pytest.mark.parametrize(("function", "dtype"), CASES)
def test_a_kernel_computes_what_the_arena_does(function: Any, dtype: Any) -> None:
    for laid in LAYOUTS.values():
        assert_same(function, KERNELS[function].function, *arguments_of(function, dtype, laid))


@pytest.mark.parametrize("source", sorted(dict(KERNELS[narrowed].apart)[0], key=str), ids=lambda x: x.name)
@pytest.mark.parametrize("target", sorted(KERNELS[narrowed].types, key=str), ids=lambda x: x.name)
def test_a_conversion_rounds_as_the_arena_does(source: Any, target: Any) -> None:
    arguments = [drawn(source), np.zeros(SHAPE, target)]
    expected = arguments[1].copy()
    narrowed(arguments[0], expected)
    KERNELS[narrowed].function(*map(tensor_over, arguments))
    np.testing.assert_array_equal(arguments[1], expected)


@pytest.mark.parametrize("dtype", sorted(KERNELS[along].types, key=str), ids=lambda x: x.name)
@pytest.mark.parametrize("ufunc", sorted(REDUCED, key=str), ids=lambda x: x.__name__)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_a_reduction_is_that_of_the_arena(ufunc: Any, dtype: Any, axes: tuple[int, ...]) -> None:
    x = drawn(dtype, (3, 4, 5))
    wide = np.dtype(np.float32) if dtype in NARROW and ufunc is np.add else dtype
    axes = axes[:1] if wide.kind == "V" else axes  # of ml_dtypes' types NumPy reduces one axis at once
    out = np.zeros([n for axis, n in enumerate(x.shape) if axis not in axes], wide)
    for each in (x, np.asarray(x.T, order="C").T):
        assert_same(along, KERNELS[along].function, [ufunc, each, axes, out.copy()], 3)


@pytest.mark.parametrize("dtype", sorted(COPIED, key=str), ids=lambda x: x.name)
def test_a_tensor_lies_in_the_memory_of_its_array(dtype: Any) -> None:
    array = drawn(dtype)
    array.flags.writeable = False
    for each in (array, array.T, array[2:, ::3], array[:0], array[0, 0:1].reshape(())):
        tensor = tensor_over(each)
        assert tuple(tensor.shape) == each.shape
        if each.size:
            assert tensor.data_ptr() == each.__array_interface__["data"][0]


def view_of(shape: tuple[int, ...], dtype: Any = np.float32, storage: Storage | None = None) -> View:
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return View(storage or Storage(size), 0, shape, row_major(shape, dtype.itemsize), dtype)


LARGE = (200, 200)
HALF, BOOL = np.dtype(np.float16), np.dtype(bool)
SHARED = Storage(2 * 40_200)
SELECTED = (view_of(LARGE, BOOL), view_of(LARGE), view_of(LARGE), view_of(LARGE))


def halves(*shapes: tuple[int, ...]) -> tuple[View, ...]:
    return tuple(view_of(shape, HALF) for shape in shapes)


@pytest.mark.parametrize(
    ("function", "arguments", "count"),
    [
        (np.add, halves(LARGE, LARGE, LARGE), 1),
        (np.add, halves((20,), (20,), (20,)), 0),  # small: NumPy's call begins sooner
        (np.add, (view_of(LARGE), view_of(LARGE), view_of(LARGE)), 0),  # no faster
        (np.add, (halves(LARGE)[0].reversed([0]), *halves(LARGE, LARGE)), 0),
        (np.add, (halves(LARGE)[0].sliced((0, 0), LARGE, (1, 2)), *halves((200, 100), (200, 100))), 1),
        (np.add, halves((), (), LARGE), 0),  # torch would make the result a scalar
        (np.less, (*halves(LARGE, LARGE), view_of(LARGE, BOOL)), 1),
        (np.fmod, halves(LARGE, LARGE, LARGE), 0),  # wrong for large numbers in torch
        (power, halves(LARGE, LARGE, LARGE), 1),
        (np.exp, (view_of(LARGE, HALF, SHARED), view_of(LARGE, HALF, SHARED)), 1),  # in place
        (
            np.exp,
            (
                view_of((200, 201), HALF, SHARED).sliced((0, 1), (200, 201), (1, 1)),
                view_of((200, 201), HALF, SHARED).sliced((0, 0), (200, 200), (1, 1)),
            ),
            0,
        ),
        (select, SELECTED, 1),
        (select, (view_of(LARGE, np.uint8), *SELECTED[1:]), 0),
        (select, (*SELECTED[:2], view_of(LARGE, np.uint32), view_of(LARGE, np.uint32)), 0),
        (narrowed, (view_of(LARGE), *halves(LARGE)), 1),
        (narrowed, (view_of(LARGE, np.uint64), *halves(LARGE)), 0),
        (np.matmul, (view_of((2, 2)), view_of((2, 2)), view_of((2, 2))), 1),
        (np.matmul, halves((2, 2), (2, 2), (2, 2)), 0),
        (along, (np.add, view_of(LARGE), (1,), view_of(LARGE[:1])), 1),
        (along, (np.add, view_of(LARGE), (0,), view_of(LARGE[:1])), 0),  # NumPy adds row to row
        (along, (np.add, view_of(LARGE).transposed((1, 0)), (0,), view_of(LARGE[:1])), 1),
        (along, (np.maximum, *halves(LARGE)[:1], (0,), *halves(LARGE[:1])), 1),
        (along, (np.multiply, view_of(LARGE), (1,), view_of(LARGE[:1])), 0),
        (along, (np.add, view_of(LARGE), (), view_of(LARGE)), 0),  # no axes are all axes, to torch
    ],
)  # fmt: skip
def test_what_torch_takes(function: Any, arguments: tuple[Any, ...], count: int) -> None:
    instruction = Instruction(function, arguments, (len(arguments) - 1,), 0)
    outer = Instruction(print, ([instruction],), (), 0)  # a loop's list, too
    assert provide([outer]) == count
    assert (instruction.function is not function, instruction.over is tensor_over) == (bool(count),) * 2
    assert outer.over is None
