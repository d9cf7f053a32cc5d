"""Which element type two operands meet in, and which shape they broadcast to.

The rule: a Python or NumPy scalar takes the element type of the tensor, unless it is of a higher kind (a float meeting
integers gives f32). Tensors of one kind meet in the wider type; bf16 and f16 meet in f32; an integer or boolean meeting a
float takes the float's type; signed and unsigned meet in the next wider signed type, and u64 with a signed type is refused.
"""

import functools

from pcp.ir import DType
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, as_tensor, is_weak, weak_dtype

_KINDS = ("bool", "unsigned", "signed", "float", "complex")
_DEFAULT = {"unsigned": DType.i32, "signed": DType.i32, "float": DType.f32, "complex": DType.c64}


@functools.cache
def promote(left: DType, right: DType) -> DType:
    """The element type in which tensors of two types meet.

    Raises:
        DTypeMismatch: u64 meets a signed integer, which no integer type holds.
    """
    if left is right:
        return left
    if "storage" in (left.kind, right.kind):
        stored = left if left.kind == "storage" else right
        raise DTypeMismatch(
            f"{left} and {right} do not meet: nothing is computed in {stored}; convert it with .astype"
        )
    low, high = sorted((left, right), key=lambda dtype: (_KINDS.index(dtype.kind), dtype.itemsize))
    if low.kind == high.kind:
        return DType.f32 if low.itemsize == high.itemsize else high
    if high.kind == "signed" and low.kind == "unsigned":
        if low is DType.u64:
            raise DTypeMismatch(
                f"{left} and {right} have no common integer type; convert one of them with .astype"
            )
        return high if high.itemsize > low.itemsize else DType(f"i{16 * low.itemsize}")
    if high.kind == "complex" and low is DType.f64:
        return DType.c128
    return high


def met_by_number(dtype: DType, number: DType) -> DType:
    """The element type in which a tensor and a number meet: that of the tensor, unless the number is of a higher kind."""
    kind = number.kind
    if _KINDS.index(kind) <= _KINDS.index(dtype.kind) or (kind == "signed" and dtype.kind == "unsigned"):
        return dtype
    return DType.c128 if kind == "complex" and dtype is DType.f64 else _DEFAULT[kind]


def promoted(*values: TensorLike) -> tuple[Tensor, ...]:
    """The values as tensors of the one element type in which they meet; shapes stay as they are."""
    strong = [value for value in values if not is_weak(value)]
    if not strong:
        return promoted(as_tensor(values[0]), *values[1:])
    tensors = [as_tensor(value) for value in strong]
    dtype = functools.reduce(promote, (t.dtype for t in tensors))
    for value in values:
        if is_weak(value) and dtype.kind != "storage":
            dtype = met_by_number(dtype, weak_dtype(value))
    ready = iter(tensors)
    return tuple(as_tensor(value, dtype) if is_weak(value) else next(ready).astype(dtype) for value in values)


def broadcast_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which all shapes broadcast, aligned at the last axis.

    Raises:
        ShapeMismatch: two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result: list[int] = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            shown = " and ".join(map(str, shapes))
            raise ShapeMismatch(
                f"{name}: shapes {shown} do not broadcast: sizes {' and '.join(map(str, sorted(wide)))} meet; "
                "sizes must be equal or 1, counted from the last axis"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def aligned(name: str, *values: TensorLike) -> tuple[Tensor, ...]:
    """The values as tensors of one element type and one shape."""
    tensors = promoted(*values)
    shape = broadcast_shape(name, *(t.shape for t in tensors))
    return tuple(t.broadcast_to(shape) for t in tensors)
