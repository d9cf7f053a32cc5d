"""Tensors: what they are, and the mistakes whose messages name the user's line."""

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.tensor import (
    DTypeMismatch,
    LeakedTensor,
    NoTrace,
    ShapeMismatch,
    Tensor,
    TensorHasNoValue,
    TracingError,
    current_builder,
)

F = pcp.spec((2, 3), "f32")


def line_of(function: Callable[..., Any], offset: int) -> str:
    """The place that an error in that line of a function ends with."""
    code = function.__code__
    return f"\n  at {code.co_filename}:{code.co_firstlineno + offset}, in {code.co_name}"


def mistake(function: Callable[..., Any], *specs: Any, error: type[Exception] = TracingError) -> str:
    """The message of the error that tracing a function raises."""
    with pytest.raises(error) as caught:
        pcp.trace(function, *(specs or (F,)))
    assert type(caught.value) is error
    return str(caught.value)


def test_shape_and_type_are_known_while_tracing() -> None:
    def look(x: Tensor) -> Tensor:
        assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == ((2, 3), "f32", 2, 6, 2)
        assert repr(x) == "Tensor(f32[2,3])"
        assert [row.shape for row in x] == [(3,), (3,)]
        assert x.T.shape == (3, 2)
        return x

    pcp.trace(look, F)


def test_shapes_that_do_not_broadcast() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        total = x + 1
        return total + y

    message = mistake(add, F, pcp.spec((2, 4), "f32"), error=ShapeMismatch)
    assert message.startswith("add: shapes (2, 3) and (2, 4) do not broadcast: sizes 3 and 4 meet")
    assert message.endswith(line_of(add, 2))


def test_a_matrix_product_of_wrong_sizes() -> None:
    def product(x: Tensor) -> Tensor:
        return x @ x

    message = mistake(product, error=ShapeMismatch)
    assert "matmul: shapes (2, 3) and (2, 3) do not fit: the last axis of the first has size 3" in message
    assert message.endswith(line_of(product, 1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.reshape(4, 2), r"reshape: shape (2, 3) has 6 elements and cannot become (4, 2)"),
        (lambda x: x.reshape(-1, -1), r"reshape: shape (2, 3) has 6 elements and cannot become (-1, -1)"),
        (
            lambda x: x.transpose(0, 0),
            "transpose: axes (0, 0) are not a permutation of the 2 axes of shape (2, 3)",
        ),
        (lambda x: x.sum(2), "sum: axis 2 was given for a tensor of rank 2; expected -2 <= axis < 2"),
        (lambda x: x.sum((0, -2)), "sum: axes (0, -2) name one axis twice"),
        (lambda x: x.broadcast_to((3, 3)), "broadcast_to: shape (2, 3) does not broadcast to (3, 3)"),
        (lambda x: x.swapaxes(0, 5), "swapaxes: axis 5 was given for a tensor of rank 2"),
        (lambda x: x @ 2.0, "matmul: shapes (2, 3) and () were given; a scalar is not a matrix; use *"),
        (lambda x: len(x[0, 0]), "a Tensor of rank 0 has no length"),
    ],
)
def test_wrong_shapes_are_explained(wrong: Any, message: str) -> None:
    assert message in mistake(wrong, error=ShapeMismatch)


def test_an_element_type_that_does_not_fit() -> None:
    def invert(x: Tensor) -> Tensor:
        return ~x

    message = mistake(invert, error=DTypeMismatch)
    assert (
        "bitwise_not: element type f32 was given; expected bool or signed or unsigned; use .astype" in message
    )
    assert message.endswith(line_of(invert, 1))


@pytest.mark.parametrize("value", ["text", object(), [1, 2], {"a": 1}, None])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    assert "cannot become a tensor" in mistake(lambda x: x + value, error=DTypeMismatch)


def test_arrays_of_objects_are_refused() -> None:
    array = np.array([None, 1], object)
    assert "an array of object cannot become a tensor" in mistake(lambda x: x + array, error=DTypeMismatch)


