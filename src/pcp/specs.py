"""What is known of an argument before it is there: its shape, element type and role."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, overload

import numpy as np

from pcp.foreign import element_type
from pcp.ir import DType, DTypeLike, Role, TensorSpec
from pcp.ir.tree import map_tree
from pcp.ir.types import checked_shape, dtype_of
from pcp.refusals import TracingError
from pcp.symbolic.expressions import Expression
from pcp.symbolic.program import SymbolicSpec


class ArgumentSpec:
    """What `trace` must know of one argument: its shape, its element type and its role."""

    __slots__ = ("role", "spec")

    def __init__(self, spec: TensorSpec, role: Role) -> None:
        self.spec = spec
        self.role = role

    def __repr__(self) -> str:
        return f"spec({self.spec}, role={self.role})"


class NumberSpec(ArgumentSpec):
    """As `ArgumentSpec`, for an argument that stands for a Python number.

    Arguments:
        weak: the element type that it has where it meets no tensor.
    """

    __slots__ = ("weak",)

    def __init__(self, spec: TensorSpec, weak: DType) -> None:
        super().__init__(spec, Role.input)
        self.weak = weak


class OpenArgument:
    """As `ArgumentSpec`, for an argument some of whose sizes are symbols, or sums and products of such."""

    __slots__ = ("role", "spec")

    def __init__(self, spec: SymbolicSpec, role: Role) -> None:
        self.spec = spec
        self.role = role

    def at(self, sizes: Mapping[str, int]) -> ArgumentSpec:
        """The same where the symbols have these sizes."""
        shape = checked_shape([size.value(sizes) for size in self.spec.shape])
        return ArgumentSpec(TensorSpec(shape, self.spec.dtype), self.role)

    def __repr__(self) -> str:
        return f"spec({self.spec}, role={self.role})"


class InvalidArgument(TracingError):
    """Something given to `trace` that has neither a shape nor an element type, or a result that is no tensor."""


@overload
def spec(shape: Sequence[int] | int, dtype: DTypeLike, role: Role | str = Role.input) -> ArgumentSpec: ...
@overload
def spec(
    shape: Sequence[int | str | Expression] | str, dtype: DTypeLike, role: Role | str = Role.input
) -> ArgumentSpec | OpenArgument: ...
def spec(
    shape: Sequence[int | str | Expression] | int | str, dtype: DTypeLike, role: Role | str = Role.input
) -> ArgumentSpec | OpenArgument:
    """The shape, element type and role of an argument that is known only at run time.

    Arguments:
        shape: sizes of the axes. A text is a symbol that stands for any size, as `"batch"`, or arithmetic of symbols and
            numbers, as `"2*length + 1"`; then `trace` makes a symbolic program.
        dtype: element type, as `"f32"`, a NumPy type or a `DType`.
        role: `"input"` (changes at every call), `"weight"` (bound once) or `"state"` (donated and returned).

    Raises:
        InvalidShape: a size is negative or no integer.
        InvalidSize: a text is no size.
        InvalidArgument: an array is given in the place of a shape.
    """
    if _is_other_array(shape):
        raise InvalidArgument(
            f"pcp.spec was given an array of shape {tuple(cast(Any, shape).shape)} in the place of a shape; "
            "write pcp.spec(x.shape, x.dtype), or give trace the array itself"
        )
    sizes = (shape,) if isinstance(shape, str) else shape
    if isinstance(sizes, Sequence) and any(isinstance(size, str | Expression) for size in sizes):
        checked_shape([size for size in sizes if not isinstance(size, str | Expression)])
        open_spec = SymbolicSpec(tuple(map(Expression.of, sizes)), dtype_of(dtype))
        return OpenArgument(open_spec, Role(role))
    return ArgumentSpec(TensorSpec(checked_shape(cast(Sequence[int], shape)), dtype_of(dtype)), Role(role))


def _is_other_array(value: Any) -> bool:
    """Whether a value is an array, and not one of integers along one axis, as sizes are."""
    rank = getattr(value, "ndim", 0) if hasattr(value, "dtype") else 0
    return bool(rank) and not (rank == 1 and np.issubdtype(value.dtype, np.integer))


def specs_of(tree: Any, role: Role | str = Role.weight) -> Any:
    """`tree` with every array replaced by its `spec`: to trace with parameters that are not made yet or not here."""
    return map_tree(lambda leaf: ArgumentSpec(leaf_spec(leaf).spec, Role(role)), tree)


def leaf_spec(leaf: Any) -> ArgumentSpec:
    if isinstance(leaf, ArgumentSpec):
        return leaf
    if isinstance(leaf, TensorSpec):
        return ArgumentSpec(leaf, Role.input)
    if isinstance(leaf, bool | int | float | complex):
        return ArgumentSpec(TensorSpec((), dtype_of(type(leaf))), Role.input)
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        raise InvalidArgument(
            f"{type(leaf).__name__} was given as an argument of trace; give an array or pcp.spec(shape, dtype)"
        )
    return ArgumentSpec(TensorSpec(checked_shape(shape), dtype_of(element_type(leaf))), Role.weight)
