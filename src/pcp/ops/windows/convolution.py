"""Convolutions, of any number of spatial axes and any order of axes.

As in every library of neural networks this is cross-correlation: the kernel is not turned around.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.movement import reshape, reverse, transpose
from pcp.ops.promotion import promoted
from pcp.ops.record import Kind, Supplied, declare
from pcp.ops.windows.reducing import Padding, Sizes, dilated, margins_of, pairs_attribute, per_axis, places
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, emit, operation

Orders = tuple[str, str, str]
"""The orders of the axes of input, kernel and result, as `("NHWC", "HWIO", "NHWC")`."""

_SPATIAL = "WHDUVXYZ"  # names for spatial axes, the last axis first


@dataclass(frozen=True, slots=True)
class Layout:
    """Which axis of the input, the kernel and the result is which.

    Arguments:
        input: axis by letter: N batch, C channels, others spatial.
        kernel: axis by letter: O outputs, I inputs, the same spatial letters.
        result: as `input`.
        spatial: the letters of the spatial axes, in the order of the kernel.
    """

    input: dict[str, int]
    kernel: dict[str, int]
    result: dict[str, int]
    spatial: tuple[str, ...]

    def attribute(self) -> str:
        """StableHLO's form."""
        numbers = {letter: str(i) for i, letter in enumerate(self.spatial)}
        ends = {"N": "b", "C": "f", "O": "o", "I": "i"} | numbers
        sides = [", ".join(ends[c] for c in order) for order in (self.input, self.kernel, self.result)]
        return f"#stablehlo.conv<[{sides[0]}]x[{sides[1]}]->[{sides[2]}]>"


def layout_of(x: Tensor, kernel: Tensor, orders: Orders | None) -> Layout:
    """The layout that `orders` names; None puts channels last.

    Raises:
        ShapeMismatch: the ranks differ, or the orders name other axes.
    """
    spatial = _SPATIAL[: max(x.ndim - 2, 0)][::-1]
    chosen = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C") if orders is None else orders
    found = [{letter: axis for axis, letter in enumerate(order)} for order in chosen]
    letters = tuple(c for c in chosen[1] if c not in "OI")
    wanted = [{*letters, "N", "C"}, {*letters, "O", "I"}, {*letters, "N", "C"}]
    named = all(
        set(order) == want and len(order) == len(want) for order, want in zip(chosen, wanted, strict=True)
    )
    if not named or x.ndim != len(chosen[0]) or kernel.ndim != len(chosen[1]):
        raise ShapeMismatch(
            f"convolution: x of shape {x.shape} and kernel of shape {kernel.shape} lack the axes {' x '.join(chosen[:2])} "
            f"-> {chosen[2]}; expected N, C and O, I, and the same letters for spatial axes"
        )
    return Layout(found[0], found[1], found[2], letters)


