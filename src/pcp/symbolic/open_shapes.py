"""The sizes of what an operation of StableHLO makes where some of them are open (`?`), from those of its operands."""

import re
from collections.abc import Callable
from typing import Any

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import dimension_numbers, integer_elements, integer_of, integers_of, string_of
from pcp.ir.toolkit.dataflow import defining_op

Sizes = Callable[[Value], list[Any]]


class UnknownSize(Exception):
    """A size that is calculated in a way that is not known here."""


def open_shape(value: Value, shape: Sizes, elements: Sizes) -> list[Any]:
    """The sizes of a value some of whose sizes are open.

    Arguments:
        shape: the sizes of another value.
        elements: the elements of a value that are sizes.

    Raises:
        UnknownSize: they follow in a way that is not known here.
    """
    op = defining_op(value)
    if op is None:
        return shape(_carried(value))
    place = [*op.results].index(value)  # type: ignore[arg-type]  # its own result
    if "indices_of_shape_operands" in op.attributes:
        return elements(op.operands[integer_elements(op.attributes["indices_of_shape_operands"])[place]])
    name = string_of(op.attributes["call_target_name"]) if op.name == "stablehlo.custom_call" else op.name
    if name in _SHAPES:
        return _SHAPES[name](op, shape, elements)
    if name in _ELEMENTWISE:
        return shape(op.operands[1 if name in ("stablehlo.select", "stablehlo.clamp") else place])
    raise UnknownSize


def _carried(value: Value) -> Value:
    """What an argument of a loop is at first, whose sizes stay."""
    block = value.owner
    assert isinstance(block, ir.Block)
    loop = block.owner
    if loop.name != "stablehlo.while":
        raise UnknownSize
    initial: Value = loop.operands[[*block.arguments].index(value)]
    return initial


