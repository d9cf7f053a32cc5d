"""Loops as operations of the program: all of them are StableHLO's while.

Carries are nested containers of Tensors. A body may use any Tensor of the function around it; what it makes lives only inside
of it and leaves as its result. A Python number as the initial value of a carry is weak: it takes the element type that the
body returns for it; one that a body returns takes the type of the carry.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir import Builder, DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert, less
from pcp.ops.promotion import promote
from pcp.ops.record import Kind, Supplied, declare
from pcp.tensor import (
    DTypeMismatch,
    Tensor,
    TensorLike,
    TracingError,
    as_tensor,
    current_builder,
    export_operations,
    is_weak,
    operation,
    weak_dtype,
)

Carry = Any
"""A nested container of Tensors, arrays and numbers."""


class CarryMismatch(TracingError):
    """A loop body whose result is nested, shaped or typed otherwise than its carry."""


class _Widened(Exception):
    """A weak carry must begin with another element type, so that the loop is built anew."""

    def __init__(self, dtypes: dict[int, DType]) -> None:
        self.dtypes = dtypes


class LoopCarry:
    """The carry of a loop: its leaves as Tensors and which of them began as Python numbers."""

    def __init__(self, name: str, initial: Carry) -> None:
        self.name = name
        self._given, self.tree = flatten(initial)
        self.weak = [is_weak(leaf) for leaf in self._given]
        self.tensors = [as_tensor(leaf) for leaf in self._given]

    @property
    def specs(self) -> list[TensorSpec]:
        return [tensor.spec for tensor in self.tensors]

    def widen(self, dtypes: dict[int, DType]) -> None:
        """Begin with other element types."""
        for index, dtype in dtypes.items():
            self.tensors[index] = as_tensor(self._given[index], dtype)

    def nested(self, values: Sequence[ir.Value[Any]], builder: Builder) -> Carry:
        """Values of the carry's types, nested like it."""
        return self.tree.unflatten(
            Tensor(value, builder, spec) for value, spec in zip(values, self.specs, strict=True)
        )

    def following(self, returned: Carry) -> list[Tensor]:
        """The leaves of what a body returned, checked against the carry.

        Raises:
            CarryMismatch: nesting, a shape or an element type differs.
            _Widened: only the element types of weak leaves differ.
        """
        leaves, tree = flatten(returned)
        if tree != self.tree:
            raise CarryMismatch(
                f"{self.name}: the body returned a carry nested as {tree}; expected {self.tree}, as it was given"
            )
        wider: dict[int, DType] = {}
        tensors = []
        for index, (name, spec, leaf) in enumerate(
            zip(self.tree.names("carry"), self.specs, leaves, strict=True)
        ):
            adapts = is_weak(leaf) and may_become(weak_dtype(leaf), spec.dtype)
            tensor = as_tensor(leaf, spec.dtype if adapts else None)
            if tensor.shape != spec.shape:
                raise CarryMismatch(
                    f"{self.name}: {name} was given as {spec} but the body returned {tensor.spec}; its shape must not change"
                )
            if tensor.dtype is not spec.dtype:
                if not self.weak[index] or not may_become(spec.dtype, tensor.dtype):
                    raise CarryMismatch(
                        f"{self.name}: {name} was given as {spec} but the body returned {tensor.spec}; "
                        "convert one of the two with .astype"
                    )
                wider[index] = tensor.dtype
            tensors.append(tensor)
        if wider:
            raise _Widened(wider)
        return tensors

    def built(self, build: Callable[[], Any]) -> Any:
        """What `build` returns, called anew with wider weak leaves as often as it asks for that."""
        for _ in range(len(self.tensors) + 1):
            try:
                return build()
            except _Widened as wanted:
                self.widen(wanted.dtypes)
                for index in wanted.dtypes:
                    self.weak[index] = False
        raise AssertionError("each round fixes at least one leaf")  # pragma: no cover


def may_become(weak: DType, wanted: DType) -> bool:
    """Whether a number of one kind is still itself as an element of another type: not 2.5 as an integer."""
    if weak.kind == wanted.kind or (weak.is_integer and wanted.is_integer):
        return True
    return promote(weak, wanted) is wanted


