"""Methods of Tensors: operations under their own names, and updates of elements, `x.at[key].set(value)`.

Each is the function of its name in `pcp.ops`, with the same defaults.
"""

from typing import Any, Self

from pcp.ir import DTypeLike

Axes = int | tuple[int, ...] | None
Type = DTypeLike | None
Value = Any
"""A Tensor, an array or a number."""


class Methods:
    """The methods of what operations take and make."""

    __slots__ = ()

    def _call(self, name: str, *arguments: Any, **named: Any) -> Self:
        """An operation of `pcp.ops`, by its name, on this and other arguments."""
        raise NotImplementedError

    @property
    def T(self) -> Self:
        """All axes in reverse order."""
        return self._call("transpose")

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        return self._call("swapaxes", -1, -2)

    @property
    def real(self) -> Self:
        """The real part of complex numbers; what is real itself."""
        return self._call("real")

    @property
    def imag(self) -> Self:
        """The imaginary part of complex numbers; 0 of what is real."""
        return self._call("imag")

    @property
    def at(self) -> "At":
        """What `x.at[key].set(value)` begins with: new tensors with some elements replaced or joined with others."""
        return At(self)

    # fmt: off
    def abs(self) -> Self: return self._call("abs")
    def all(self, axis: Axes = None, keepdims: bool = False, *, initial: Value = None, where: Value = None) -> Self:
        return self._call("all", axis, keepdims, initial=initial, where=where)
    def any(self, axis: Axes = None, keepdims: bool = False, *, initial: Value = None, where: Value = None) -> Self:
        return self._call("any", axis, keepdims, initial=initial, where=where)
    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self: return self._call("argmax", axis, keepdims)
    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self: return self._call("argmin", axis, keepdims)
    def argsort(self, axis: int | None = -1, descending: bool = False, *, stable: bool = True) -> Self:
        return self._call("argsort", axis, descending, stable=stable)
    def astype(self, dtype: DTypeLike) -> Self: return self._call("convert", dtype)
    def broadcast_to(self, shape: Any) -> Self: return self._call("broadcast_to", shape)
    def clip(self, min: Value = None, max: Value = None) -> Self: return self._call("clip", min, max)
    def conj(self) -> Self: return self._call("conj")
    def cos(self) -> Self: return self._call("cos")
    def cumprod(self, axis: int | None = None, reverse: bool = False, *, dtype: Type = None) -> Self:
        return self._call("cumprod", axis, reverse, dtype=dtype)
    def cumsum(self, axis: int | None = None, reverse: bool = False, *, dtype: Type = None) -> Self:
        return self._call("cumsum", axis, reverse, dtype=dtype)
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        return self._call("diagonal", offset, axis1, axis2)
    def dot(self, y: Value) -> Self: return self._call("dot", y)
    def exp(self) -> Self: return self._call("exp")
    def flatten(self) -> Self: return self._call("ravel")
    def log(self) -> Self: return self._call("log")
    def log1p(self) -> Self: return self._call("log1p")
    def max(self, axis: Axes = None, keepdims: bool = False, *, initial: Value = None, where: Value = None) -> Self:
        return self._call("max", axis, keepdims, initial=initial, where=where)
    def mean(self, axis: Axes = None, keepdims: bool = False, *, dtype: Type = None, where: Value = None) -> Self:
        return self._call("mean", axis, keepdims, dtype=dtype, where=where)
    def min(self, axis: Axes = None, keepdims: bool = False, *, initial: Value = None, where: Value = None) -> Self:
        return self._call("min", axis, keepdims, initial=initial, where=where)
    def prod(self, axis: Axes = None, keepdims: bool = False,
             *, dtype: Type = None, initial: Value = None, where: Value = None) -> Self:
        return self._call("prod", axis, keepdims, dtype=dtype, initial=initial, where=where)
    def ravel(self) -> Self: return self._call("ravel")
    def repeat(self, repeats: Any, axis: int | None = None) -> Self: return self._call("repeat", repeats, axis)
    def reshape(self, *shape: Any) -> Self: return self._call("reshape", shape[0] if len(shape) == 1 else shape)
    def round(self, decimals: int = 0) -> Self: return self._call("round", decimals)
    def rsqrt(self) -> Self: return self._call("rsqrt")
    def sigmoid(self) -> Self: return self._call("sigmoid")
    def sin(self) -> Self: return self._call("sin")
    def sort(self, axis: int | None = -1, descending: bool = False, *, stable: bool = True) -> Self:
        return self._call("sort", axis, descending, stable=stable)
    def sqrt(self) -> Self: return self._call("sqrt")
    def square(self) -> Self: return self._call("square")
    def squeeze(self, axis: Axes = None) -> Self: return self._call("squeeze", axis)
    def std(self, axis: Axes = None, keepdims: bool = False,
            *, ddof: float = 0, correction: float | None = None, dtype: Type = None, where: Value = None) -> Self:
        return self._call("std", axis, keepdims, ddof=ddof, correction=correction, dtype=dtype, where=where)
    def sum(self, axis: Axes = None, keepdims: bool = False,
            *, dtype: Type = None, initial: Value = None, where: Value = None) -> Self:
        return self._call("sum", axis, keepdims, dtype=dtype, initial=initial, where=where)
    def swapaxes(self, axis1: int, axis2: int) -> Self: return self._call("swapaxes", axis1, axis2)
    def take(self, indices: Value, axis: int | None = None, *, mode: str | None = None, fill_value: Value = None) -> Self:
        return self._call("take", indices, axis, mode=mode, fill_value=fill_value)
    def tanh(self) -> Self: return self._call("tanh")
    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Type = None) -> Self:
        return self._call("trace", offset, axis1, axis2, dtype)
    def transpose(self, *axes: Any) -> Self: return self._call("transpose", *axes)
    def var(self, axis: Axes = None, keepdims: bool = False,
            *, ddof: float = 0, correction: float | None = None, dtype: Type = None, where: Value = None) -> Self:
        return self._call("var", axis, keepdims, ddof=ddof, correction=correction, dtype=dtype, where=where)
    # fmt: on


