"""Cumulative operations: what a reduction gives for every beginning of an axis.

By the odd-even form of the parallel prefix: neighbours are joined, the half as long row is scanned, the elements between are
filled in. On two cores the sums of 10^6 f32 took 2.0 ms so, 6.4 ms as StableHLO's reduce_window, 3.8 ms as a loop and 93 ms
by shifts of 1, 2, 4, ...; it needs no rule for a gradient, either.

Source: Ladner and Fischer, "Parallel Prefix Computation", 1980, section 3.
"""

from collections.abc import Callable

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import add, convert, logaddexp, maximum, minimum, multiply
from pcp.ops.movement import along_or_flat, concatenate, pad, reverse
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.reductions.primitives import accumulator, narrowed
from pcp.symbolic.watching import is_symbolic
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, export_operations, operation

_NUMBERS = ("signed", "unsigned", "float", "complex")
_ORDERED = ("signed", "unsigned", "float")


def associative_scan(
    combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int, reverse_: bool = False
) -> Tensor:
    """x_0, x_0 * x_1, x_0 * x_1 * x_2, ... along an axis, where `combine` is an associative operation *.

    Arguments:
        combine: from two tensors of one shape to one of that shape.
        axis: not negative.
        reverse_: whether to begin at the end.
    """
    if reverse_:
        return reverse(associative_scan(combine, reverse(x, axis), axis), axis)
    size = x.shape[axis]
    if is_symbolic(size):
        return ONE_AFTER_ANOTHER[0](combine, x, axis)
    if size < 2:
        return x
    even, odd = narrow(x, axis, 0, size, 2), narrow(x, axis, 1, size, 2)
    pairs = combine(narrow(even, axis, 0, size // 2), odd)
    at_odd = associative_scan(combine, pairs, axis)
    rest = (size - 1) // 2
    at_even = combine(narrow(at_odd, axis, 0, rest), narrow(even, axis, 1, rest + 1))
    first = narrow(even, axis, 0, 1)
    return _interleaved(concatenate([first, at_even], axis) if rest else first, at_odd, axis)


ONE_AFTER_ANOTHER: list[Callable[[Callable[[Tensor, Tensor], Tensor], Tensor, int], Tensor]] = []
"""The same by a loop, which is one for all sizes, where the recursion has other steps for each; `scanning` enters it here."""


def _interleaved(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """The elements of two rows in turn; the first is as long as the second or longer by 1."""
    size = even.shape[axis] + odd.shape[axis]
    widths = [(0, 0, 0)] * even.ndim
    at_even, at_odd = list(widths), list(widths)
    at_even[axis] = (0, size - (2 * even.shape[axis] - 1), 1)
    at_odd[axis] = (1, size - 2 * odd.shape[axis], 1)
    return add(pad(even, at_even), pad(odd, at_odd))


def _cumulative(
    name: str, combine: Callable[[TensorLike, TensorLike], Tensor], kinds: tuple[str, ...], meaning: str
) -> Callable[..., Tensor]:
    accumulates = combine in (add, multiply)

    def apply(x: TensorLike, axis: int | None = None, reverse: bool = False) -> Tensor:
        tensor, along = along_or_flat(x, axis)
        dtype = tensor.dtype
        if dtype is not DType.bool and dtype.kind not in kinds:
            raise DTypeMismatch(
                f"{name}: element type {dtype} was given; expected {' or '.join(kinds)}; use .astype"
            )
        if dtype is DType.bool or combine not in (maximum, minimum):
            tensor = convert(tensor, accumulator(dtype))
        scanned = associative_scan(combine, tensor, checked_axis(name, along, tensor.ndim), reverse)
        return narrowed(scanned, dtype)

    def of_a_type(
        x: TensorLike, axis: int | None = None, reverse: bool = False, *, dtype: DTypeLike | None = None
    ) -> Tensor:
        return apply(x if dtype is None else convert(x, dtype), axis, reverse)

    function = of_a_type if accumulates else apply
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The {meaning} of every beginning of an axis, or of every end if `reverse`; of the flattened tensor if the axis is "
        "None. Booleans count as i32; sums and products of narrower numbers are computed in 32 bits."
        + (" The elements are converted to `dtype` first, if it is given." if accumulates else "")
    )
    return operation(function)


cumsum = _cumulative("cumsum", add, _NUMBERS, "sum")
cumprod = _cumulative("cumprod", multiply, _NUMBERS, "product")
cummax = _cumulative("cummax", maximum, _ORDERED, "largest")
cummin = _cumulative("cummin", minimum, _ORDERED, "smallest")
logcumsumexp = _cumulative("logcumsumexp", logaddexp, ("float",), "logarithm of the sum of e^x")

export_operations(__name__)
