"""Array: a Tensor that has a value. Operations outside of a trace return such, and take them."""

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from pcp.foreign import is_foreign, on_host
from pcp.ir import Builder, DTypeLike, TensorSpec
from pcp.ir.builder import Scope
from pcp.ir.types import UnknownDType, dtype_of
from pcp.refusals import DTypeMismatch, TracingError
from pcp.tensor import Tensor, is_weak

_CLOSED = Scope(None)  # type: ignore[arg-type]  # the scope of what no trace made
_CLOSED.open = False
_DEFAULT = {"f": np.float32, "i": np.int32, "c": np.complex64, "b": np.bool_}


class NotNumbers(TracingError):
    """Something given to `pcp.array` that holds no numbers."""


class Array(Tensor):
    """A Tensor with a value, in the memory of the host; it does not change. `pcp.array` makes one, and so does every
    operation outside of a trace.

    It has the operators and methods of a Tensor, and computes at once. Inside a trace it is a constant.

    Arguments:
        data: its elements, one behind the other; nobody writes to them.
        spec: its shape and element type, if they are known.
    """

    __slots__ = ("_data",)

    def __init__(self, data: "np.ndarray[Any, Any]", spec: TensorSpec | None = None) -> None:
        self._data = data
        self._scope = _CLOSED
        self._spec = TensorSpec(data.shape, dtype_of(data.dtype)) if spec is None else spec

    def _entering(self, builder: Builder | None) -> Tensor:
        """The constant of its elements; outside of any trace, itself."""
        if builder is None:
            return self
        return Tensor(builder.constant(self._data), builder)

    @property
    def _has_value(self) -> bool:
        return True

    def numpy(self) -> "np.ndarray[Any, Any]":
        """Its elements as an array of NumPy that cannot be written to, in the same memory."""
        shown = self._data.view()
        shown.flags.writeable = False
        return shown

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        if copy or (dtype is not None and np.dtype(dtype) != self._data.dtype):
            return np.array(self._data, dtype)
        return self.numpy()

    def __dlpack__(self, **named: Any) -> Any:
        # NumPy exports no memory that is marked as read-only.
        shared = self._data if self._data.flags.writeable else self._data.copy()
        return shared.__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def item(self, *place: int) -> Any:
        """Its one element, or the one at a place, as a Python number.

        Raises:
            ValueError: it has several elements and no place is given.
        """
        return self._data.item(*place)

    def tolist(self) -> Any:
        """Its elements as nested lists of Python numbers."""
        return self._data.tolist()

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def __int__(self) -> int:
        return int(self._data)

    def __complex__(self) -> complex:
        return complex(self._data)

    def __index__(self) -> int:
        if self._data.ndim or not self.dtype.is_integer:
            raise TypeError(f"only a scalar of integers is an index; this is {self._spec}")
        return int(self._data)

    def __format__(self, form: str) -> str:
        return format(self._data.item() if not self._data.ndim else str(self), form)

    def __repr__(self) -> str:
        return f"Array({_printed(self._data, 'Array(')}, {self.dtype})"

    def __str__(self) -> str:
        return _printed(self._data, "")

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        entries = tuple(map(known, index if isinstance(index, tuple) else (index,)))
        if all(map(_is_plain, entries)):
            try:
                return Array(np.array(self._data[entries], order="C"))
            except IndexError:
                pass  # whose words are those of a trace
        return super().__getitem__(index)

    def __copy__(self) -> "Array":
        return self

    def __deepcopy__(self, memo: Any) -> "Array":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self._data,)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            "an Array does not change; make a new one: y = x.at[index].set(value), or .add, .multiply and others"
        )


def known(entry: Any) -> Any:
    """An index with what Arrays hold that say which elements are meant: masks, and bounds of slices."""
    if isinstance(entry, tuple):
        return tuple(map(known, entry))
    if isinstance(entry, slice):
        bounds = (entry.start, entry.stop, entry.step)
        return slice(*(int(bound) if type(bound) is Array else bound for bound in bounds))
    if type(entry) is Array and entry._data.ndim and entry._data.dtype == np.bool_:
        return entry._data
    return entry


def _is_plain(entry: Any) -> bool:
    """Whether an index is a number, a slice of such, a mask, a new axis or `...`."""
    if isinstance(entry, np.ndarray):
        return bool(entry.ndim) and entry.dtype == np.bool_
    if isinstance(entry, slice):
        return all(
            part is None or type(part) is int or isinstance(part, np.integer)
            for part in (entry.start, entry.stop, entry.step)
        )
    return entry is None or entry is Ellipsis or type(entry) is int or isinstance(entry, np.integer)


def _printed(data: "np.ndarray[Any, Any]", prefix: str) -> str:
    return np.array2string(data, prefix=prefix, separator=", " if prefix else " ")


def array(value: Any, dtype: DTypeLike | None = None) -> Array:
    """An Array, with a copy of the elements.

    Arguments:
        value: an array of NumPy, JAX, PyTorch or any library with DLPack, a number, or nested lists of numbers, of which floats
            become f32, integers i32 and complex numbers c64.
        dtype: element type; None takes that of the value.

    Raises:
        NotNumbers: it holds no numbers, or lists of unequal length.
        UnknownDType: there is no such element type.
    """
    return Array(np.array(_elements(value, dtype), order="C"))


def asarray(value: Any, dtype: DTypeLike | None = None) -> Array:
    """As `array`, with no copy where none is needed: then do not write to the array that was given."""
    if isinstance(value, Array) and (dtype is None or value.dtype is dtype_of(dtype)):
        return value
    return Array(np.ascontiguousarray(_elements(value, dtype)).reshape(np.shape(value)))


def given(value: Any, dtype: DTypeLike | None) -> Array:
    """What an operation was given, as an Array; a number takes the element type, an array keeps its own.

    Raises:
        DTypeMismatch: it is nothing that a tensor can be made from.
    """
    if is_weak(value):
        return asarray(value, dtype)
    if not is_foreign(value):
        raise DTypeMismatch(
            f"{type(value).__name__} cannot become a tensor; give a Tensor, an array or a number"
        )
    return asarray(value)


def _elements(value: Any, dtype: DTypeLike | None) -> "np.ndarray[Any, Any]":
    wanted = None if dtype is None else dtype_of(dtype).numpy
    if isinstance(value, Tensor) and not isinstance(value, Array):
        value.__array__()  # which says that it has no value
    is_array = is_foreign(value) and not isinstance(value, np.generic)
    array = on_host(value) if is_array else _of_numbers(value)
    try:
        own = dtype_of(array.dtype).numpy  # in the machine's order of bytes
    except UnknownDType:
        raise NotNumbers(
            f"an array of {array.dtype} was given; expected numbers or booleans of one of PCP's element types"
        ) from None
    return array.astype(own if wanted is None else wanted, copy=False)


def _of_numbers(value: Any) -> "np.ndarray[Any, Any]":
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise NotNumbers(
            f"{type(value).__name__} was given, and no array can be made from it: {error}; expected numbers, in lists of equal "
            "length"
        ) from None
    if array.dtype.hasobject or array.dtype.kind not in _DEFAULT or isinstance(value, np.generic):
        return array
    return array.astype(_DEFAULT[array.dtype.kind]) if _is_of_python(value) else array


def _is_of_python(value: Any) -> bool:
    """Whether nested lists hold numbers of Python alone, which have no element type of their own."""
    if isinstance(value, list | tuple):
        return all(map(_is_of_python, value))
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)