class At:
    """Elements of a tensor by a key: `x.at[key]`, as JAX has it."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Methods) -> None:
        self._tensor = tensor

    def __getitem__(self, key: Any) -> "Places":
        return Places(self._tensor, key)


class Places:
    """Elements that can be read, replaced or joined with others; the tensor itself stays as it is.

    Keys are those of `x[key]`; values broadcast to its shape. A place that an array of indices names several times gets all
    values in turn; of several that are set, any may win. Indices in Tensors that lie beyond their axis are dropped.
    """

    __slots__ = ("_key", "_tensor")

    def __init__(self, tensor: Methods, key: Any) -> None:
        self._tensor = tensor
        self._key = key

    def _updated(self, value: Any, mode: str) -> Any:
        return self._tensor._call("index_update", self._key, value, mode)

    def get(self) -> Any:
        """x[key]."""
        return self._tensor._call("index", self._key)

    def set(self, value: Value) -> Any:
        """x with the elements replaced by a value."""
        return self._updated(value, "set")

    def add(self, value: Value) -> Any:
        """x with a value added to the elements."""
        return self._updated(value, "add")

    def subtract(self, value: Value) -> Any:
        """x with a value taken off the elements."""
        return self._updated(-value, "add")

    def multiply(self, value: Value) -> Any:
        """x with the elements multiplied by a value."""
        return self._updated(value, "multiply")

    mul = multiply

    def divide(self, value: Value) -> Any:
        """x with the elements divided by a value."""
        return self._tensor._call("divide", self._of_ones(value))

    def power(self, value: Value) -> Any:
        """x with the elements raised to the power of a value."""
        return self._tensor._call("power", self._of_ones(value))

    def _of_ones(self, value: Value) -> Any:
        """Ones, of the shape of x, multiplied by a value in these places."""
        return self._tensor._call("ones_like")._call("index_update", self._key, value, "multiply")

    def min(self, value: Value) -> Any:
        """x with the elements replaced by a value where it is smaller."""
        return self._updated(value, "min")

    def max(self, value: Value) -> Any:
        """x with the elements replaced by a value where it is larger."""
        return self._updated(value, "max")

    def apply(self, function: Any) -> Any:
        """x with the elements replaced by what a function of Tensors makes of them."""
        return self.set(function(self.get()))
