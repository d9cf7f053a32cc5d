"""No wrong argument of an operation or a method ends in a raw exception of Python, NumPy or MLIR.

Every operation and method is called with what its signature does not admit, one argument at a time. Either it makes
something of that, or a PCPError names the operation or the argument and ends with the user's file and line.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn, ops
from pcp.tensor import OPERATIONS, Tensor, WrongArgument

WRONG: tuple[Any, ...] = (
    None, "ab", "", 1.5, -1, 99, True, 1j, float("nan"), 2**70, b"x", object(), {}, {"a": 1}, [], (), [None], ["a"], (0, 0),
    (-9, 1), (1.5,), [[0, 1], [1]], range(3), slice(None), Ellipsis, np.array(["a"]), np.zeros((2, 0)), np.float32(3),
    np.ones(3, object), int, lambda: None, "f8", np.dtype("M8[s]"),
)  # fmt: skip
"""Wrong kinds, ranks, axes, sizes, element types and containers."""

# What a parameter is given while another one is wrong: by its name, else by position a Tensor.
RIGHT: dict[str, Any] = {
    "axis": 0, "axes": 0, "shape": (3, 2), "dtype": "f32", "keepdims": False, "tensors": [np.ones((2, 3)), np.ones((2, 3))],
    "indices": np.array([[0, 1, 1]]), "start": (0, 0), "stop": (1, 2), "sizes": (1, 2), "widths": [(1, 0), (0, 1)],
    "count": 3, "first": 0, "second": 1, "source": 0, "destination": 1, "times": 2, "shift": 1, "parts": 1, "k": 1,
    "q": 0.5, "order": 2, "formula": "ij->ji", "key": np.array([1, 2], np.uint32), "value": 1.0, "rows": 2, "offset": 0,
    "low": 0, "high": 4, "condition": np.ones((2, 3), bool), "contract": ((1,), (1,)), "window": (1, 1), "reduction": "sum",
    "size": 2, "branches": [], "body": lambda *c: c[-1], "initial": 0.0, "predicate": True, "true": lambda: 1,
    "false": lambda: 2, "carry": 0.0, "length": 2, "lower": 0, "upper": 2, "index": 0, "groups": 1, "heads": 1, "data": 3,
    "seed": 1, "group": [[0]], "targets": np.array([0, 1]),
}  # fmt: skip


def _calls(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[[Tensor], Any]]]:
    """The function with one wrong argument after another, as functions of a Tensor to be traced."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    if parameters[0].name != "self":  # Python itself says what is wrong with calls of methods
        yield "nothing", lambda _: function()
        yield "an unknown name", lambda x: function(x, colour=1)
    for chosen in parameters:
        if chosen.name == "self":
            continue
        for wrong in WRONG:

            def call(x: Tensor, chosen: inspect.Parameter = chosen, wrong: Any = wrong) -> Any:
                given: list[Any] = []
                named: dict[str, Any] = {}
                for parameter in parameters:
                    value = wrong if parameter is chosen else RIGHT.get(parameter.name, x)
                    if parameter.kind is parameter.KEYWORD_ONLY:
                        if parameter is chosen:
                            named[parameter.name] = value
                    elif parameter is chosen or parameter.default is parameter.empty:
                        if named:
                            named[parameter.name] = value
                        else:
                            given.append(value)
                    else:
                        named[parameter.name] = RIGHT.get(parameter.name, parameter.default)
                return function(*given, **named)

            yield f"{chosen.name} = {wrong!r}", call


def _raw(function: Callable[..., Any]) -> list[str]:
    """What was raised that is no PCPError, or does not say where."""
    calls = dict(_calls(function))
    try:
        return _raised(calls)
    except pcp.PCPError:  # what a call left behind before it raised does not verify
        return [said for label, call in calls.items() for said in _raised_alone(label, call)]


