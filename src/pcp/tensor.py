"""Tensor: a symbolic handle to a value of a program under construction.

It holds no data. Its operators are the functions of `pcp.ops`, which enter themselves in `OPERATIONS` when they are defined.
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from pcp.foreign import on_host
from pcp.ir import Builder, DType, DTypeLike, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.types import dtype_of
from pcp.methods import Axes as Axes
from pcp.methods import Methods
from pcp.protocols import TakenByOthers
from pcp.refusals import BUILDER as _CURRENT
from pcp.refusals import DTypeMismatch as DTypeMismatch
from pcp.refusals import IndexOutOfBounds as IndexOutOfBounds
from pcp.refusals import LeakedTensor as LeakedTensor
from pcp.refusals import NoTrace as NoTrace
from pcp.refusals import ShapeMismatch as ShapeMismatch
from pcp.refusals import TensorHasNoValue as TensorHasNoValue
from pcp.refusals import TracingError as TracingError
from pcp.refusals import WrongArgument as WrongArgument
from pcp.refusals import explained as explained
from pcp.refusals import numbers_of as numbers_of
from pcp.refusals import user_frame as user_frame
from pcp.refusals import with_value
from pcp.symbolic.watching import WATCH

Scalar = bool | int | float | complex
"""A Python number: it takes the element type of the tensor that it meets."""


class Tensor(Methods, TakenByOthers):
    """A value of a program under construction: shape and element type, no data.

    Tensors come from `pcp.trace`, which passes them to the traced function, and from operations on them.
    """

    __slots__ = ("_builder", "_scope", "_spec", "value")
    __array_priority__ = 1000

    def __init__(self, value: Value, builder: Builder, spec: TensorSpec | None = None) -> None:
        self.value = value
        self._builder = builder
        self._scope = builder.scope
        self._spec = spec_of(value.type) if spec is None else spec

    @property
    def spec(self) -> TensorSpec:
        """Shape and element type."""
        return self._spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; where they are symbolic, what takes the place of an integer (`pcp.symbolic.sizes`)."""
        watch = WATCH.get()
        return self._spec.shape if watch is None else watch.shape(self._spec.shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec.shape)

    @property
    def size(self) -> int:
        """Number of elements; where sizes are symbolic, one that remembers what it stands for."""
        watch = WATCH.get()
        return self._spec.size if watch is None else math.prod(watch.shape(self._spec.shape))

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        return _call(name, self, *arguments, **named)

    @staticmethod
    def _operation(name: str) -> Callable[..., Any] | None:
        if not OPERATIONS:
            importlib.import_module(_OPERATIONS)
        return OPERATIONS.get(name)

    def _entering(self, builder: Builder | None) -> "Tensor":
        """What stands for it in a trace that did not make it."""
        if self._scope.open and builder is not None and builder.capture is not None:
            captured: Tensor = builder.capture(self)
            return captured
        raise LeakedTensor(
            f"{self!r} was made in a function or block whose trace has ended; return it from there, or pass it as an argument"
        )

    def __repr__(self) -> str:
        return f"Tensor({self._spec})"

    def __len__(self) -> int:
        return self._length()

    def __bool__(self) -> bool:
        raise TensorHasNoValue(
            f"{self!r} was used as a Python condition, but it has no value during tracing; "
            "use pcp.where to choose between values"
        )

    def _no_number(self, *_: Any) -> Any:
        raise TensorHasNoValue(
            f"{self!r} was used as a Python number, but it has no value during tracing: return it and read the result, or "
            "compute with it by pcp's operations"
        )

    __float__ = __int__ = __index__ = __complex__ = item = tolist = numpy = _no_number

    def __format__(self, form: str) -> str:
        return str(self) if isinstance(form, str) and not form else str(self._no_number())

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        raise TensorHasNoValue(
            f"{self!r} was given to NumPy, but it has no value during tracing; use pcp's operations"
        )

    def __iter__(self) -> Iterator["Tensor"]:
        return map(self.__getitem__, range(self._length()))

    def _length(self) -> int:
        if not self._spec.shape:
            raise ShapeMismatch("a Tensor of rank 0 has no length")
        watch = WATCH.get()
        return self._spec.shape[0] if watch is None else watch.length(self._spec.shape)

    # fmt: off
    def __add__(self, other: "TensorLike") -> "Tensor": return _call("add", self, other)
    def __radd__(self, other: "TensorLike") -> "Tensor": return _call("add", other, self)
    def __sub__(self, other: "TensorLike") -> "Tensor": return _call("subtract", self, other)
    def __rsub__(self, other: "TensorLike") -> "Tensor": return _call("subtract", other, self)
    def __mul__(self, other: "TensorLike") -> "Tensor": return _call("multiply", self, other)
    def __rmul__(self, other: "TensorLike") -> "Tensor": return _call("multiply", other, self)
    def __truediv__(self, other: "TensorLike") -> "Tensor": return _call("divide", self, other)
    def __rtruediv__(self, other: "TensorLike") -> "Tensor": return _call("divide", other, self)
    def __floordiv__(self, other: "TensorLike") -> "Tensor": return _call("floor_divide", self, other)
    def __rfloordiv__(self, other: "TensorLike") -> "Tensor": return _call("floor_divide", other, self)
    def __mod__(self, other: "TensorLike") -> "Tensor": return _call("modulo", self, other)
    def __rmod__(self, other: "TensorLike") -> "Tensor": return _call("modulo", other, self)
    def __pow__(self, other: "TensorLike") -> "Tensor": return _call("power", self, other)
    def __rpow__(self, other: "TensorLike") -> "Tensor": return _call("power", other, self)
    def __matmul__(self, other: "TensorLike") -> "Tensor": return _call("matmul", self, other)
    def __rmatmul__(self, other: "TensorLike") -> "Tensor": return _call("matmul", other, self)
    def __divmod__(self, other: "TensorLike") -> tuple["Tensor", "Tensor"]: return self // other, self % other
    def __rdivmod__(self, other: "TensorLike") -> tuple["Tensor", "Tensor"]:
        return _call("floor_divide", other, self), _call("modulo", other, self)
    def __pos__(self) -> "Tensor": return self
    def __round__(self, decimals: int = 0) -> "Tensor": return _call("round", self, decimals)
    def __neg__(self) -> "Tensor": return _call("negate", self)
    def __abs__(self) -> "Tensor": return _call("abs", self)
    def __invert__(self) -> "Tensor": return _call("bitwise_not", self)
    def __and__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_and", self, other)
    def __rand__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_and", other, self)
    def __or__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_or", self, other)
    def __ror__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_or", other, self)
    def __xor__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_xor", self, other)
    def __rxor__(self, other: "TensorLike") -> "Tensor": return _call("bitwise_xor", other, self)
    def __lshift__(self, other: "TensorLike") -> "Tensor": return _call("shift_left", self, other)
    def __rlshift__(self, other: "TensorLike") -> "Tensor": return _call("shift_left", other, self)
    def __rshift__(self, other: "TensorLike") -> "Tensor": return _call("shift_right", self, other)
    def __rrshift__(self, other: "TensorLike") -> "Tensor": return _call("shift_right", other, self)
    def __lt__(self, other: "TensorLike") -> "Tensor": return _call("less", self, other)
    def __le__(self, other: "TensorLike") -> "Tensor": return _call("less_equal", self, other)
    def __gt__(self, other: "TensorLike") -> "Tensor": return _call("greater", self, other)
    def __ge__(self, other: "TensorLike") -> "Tensor": return _call("greater_equal", self, other)
    def __eq__(self, other: object) -> "Tensor": return _call("equal", self, other)  # type: ignore[override]  # elementwise, as NumPy
    def __ne__(self, other: object) -> "Tensor": return _call("not_equal", self, other)  # type: ignore[override]  # elementwise, as NumPy
    def __getitem__(self, index: Any) -> "Tensor": return _call("index", self, index)
    # fmt: on

    __hash__ = None  # type: ignore[assignment]  # equality compares elements, so a Tensor cannot be a key


