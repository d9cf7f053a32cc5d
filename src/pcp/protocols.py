"""Functions of NumPy and PyTorch that are given a Tensor.

NumPy's have the names and defaults of PCP's, so PCP's compute. PyTorch's have others: they compute with arrays that have a
value, and of a Tensor without one the error says what to write.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from pcp.foreign import to_torch
from pcp.refusals import TensorHasNoValue, TracingError

_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_ATTRIBUTES = ("shape", "ndim", "size")
_OF_TORCH = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "pow": "power", "cat": "concatenate",
    "mm": "matmul", "bmm": "matmul", "clamp": "clip", "permute": "transpose", "unsqueeze": "expand_dims",
}  # fmt: skip
_LAYERS = (
    "relu",
    "gelu",
    "silu",
    "softplus",
    "elu",
    "leaky_relu",
    "layer_norm",
    "cross_entropy",
    "linear",
    "embedding",
    "dropout",
)


class TakenByOthers:
    """What functions of NumPy and PyTorch make of Tensors."""

    __slots__ = ()

    @staticmethod
    def _operation(name: str) -> Callable[..., Any] | None:
        """The operation of PCP of that name."""
        raise NotImplementedError

    def _value(self) -> "np.ndarray[Any, Any]":
        """Its elements, if it has a value."""
        return np.asarray(self)

    @property
    def _has_value(self) -> bool:
        return False

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        name, out = ufunc.__name__, named.pop("out", ())
        operation = self._operation(name)
        if operation is None or method != "__call__" or named:
            shown = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
            return _by_numpy(shown, getattr(ufunc, method), inputs, named)
        if name in _COMPARISONS:
            # NumPy makes arrays of its scalars there, which would be of a type of their own.
            inputs = tuple(x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
        result = operation(*inputs)
        if not out:
            return result
        if isinstance(result, TakenByOthers) and result._has_value:
            np.copyto(out[0], result._value(), casting="same_kind")
            return out[0]
        if out[0] is inputs[0]:  # as `array += tensor` has it, after which the name stands for the result
            return result
        return _refuse(f"np.{name} with out=", f"write the result under a new name: y = pcp.{name}(...)")

    def __array_function__(self, function: Any, _: Any, arguments: Any, named: dict[str, Any]) -> Any:
        name = function.__name__
        if name in _ATTRIBUTES and len(arguments) == 1:
            return getattr(arguments[0], name)
        operation = self._operation(name) if function.__module__ == "numpy" else None
        shown = f"{function.__module__}.{name}".replace("numpy", "np", 1)
        if operation is None:
            return _by_numpy(shown, function, arguments, named)
        try:
            return operation(*arguments, **named)
        except TracingError as error:  # NumPy takes lists as arrays
            try:
                return _by_numpy(shown, function, arguments, named)
            except TensorHasNoValue:
                raise error from None

    @classmethod
    def __torch_function__(
        cls, function: Any, _: Any, arguments: Sequence[Any] = (), named: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        ours = _OF_TORCH.get(name, name)
        if cls._operation(ours):
            advice = f"write pcp.{ours}(...)"
        else:
            advice = f"write pcp.nn.{name}(...)" if name in _LAYERS else "compute with pcp's operations"

        def taken(value: Any) -> Any:
            return to_torch(value._value()) if value._has_value else _refuse(f"torch.{name}", advice)

        return function(*_with(taken, arguments), **_with(taken, named or {}))


def _by_numpy(
    shown: str, function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]
) -> Any:
    """What a function of NumPy makes of arrays that have a value; PCP has no such operation."""

    def taken(value: Any) -> Any:
        if value._has_value:
            return value._value()
        return _refuse(shown, "compute with pcp's operations, or outside of the traced function")

    return function(*_with(taken, arguments), **_with(taken, named))


def _with(taken: Callable[[Any], Any], value: Any) -> Any:
    """Nested arguments with what `taken` makes of each Tensor."""
    if isinstance(value, TakenByOthers):
        return taken(value)
    if isinstance(value, tuple | list):
        return type(value)(_with(taken, entry) for entry in value)
    if isinstance(value, dict):
        return {key: _with(taken, entry) for key, entry in value.items()}
    return value


def _refuse(shown: str, advice: str) -> NoReturn:
    raise TensorHasNoValue(f"{shown} was given a Tensor, which has no value during tracing; {advice}")