def test_a_tensor_is_no_condition() -> None:
    def branch(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x

    message = mistake(branch, error=TensorHasNoValue)
    assert "Tensor(bool[]) was used as a Python condition, but it has no value during tracing" in message
    assert "use pcp.where" in message
    assert message.endswith(line_of(branch, 1))


@pytest.mark.parametrize("convert", [float, int, complex, range, math.sqrt])
def test_a_tensor_is_no_number(convert: Callable[[Any], Any]) -> None:
    message = mistake(lambda x: convert(x.sum()), error=TensorHasNoValue)
    assert "Tensor(f32[]) was used as a Python number" in message


@pytest.mark.parametrize("function", [np.asarray, lambda x: np.ones(3) @ np.asarray(x)])
def test_numpy_cannot_have_it(function: Callable[[Any], Any]) -> None:
    with pytest.raises((TensorHasNoValue, TypeError)):
        pcp.trace(function, F)


def test_numpy_arrays_on_the_left_are_fine() -> None:
    y = np.arange(3, dtype=np.float32)
    program = pcp.trace(lambda x: (y + x, y * x, y - x, y < x), F)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    for result, expected in zip(pcp.plan(program).run(x), (y + x, y * x, y - x, y < x), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_tensor_is_no_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        pcp.trace(lambda x: {x: 1}, F)


def test_a_tensor_that_left_its_trace_is_noticed() -> None:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return x

    def use(x: Tensor) -> Tensor:
        return x + kept[0]

    pcp.trace(keep, F)
    message = mistake(use, error=LeakedTensor)
    assert "Tensor(f32[2,3]) was made in a function or block whose trace has ended" in message
    assert "return it from there, or pass it as an argument" in message
    assert message.endswith(line_of(use, 1))
    assert "whose trace has ended" in mistake(lambda x: kept[0], error=LeakedTensor)  # noqa: ARG005  (returned as it is)


def test_a_tensor_of_an_outer_trace_does_not_enter_an_inner_one() -> None:
    def outer(x: Tensor) -> Any:
        return pcp.call(pcp.trace(lambda y: y + x, F), x)

    assert "whose trace has ended" in mistake(outer, error=LeakedTensor)


def test_outside_of_a_trace_no_tensor_of_one_can_be_used() -> None:
    kept: list[Tensor] = []
    pcp.trace(lambda x: kept.append(x) or x, F)
    for wrong in (lambda: kept[0] + 1, current_builder):
        with pytest.raises(TracingError, match=r"traced function|trace has ended") as caught:
            wrong()
        assert isinstance(caught.value, NoTrace | LeakedTensor)
        assert "test_tensor.py:" in str(caught.value)


@pytest.mark.parametrize("use", [lambda x: x.item(), lambda x: x.tolist(), lambda x: f"{x:.3f}"])
def test_a_tensor_without_a_value_says_how_to_read_it(use: Callable[[Tensor], Any]) -> None:
    message = mistake(lambda x: use(x.sum()), error=TensorHasNoValue)
    assert "it has no value during tracing: return it and read the result" in message
    assert pcp.trace(lambda x: (f"{x}", x)[1], F).results[0].spec.shape == (2, 3)


def test_other_threads_do_not_see_the_trace() -> None:
    found: list[BaseException] = []

    def work(x: Tensor) -> None:
        try:
            _ = x + 1
        except TracingError as error:
            found.append(error)

    def function(x: Tensor) -> Tensor:
        thread = threading.Thread(target=work, args=(x,))
        thread.start()
        thread.join()
        return x

    pcp.trace(function, F)
    assert len(found) == 1


def test_threads_may_trace_at_the_same_time() -> None:
    programs: list[pcp.Program] = []

    def work() -> None:
        programs.append(pcp.trace(lambda x: (x * 2).sum(), F))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({program.digest for program in programs}) == 1
    assert len(programs) == 4


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "+x": lambda x: +x,
    "5 & x": lambda x: 5 & x,
    "5 | x": lambda x: 5 | x,
    "5 ^ x": lambda x: 5 ^ x,
    "1 << x": lambda x: 1 << x,
    "64 >> x": lambda x: 64 >> x,
    "divmod(x, 2)": lambda x: divmod(x, 2)[1] + 10 * divmod(x, 2)[0],
    "divmod(7, x)": lambda x: divmod(7, x)[1] + 10 * divmod(7, x)[0],
    "array & x": lambda x: np.array([1, 2, 3], np.int32) & x,
}


def test_operators_are_those_of_an_array_from_either_side() -> None:
    x = np.array([1, 2, 3], np.int32)
    program = pcp.trace(lambda x: [each(x) for each in OPERATORS.values()], x)
    for (shown, expected), found in zip(
        OPERATORS.items(), pcp.plan(program, "arena:cpu").run(x), strict=True
    ):
        assert np.array_equal(np.asarray(found), expected(x)), shown
    missing = [
        name
        for name in dir(np.ndarray)
        if name.startswith("__") and name.replace("__r", "__") in vars(Tensor) and not hasattr(Tensor, name)
    ]
    assert missing == []