@operation
def conv_general(
    x: TensorLike,
    kernel: TensorLike,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    input_dilation: Sizes = 1,
    kernel_dilation: Sizes = 1,
    groups: int = 1,
    orders: Orders | None = None,
) -> Tensor:
    """A convolution.

    Arguments:
        x: axes batch, spatial, channels, or another order.
        kernel: axes spatial, inputs (channels / groups), outputs, or another order.
        strides: between two places of the result, for each spatial axis or one for all.
        padding: `"VALID"` (none), `"SAME"` (result of size ceil(size / stride)), or (before, after) for each spatial axis,
            where negative numbers cut off.
        input_dilation: distance between two neighbours of x (1: close together); the places between hold 0.
        kernel_dilation: distance between two neighbours of the kernel.
        groups: the channels are cut into this many groups, each of which makes its share of the outputs.
        orders: of the axes of x, kernel and result, as `("NCHW", "OIHW", "NCHW")`: N batch, C channels, O outputs, I inputs,
            any other letter a spatial axis. None is `("N...C", "...IO", "N...C")`.

    Returns:
        Axes batch, spatial, outputs, or the order given.

    Raises:
        ShapeMismatch: ranks, channels or groups do not correspond, or the orders name other axes.
        DTypeMismatch: the elements are booleans.
    """
    left, right = promoted(x, kernel)
    if left.dtype.kind in ("bool", "storage"):
        raise DTypeMismatch(
            f"convolution: element type {left.dtype} was given; expected numbers; use .astype"
        )
    layout = layout_of(left, right, orders)
    outputs = right.shape[layout.kernel["O"]]
    _check_groups(left, right, layout, groups)
    count = len(layout.spatial)
    stride, spread, kernel_spread = (
        per_axis(f"convolution: {name}", sizes, count)
        for name, sizes in (
            ("strides", strides),
            ("input_dilation", input_dilation),
            ("kernel_dilation", kernel_dilation),
        )
    )
    wide = [dilated(left.shape[layout.input[c]], d) for c, d in zip(layout.spatial, spread, strict=True)]
    reach = [
        dilated(right.shape[layout.kernel[c]], d) for c, d in zip(layout.spatial, kernel_spread, strict=True)
    ]
    margins = margins_of("convolution", padding, wide, reach, stride)
    sizes = [places(n, m, w, s) for n, m, w, s in zip(wide, margins, reach, stride, strict=True)]
    known = dict(zip(layout.spatial, sizes, strict=True)) | {"N": left.shape[layout.input["N"]], "C": outputs}
    spec = TensorSpec(tuple(known[letter] for letter in layout.result), left.dtype)
    attributes: dict[str, Any] = {
        "window_strides": stride,
        "padding": pairs_attribute(margins),
        "lhs_dilation": spread,
        "rhs_dilation": kernel_spread,
        "dimension_numbers": layout.attribute(),
        "feature_group_count": int(groups),
        "batch_group_count": 1,
    }
    return emit("convolution", (left, right), (spec,), attributes)


def _check_groups(x: Tensor, kernel: Tensor, layout: Layout, groups: int) -> None:
    channels, inputs = x.shape[layout.input["C"]], kernel.shape[layout.kernel["I"]]
    outputs = kernel.shape[layout.kernel["O"]]
    if not isinstance(groups, int) or groups < 1 or inputs * groups != channels or outputs % groups:
        raise ShapeMismatch(
            f"convolution: x of shape {x.shape} has {channels} channels; the kernel of shape {kernel.shape} takes {inputs} and "
            f"makes {outputs}, in {groups} groups; expected channels = inputs * groups, and outputs a multiple of groups"
        )


@operation
def conv_transpose(
    x: TensorLike,
    kernel: TensorLike,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    kernel_dilation: Sizes = 1,
    output_padding: Sizes = 0,
    groups: int = 1,
    orders: Orders | None = None,
) -> Tensor:
    """The transpose of `conv_general` with this kernel, strides and padding: what carries cotangents of its result back.

    Arguments:
        x: axes batch, spatial, outputs of the convolution that is transposed; or another order.
        kernel: axes spatial, inputs, outputs of that convolution, or another order; outputs are the channels of x.
        strides: between two places of x in the result.
        padding: of that convolution: `"VALID"`: size (n - 1) stride + window; `"SAME"`: size n stride; or pairs.
        kernel_dilation: distance between two neighbours of the kernel.
        output_padding: how much larger the result is at its end; to choose among the sizes that a stride maps to one.
        groups: as of that convolution; the result has inputs * groups channels.
        orders: as of `conv_general`.

    Raises:
        ShapeMismatch: ranks, channels or groups do not correspond.

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4.
    """
    left, right = promoted(x, kernel)
    layout = layout_of(left, right, orders)
    count = len(layout.spatial)
    stride = per_axis("conv_transpose: strides", strides, count)
    spread = per_axis("conv_transpose: kernel_dilation", kernel_dilation, count)
    more = per_axis("conv_transpose: output_padding", output_padding, count, least=0)
    outputs = right.shape[layout.kernel["O"]]
    if groups < 1 or outputs != left.shape[layout.input["C"]] or outputs % groups:
        raise ShapeMismatch(
            f"conv_transpose: x of shape {left.shape} needs as many outputs of its kernel as it has channels, a multiple of "
            f"{groups} groups; shape {right.shape} was given"
        )
    reach = [dilated(right.shape[layout.kernel[c]], d) for c, d in zip(layout.spatial, spread, strict=True)]
    if padding == "SAME":
        sizes = [left.shape[layout.input[c]] * s for c, s in zip(layout.spatial, stride, strict=True)]
        more = tuple(m + max(s - w, 0) for m, s, w in zip(more, stride, reach, strict=True))
        margins = margins_of("conv_transpose", padding, sizes, reach, stride)
    else:
        margins = margins_of("conv_transpose", padding, reach, reach, stride)
    back = [
        (window - 1 - low, window - 1 - high + extra)
        for window, (low, high), extra in zip(reach, margins, more, strict=True)
    ]
    turned = reverse(right, [layout.kernel[c] for c in layout.spatial]) if count else right
    turned = _exchanged(turned, layout, groups)
    # The exchanged kernel keeps its order of axes, so that the same letters name inputs and outputs.
    return conv_general(left, turned, 1, back, stride, spread, groups, orders)