def end_block(values: Sequence[ir.Value[Any]]) -> ir.Operation:
    """Return values from the region that is being built."""
    return current_builder().emit("stablehlo.return", list(values), ())


@operation
def while_loop(condition: Callable[[Any], TensorLike], body: Callable[[Any], Any], initial: Carry) -> Carry:
    """Apply `body` to the carry as long as `condition` holds.

    Arguments:
        condition: from the carry to a boolean scalar.
        body: from the carry to a carry of the same nesting, shapes and element types.
        initial: the first carry, a nested container.

    Returns:
        The carry for which the condition does not hold.

    Raises:
        CarryMismatch: the body returns another nesting, shape or element type; the message names the leaf.
        DTypeMismatch: the condition is no boolean scalar.
        LeakedTensor: a Tensor that the body made is used outside of it.
    """
    carry = LoopCarry("while_loop", initial)

    def build() -> ir.Operation:
        builder = current_builder()
        specs = carry.specs
        op = builder.emit("stablehlo.while", [t.value for t in carry.tensors], specs, regions=2)
        try:
            with builder.region(op, 0, specs) as values:
                end_block([truth("while_loop", condition(carry.nested(values, builder))).value])
            with builder.region(op, 1, specs) as values:
                end_block([t.value for t in carry.following(body(carry.nested(values, builder)))])
        except Exception:  # an unfinished operation would spoil the program
            op.erase()
            raise
        return op

    return carry.nested(carry.built(build).results, current_builder())


def truth(name: str, value: TensorLike) -> Tensor:
    """The value as a boolean scalar.

    Raises:
        DTypeMismatch: it is no boolean scalar.
    """
    tensor = as_tensor(value)
    if tensor.spec != TensorSpec((), DType.bool):
        raise DTypeMismatch(f"{name}: the condition is {tensor.spec}; expected one boolean, bool[]")
    return tensor


@operation
def fori_loop(
    lower: int | Tensor, upper: int | Tensor, body: Callable[[Tensor, Any], Any], initial: Carry
) -> Carry:
    """Apply `carry = body(i, carry)` for i = lower, lower + 1, ..., upper - 1.

    Arguments:
        lower, upper: integers or integer scalars. A gradient needs Python integers, so that the number of trips is known.
        body: from i, an i32 scalar, and the carry to the next carry.
        initial: the first carry, a nested container.

    Raises:
        CarryMismatch: the body returns another nesting, shape or element type; the message names the leaf.
        DTypeMismatch: a bound is no integer scalar.
    """
    bounds = []
    for name, bound in (("lower", lower), ("upper", upper)):
        tensor = as_tensor(bound)
        if tensor.shape != () or not tensor.dtype.is_integer:
            raise DTypeMismatch(f"fori_loop: {name} is {tensor.spec}; expected an integer scalar")
        bounds.append(convert(tensor, DType.i32))
    first, last = bounds
    carry = LoopCarry("fori_loop", initial)
    counter = TensorSpec((), DType.i32)

    def build() -> ir.Operation:
        builder = current_builder()
        specs = [counter, *carry.specs]
        op = builder.emit(
            "stablehlo.while", [first.value, *(t.value for t in carry.tensors)], specs, regions=2
        )
        try:
            with builder.region(op, 0, specs) as (i, *_):
                bound = as_tensor(upper, DType.i32) if isinstance(upper, int) else last
                end_block([less(Tensor(i, builder, counter), bound).value])
            with builder.region(op, 1, specs) as (i, *values):
                place = Tensor(i, builder, counter)
                returned = carry.following(body(place, carry.nested(values, builder)))
                end_block([(place + 1).value, *(t.value for t in returned)])
        except Exception:  # an unfinished operation would spoil the program
            op.erase()
            raise
        return op

    results: Sequence[ir.Value[Any]] = list(carry.built(build).results)
    return carry.nested(results[1:], current_builder())


declare(
    "while",
    Kind.control,
    derivative=Supplied("pcp.autodiff.rules.loops"),
    batching=Supplied("pcp.batching.rules.control"),
)

export_operations(__name__)