class NumberTensor(Tensor):
    """A scalar that a program takes in the place of a Python number: it takes the element type of the tensor that it meets.

    Arguments:
        weak: the element type that it has where it meets none.
    """

    __slots__ = ("weak",)

    def __init__(self, value: Value, builder: Builder, weak: DType) -> None:
        super().__init__(value, builder)
        self.weak = weak

    def of(self, dtype: DTypeLike | None, here: Tensor) -> Tensor:
        """The scalar in an element type; `here` stands for it where it is used."""
        plain = Tensor(here.value, here._builder, self._spec)
        plain._scope = here._scope
        return plain.astype(self.weak if dtype is None else dtype)


TensorLike = Tensor | np.ndarray[Any, Any] | np.generic | Scalar
Limit = TensorLike | None

OPERATIONS: dict[str, Callable[..., Tensor]] = {}
"""Every function of `pcp.ops` by its name."""
_OPERATIONS = "pcp.ops"
"""A later layer, imported by whoever first uses an operator without it."""

_F = TypeVar("_F", bound=Callable[..., Any])


def operation(function: _F) -> _F:
    """Enter a function of Tensors in `OPERATIONS` under its name, without the underscore that keeps it off one of Python's.

    Returns:
        The function behind the border that explains its wrong arguments.
    """
    entered = OPERATIONS[function.__name__.rstrip("_")] = explained(function)
    return entered


def export_operations(module: str) -> None:
    """Let `from module import *` import what the module holds of the functions in `OPERATIONS`, each by one name.

    This sets `__all__`, where a list that is computed would keep type checkers from finding the names.
    """
    held = vars(sys.modules[module])
    names = {name for name, value in held.items() if value is OPERATIONS.get(name.rstrip("_"), held)}
    held["__all__"] = sorted(name for name in names if name.rstrip("_") not in names - {name})