def _exchanged(kernel: Tensor, layout: Layout, groups: int) -> Tensor:
    """The kernel with inputs and outputs exchanged within every group."""
    o, i = layout.kernel["O"], layout.kernel["I"]
    order = list(range(kernel.ndim))
    order[o], order[i] = i, o
    swapped = transpose(kernel, order)  # axis o: inputs of a group; axis i: outputs of all groups
    if groups == 1:
        return swapped
    shape = list(swapped.shape)
    cut = reshape(swapped, (*shape[:i], groups, shape[i] // groups, *shape[i + 1 :]))
    target = o + 1 if o > i else o  # where axis o went when axis i was cut in two
    axes = [axis for axis in range(cut.ndim) if axis != i]
    axes.insert(axes.index(target), i)
    shape[o], shape[i] = shape[o] * groups, shape[i] // groups
    return reshape(transpose(cut, axes), shape)


def _of_rank(count: int) -> Callable[..., Tensor]:
    spatial = _SPATIAL[:count][::-1]
    last: Orders = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    first: Orders = (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}")

    def apply(
        x: TensorLike,
        kernel: TensorLike,
        strides: Sizes = 1,
        padding: Padding = "VALID",
        dilation: Sizes = 1,
        groups: int = 1,
        channels_last: bool = True,
    ) -> Tensor:
        return conv_general(
            x, kernel, strides, padding, 1, dilation, groups, last if channels_last else first
        )

    apply.__name__ = apply.__qualname__ = f"conv{count}d"
    apply.__doc__ = (
        f"A convolution over {count} spatial axes: x of axes {last[0]} and kernel {last[1]} give {last[2]}; or {first[0]}, "
        f"{first[1]} and {first[2]} if `channels_last` is false; other arguments as of `conv_general`."
    )
    return operation(apply)


conv1d, conv2d, conv3d = (_of_rank(count) for count in (1, 2, 3))


def _convolution_flops(op: ir.Operation) -> int:
    """The kernel has one weight for each input it combines and each output feature."""
    kernel = spec_of(op.operands[1].type).shape
    layout = str(op.attributes["dimension_numbers"]).split("x[")[1].split("]")[0].replace(" ", "")
    outputs = kernel[layout.split(",").index("o")]
    return 2 * spec_of(op.results[0].type).size * math.prod(kernel) // outputs


declare(
    "convolution",
    Kind.product,
    is_bilinear=True,
    flops=_convolution_flops,
    functions=("conv_general",),
    derivative=Supplied("pcp.autodiff.rules.convolution"),
    batching=Supplied("pcp.batching.rules.convolution"),
)