def _reduced(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    axes = integers_of(op.attributes["dimensions"])
    return [size for axis, size in enumerate(shape(op.operands[0])) if axis not in axes]


def _transposed(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    sizes = shape(op.operands[0])
    return [sizes[axis] for axis in integers_of(op.attributes["permutation"])]


def _joined(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    axis = integer_of(op.attributes["dimension"])
    shapes = [shape(operand) for operand in op.operands]
    sizes = list(shapes[0])
    sizes[axis] = sum(each[axis] for each in shapes)
    return sizes


def _multiplied(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    numbers = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
    result = []
    for side, operand in (("lhs", op.operands[0]), ("rhs", op.operands[1])):
        sizes = shape(operand)
        batching = numbers.get(f"{side}_batching_dimensions", ())
        taken = (*batching, *numbers.get(f"{side}_contracting_dimensions", ()))
        result += [sizes[axis] for axis in batching] if side == "lhs" else []
        result += [size for axis, size in enumerate(sizes) if axis not in taken]
    return result


def _gathered(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    static = op.name == "stablehlo.gather"
    sizes: list[Any] = list(integers_of(op.attributes["slice_sizes"])) if static else elements(op.operands[2])
    left_out = (*numbers.get("collapsed_slice_dims", ()), *numbers.get("operand_batching_dims", ()))
    slices = [size for axis, size in enumerate(sizes) if axis not in left_out]
    (vector,) = numbers.get("index_vector_dim", (0,))
    batch = [size for axis, size in enumerate(shape(op.operands[1])) if axis != vector]
    offsets = numbers.get("offset_dims", ())
    return [(slices if axis in offsets else batch).pop(0) for axis in range(len(slices) + len(batch))]


def _padded(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    if op.name == "stablehlo.pad":
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        rows = [list(integers_of(op.attributes[name])) for name in names]
    else:
        rows = [elements(operand) for operand in list(op.operands)[2:]]
    if any(rows[2]):
        raise UnknownSize
    return [
        size + low + high for size, low, high in zip(shape(op.operands[0]), rows[0], rows[1], strict=True)
    ]


def _sliced(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    starts, limits, strides = (elements(operand) for operand in list(op.operands)[1:])
    return [-((a - b) // s) for a, b, s in zip(starts, limits, strides, strict=True)]


def _first(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    return shape(op.operands[0])


def _last(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    return elements(list(op.operands)[-1])


def _window(size: Any, width: int, stride: int, dilations: tuple[int, int], padding: tuple[Any, Any]) -> Any:
    """How many windows an axis has."""
    inner, outer = dilations
    covered = (size - 1) * inner + 1 + padding[0] + padding[1] - ((width - 1) * outer + 1)
    return covered // stride + 1 if covered >= 0 else 0


def _windows(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    sizes = shape(op.operands[0])
    if op.name == "stablehlo.reduce_window":
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
        rows = [list(_integers(op, name) or [1] * len(sizes)) for name in names]
        edges = _edges(op, len(sizes))
    else:
        *rows, edges = (elements(operand) for operand in list(op.operands)[-5:])
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [
        _window(size, width, stride, (inner, outer), padding)
        for size, width, stride, inner, outer, padding in zip(sizes, *rows, pairs, strict=True)
    ]


def _convolved(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    text = str(op.attributes["dimension_numbers"])
    images, kernels, results = (re.findall(r"\w+", part) for part in re.findall(r"\[([^]]*)\]", text))
    sizes, kernel = shape(op.operands[0]), shape(op.operands[1])
    space = [label for label in results if label.isdigit()]
    strides, inner, outer = (
        _integers(op, name) or [1] * len(space) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    edges = elements(op.operands[2]) if op.name == "stablehlo.dynamic_conv" else _edges(op, len(space))
    by_label = {
        "b": sizes[images.index("b")] // integer_of(op.attributes["batch_group_count"]),
        "f": kernel[kernels.index("o")],
    }
    for axis, label in enumerate(sorted(space, key=int)):
        size, width = sizes[images.index(label)], kernel[kernels.index(label)]
        padding = (edges[2 * axis], edges[2 * axis + 1])
        by_label[label] = _window(size, width, strides[axis], (inner[axis], outer[axis]), padding)
    return [by_label[label] for label in results]


def _integers(op: ir.Operation, name: str) -> tuple[int, ...] | None:
    return integers_of(op.attributes[name]) if name in op.attributes else None


def _edges(op: ir.Operation, rank: int) -> list[int]:
    """Padding before and after each axis, one after another."""
    padding = integer_elements(op.attributes["padding"]) if "padding" in op.attributes else (0,)
    return list(padding) * (2 * rank // len(padding))


def _largest(op: ir.Operation, shape: Sizes, elements: Sizes) -> list[Any]:
    return [*shape(op.operands[0])[:-1], *elements(op.operands[1])]


_SHAPES: dict[str, Callable[[ir.Operation, Sizes, Sizes], list[Any]]] = {
    "stablehlo.reduce": _reduced,
    "stablehlo.transpose": _transposed,
    "stablehlo.concatenate": _joined,
    "stablehlo.dot_general": _multiplied,
    "stablehlo.gather": _gathered,
    "stablehlo.dynamic_gather": _gathered,
    "stablehlo.pad": _padded,
    "stablehlo.dynamic_pad": _padded,
    "stablehlo.real_dynamic_slice": _sliced,
    "stablehlo.dynamic_update_slice": _first,
    "stablehlo.scatter": _first,
    "stablehlo.reduce_window": _windows,
    "stablehlo.dynamic_reduce_window": _windows,
    "stablehlo.convolution": _convolved,
    "stablehlo.dynamic_conv": _convolved,
    "stablehlo.dynamic_top_k": _largest,
    "chlo.top_k": _first,
    "stablehlo.dynamic_reshape": _last,
    "stablehlo.dynamic_iota": _last,
    "stablehlo.dynamic_broadcast_in_dim": _last,
}
_ELEMENTWISE = {
    *(f"stablehlo.{name}" for name in (
        "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "convert", "cosine",
        "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor", "imag", "is_finite", "log",
        "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "optimization_barrier", "or",
        "popcnt", "power", "real", "reduce_precision", "remainder", "reverse", "round_nearest_afz",
        "round_nearest_even", "rsqrt", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
        "sine", "sort", "sqrt", "subtract", "tan", "tanh", "while", "xor",
    )),
    *(f"chlo.{name}" for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cosh", "digamma", "erf", "erf_inv", "erfc", "is_inf",
        "is_neg_inf", "is_pos_inf", "lgamma", "next_after", "sinh", "square", "tan", "zeta",
    )),
}  # fmt: skip
"""Operations each of whose results has the sizes of the operand in the same place."""
