"""How a declared elementwise operation becomes a function: of one operand, of two, or a comparison."""

from collections.abc import Callable
from typing import Any

from pcp.ir import DType, TensorSpec
from pcp.ops.batching import Batched
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.promotion import aligned
from pcp.ops.record import RECORDS, Kind, Record, declare, full_name
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, current_builder, emit, operation

REAL = ("float",)
INEXACT = ("float", "complex")
NUMBERS = ("signed", "unsigned", "float", "complex")
REAL_NUMBERS = ("signed", "unsigned", "float")
ORDERED = ("bool", "signed", "unsigned", "float")
BITS = ("bool", "signed", "unsigned")
INTEGERS = ("signed", "unsigned")
ANY = (*BITS, *INEXACT)

Unary = Callable[[TensorLike], Tensor]
Binary = Callable[[TensorLike, TensorLike], Tensor]


def elementwise(name: str, **fields: Any) -> Record:
    """Declare an elementwise operation; `fields` are those of its `Record`."""
    return declare(name, Kind.elementwise, **{"batching": batched_elementwise} | fields)


def unary(function: str, name: str, types: tuple[str, ...], meaning: str, **fields: Any) -> Unary:
    """Declare an operation of one operand, and make its function.

    Arguments:
        function: its name in `pcp.ops`.
        name: the operation.
        types: the kinds of element types that it takes; integers become f32 where those begin with floats.
        meaning: what it computes, as its documentation begins.
        fields: others of its `Record`.
    """
    elementwise(name, functions=(function,), types=types, **fields)
    to_float = types[0] == "float"
    whole = full_name(name)

    def apply(x: TensorLike) -> Tensor:
        tensor = as_tensor(x)
        if to_float and tensor.dtype.kind in BITS:
            tensor = tensor.astype(DType.f32)
        require(function, tensor, types)
        return chlo(whole, tensor) if whole.startswith("chlo.") else emit(name, (tensor,))

    ending = "; integers are converted to f32 first." if to_float else "."
    return _named(apply, function, f"{meaning}, elementwise{ending}")


def binary(function: str, name: str, types: tuple[str, ...], meaning: str, **fields: Any) -> Binary:
    """Declare an operation of two operands, and make its function; arguments as of `unary`."""
    elementwise(name, functions=(function,), types=types, **fields)
    whole = full_name(name)

    def apply(x: TensorLike, y: TensorLike) -> Tensor:
        left, right = aligned(function, x, y)
        require(function, left, types)
        return (
            chlo(whole, left, right) if whole.startswith("chlo.") else emit(name, (left, right), (left.spec,))
        )

    return _named(apply, function, f"{meaning}, elementwise; shapes broadcast.")


def comparison(function: str, direction: str, types: tuple[str, ...], meaning: str) -> Binary:
    """Make a function of the operation `compare`."""
    attributes = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}

    def apply(x: TensorLike, y: TensorLike) -> Tensor:
        left, right = aligned(function, x, y)
        require(function, left, types)
        return emit("compare", (left, right), (TensorSpec(left.shape, DType.bool),), attributes)

    return _named(apply, function, f"{meaning}, elementwise, as booleans; shapes broadcast.")


def require(function: str, tensor: Tensor, types: tuple[str, ...]) -> None:
    """Refuse an element type that is of none of these kinds.

    Raises:
        DTypeMismatch: it is.
    """
    if tensor.dtype.kind not in types:
        raise DTypeMismatch(
            f"{function}: element type {tensor.dtype} was given; expected {' or '.join(types)}; use .astype"
        )


def chlo(name: str, *operands: Tensor) -> Tensor:
    """An elementwise operation of CHLO, whose result is as its last operand; XLA and `Program.artifact` expand it."""
    builder, spec = current_builder(), operands[-1].spec
    op = builder.emit(name, [t.value for t in operands], (spec,))
    return Tensor(op.results[0], builder, spec)


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """How constants are folded: by a function of NumPy that IEEE 754 defines to the last bit."""
    return lambda _, *arrays: function(*arrays)


def batched_elementwise(batched: Batched) -> list[Tensor]:
    """The axis of samples is one more."""
    scalars = RECORDS[batched.op.name].scalars
    (spec,) = batched.specs
    operands = []
    for index, flag in enumerate(batched.flags):
        if index not in scalars or batched.spec(index).shape != ():
            operands.append(batched.operand_with_samples(index))
        elif flag:
            operands.append(broadcast_in_dim(batched.operand(index), (batched.size, *spec.shape), (0,)))
        else:
            operands.append(batched.operand(index))
    return batched.clone_with(operands)


def _named(function: Callable[..., Tensor], name: str, documentation: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    first = documentation.split()[0].rstrip(",")
    is_word = first.isalpha() and len(first) > 1
    function.__doc__ = documentation[0].upper() + documentation[1:] if is_word else documentation
    return operation(function)