def _raised(calls: dict[str, Callable[[Tensor], Any]]) -> list[str]:
    """The same of calls that are made in one trace, since most of the time goes to what is done once in a trace."""
    found = []

    def every(x: Tensor) -> Tensor:
        for label, call in calls.items():
            try:
                call(x)
            except Exception as error:
                found.extend(_judged(label, error))
        return x

    pcp.trace(every, pcp.spec((2, 3), "f32"))
    return found


def _raised_alone(label: str, call: Callable[[Tensor], Any]) -> list[str]:
    try:
        pcp.trace(lambda x: (call(x), x)[1], pcp.spec((2, 3), "f32"))
    except Exception as error:
        return _judged(label, error)
    return []


def _judged(label: str, error: Exception) -> list[str]:
    if not isinstance(error, pcp.PCPError):
        return [f"{label}: {type(error).__name__}: {error}"]
    if "test_wrong_arguments.py:" not in str(error):
        return [f"{label}: no place: {type(error).__name__}: {error}"]
    return []


METHODS = sorted(
    name
    for name, method in vars(Tensor).items()
    if callable(method)
    and name not in ("__init__", "__array__", "__repr__", "_entering", "_operation", "_call")
)


def _functions(module: Any, place: str) -> list[str]:
    """The functions of a module that are defined in `place` and below."""
    return sorted(
        name
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__.startswith(place) and not name.startswith("_")
    )


RANDOM, LAYERS = _functions(ops.random, "pcp.ops.random"), _functions(nn, "pcp.nn")
# What makes arrays of arrays, fields of a class, and models of models stands in no program.
LAYERS = [name for name in LAYERS if name not in ("quantise", "buffer", "split", "merge")]


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_explains_wrong_arguments(name: str) -> None:
    assert _raw(OPERATIONS[name]) == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_explains_wrong_arguments(name: str) -> None:
    assert _raw(getattr(Tensor, name)) == []


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_number_explains_wrong_arguments(name: str) -> None:
    assert _raw(getattr(ops.random, name)) == []


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_explains_wrong_arguments(name: str) -> None:
    assert _raw(getattr(nn, name)) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: ops.reshape(x, "ab"), "reshape: shape = 'ab' was given; expected a sequence of integers or an integer"),
        (lambda x: x.reshape(None), "reshape: shape = None was given; expected a sequence of integers or an integer"),
        (lambda x: ops.add(x), "add: missing a required argument: 'y'; expected add(x, y)"),
        (lambda x: ops.top_k(x, "2"), "top_k: k = '2' was given; expected an integer"),
        (lambda x: ops.fori_loop(0, 2, 3, x), "fori_loop: body = 3 was given; expected a function"),
        (lambda x: nn.group_norm(x, "2"), "group_norm: groups = '2' was given; expected an integer"),
    ],
)  # fmt: skip
def test_the_argument_is_named_with_what_was_expected(function: Any, message: str) -> None:
    with pytest.raises(WrongArgument) as caught:
        pcp.trace(function, pcp.spec((2, 3), "f32"))
    assert message in str(caught.value)
    assert "test_wrong_arguments.py:" in str(caught.value)


def test_an_element_type_or_shape_that_is_none_names_the_line_too() -> None:
    with pytest.raises(pcp.PCPError, match=r"(?s)convert: 'f8' is no name .*test_wrong_arguments.py:"):
        pcp.trace(lambda x: x.astype("f8"), pcp.spec((2,), "f32"))
    with pytest.raises(
        pcp.PCPError, match=r"(?s)zeros: shape \(2, -1\) has the size -1.*test_wrong_arguments.py:"
    ):
        pcp.trace(lambda x: x + ops.zeros((2, -1)), pcp.spec((2,), "f32"))


def test_what_a_function_of_the_user_raises_passes_unchanged() -> None:
    def body(_: Tensor, __: Tensor) -> Tensor:
        return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        pcp.trace(lambda x: ops.fori_loop(0, 2, body, x), pcp.spec((2,), "f32"))