def _call(name: str, *arguments: Any, **named: Any) -> Tensor:
    if not OPERATIONS:
        importlib.import_module(_OPERATIONS)
    return OPERATIONS[name](*arguments, **named)


@contextmanager
def building(builder: Builder) -> Iterator[Builder]:
    """Make `builder` the one that operations add to, in this thread, until the block ends."""
    token = _CURRENT.set(builder)
    try:
        with context():
            yield builder
    finally:
        _CURRENT.reset(token)


def current_builder() -> Builder:
    """The builder that operations add to.

    Raises:
        NoTrace: no function is being traced.
    """
    builder: Builder | None = _CURRENT.get()
    if builder is None:
        raise NoTrace(
            "operations on Tensors work only inside a traced function; wrap the computation: pcp.trace(f, ...)"
        )
    builder.location = _location() if builder.pinned is None else builder.pinned
    return builder


def is_tracing() -> bool:
    """Whether a function is being traced, in this thread."""
    return _CURRENT.get() is not None


def checked(tensor: Tensor) -> Tensor:
    """The tensor, if it may be used here, or what stands for it here.

    Raises:
        LeakedTensor: the function or block that made it is no longer being traced.
    """
    builder = _CURRENT.get()
    if not tensor._scope.open or tensor._builder is not builder:
        return tensor._entering(builder)
    return tensor


def as_tensor(value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """A Tensor from a Tensor, an array (as a constant of its own element type) or a Python number (of `dtype`); outside of any
    trace one that has a value.

    Raises:
        LeakedTensor: it is a Tensor of another trace.
        DTypeMismatch: it is nothing that a tensor can be made from.
    """
    if isinstance(value, Tensor):
        tensor = checked(value)
        return tensor if not isinstance(value, NumberTensor) else value.of(dtype, tensor)
    value = numbers_of(value)
    if _CURRENT.get() is None:
        outside: Tensor = with_value()(value, dtype)
        return outside
    builder = current_builder()
    if is_weak(value):
        wanted = weak_dtype(value) if dtype is None else dtype_of(dtype)
        try:
            array = np.asarray(value, wanted.numpy)
        except OverflowError:
            raise DTypeMismatch(
                f"{value} does not fit in {wanted}; convert the tensor with .astype"
            ) from None
    elif isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = on_host(value)
        if array.dtype.hasobject:
            raise DTypeMismatch(f"an array of {array.dtype} cannot become a tensor; give numbers")
    else:
        raise DTypeMismatch(
            f"{type(value).__name__} cannot become a tensor; give a Tensor, an array or a number"
        )
    return Tensor(builder.constant(array), builder)


def is_weak(value: object) -> bool:
    """Whether a value takes the element type of the tensor it meets: Python and NumPy scalars do, arrays do not."""
    return isinstance(value, bool | int | float | complex | np.generic | NumberTensor)


def weak_dtype(value: Any) -> DType:
    """The element type that a scalar has where it meets no tensor."""
    if isinstance(value, NumberTensor):
        return value.weak
    return dtype_of(value.dtype if isinstance(value, np.generic) else type(value))


def emit(
    name: str,
    operands: tuple[Tensor, ...],
    results: tuple[TensorSpec, ...] | None = None,
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Add a StableHLO operation without regions and with one result.

    Elements that share a byte are moved in bytes of their own: XLA on a CPU ends the process at some movements of them.
    """
    carrier = next((_CARRIERS[t.dtype] for t in operands if t.dtype in _CARRIERS), None)
    if carrier is not None and results is not None and name != "convert":
        (result,) = results
        wide = [checked(t).astype(carrier) if t.dtype in _CARRIERS else t for t in operands]
        return emit(name, (*wide,), (TensorSpec(result.shape, carrier),), attributes).astype(result.dtype)
    builder = current_builder()
    op = builder.emit(f"stablehlo.{name}", [checked(t).value for t in operands], results, attributes)
    return Tensor(op.results[0], builder, results[0] if results else None)


_CARRIERS = {
    DType.i2: DType.i8,
    DType.i4: DType.i8,
    DType.u2: DType.u8,
    DType.u4: DType.u8,
    DType.f4E2M1FN: DType.f8E4M3FN,
}


_LOCATIONS: dict[tuple[Any, int], ir.Location] = {}


def _location() -> ir.Location:
    frame = user_frame()
    if frame is None:
        return ir.Location.unknown()
    key = (frame.f_code, frame.f_lasti)
    known = _LOCATIONS.get(key)
    if known is None:
        place = ir.Location.file(frame.f_code.co_filename, frame.f_lineno, 0)
        known = _LOCATIONS[key] = ir.Location.name(frame.f_code.co_name, place)
    return known
