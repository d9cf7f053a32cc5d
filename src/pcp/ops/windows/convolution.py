"""Convolutions, of any number of spatial axes and any order of axes.

As in every library of neural networks this is cross-correlation: the kernel is not turned around.
"""

from collections.abc import Callable

from pcp.ops.movement import reverse, transpose
from pcp.ops.promotion import promoted
from pcp.ops.record import Kind, declare
from pcp.ops.windows.convolution_rules import (
    Convolution,
    Layout,
    batched_convolution,
    convolution_cotangents,
    convolution_flops,
    regrouped,
)
from pcp.ops.windows.geometry import Padding, Sizes, dilated, margins_of, per_axis
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, export_operations, operation

Orders = tuple[str, str, str]
"""The orders of the axes of input, kernel and result, as `("NHWC", "HWIO", "NHWC")`."""

_SPATIAL = "WHDUVXYZ"  # names for spatial axes, the last axis first


def layout_of(x: Tensor, kernel: Tensor, orders: Orders | None) -> Layout:
    """The layout that `orders` names; None puts channels last.

    Raises:
        ShapeMismatch: the ranks differ, or the orders name other axes.
    """
    spatial = _SPATIAL[: max(x.ndim - 2, 0)][::-1]
    chosen = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C") if orders is None else orders
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
    return Layout(
        *(
            tuple(map(order.index, (*ends, *letters)))
            for order, ends in zip(chosen, ("NC", "OI", "NC"), strict=True)
        )
    )


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
    _check_groups(left, right, layout, groups)
    count = len(layout.x) - 2
    stride, spread, kernel_spread = (
        per_axis(f"convolution: {name}", sizes, count)
        for name, sizes in (
            ("strides", strides),
            ("input_dilation", input_dilation),
            ("kernel_dilation", kernel_dilation),
        )
    )
    wide = [dilated(left.shape[axis], d) for axis, d in zip(layout.x[2:], spread, strict=True)]
    reach = [dilated(right.shape[axis], d) for axis, d in zip(layout.kernel[2:], kernel_spread, strict=True)]
    margins = tuple(margins_of("convolution", padding, wide, reach, stride))
    return Convolution(layout, stride, margins, spread, kernel_spread, int(groups), 1).windows(left, right)


def _check_groups(x: Tensor, kernel: Tensor, layout: Layout, groups: int) -> None:
    channels, (outputs, inputs) = x.shape[layout.x[1]], (kernel.shape[axis] for axis in layout.kernel[:2])
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
    count = len(layout.x) - 2
    stride = per_axis("conv_transpose: strides", strides, count)
    spread = per_axis("conv_transpose: kernel_dilation", kernel_dilation, count)
    more = per_axis("conv_transpose: output_padding", output_padding, count, least=0)
    outputs = right.shape[layout.kernel[0]]
    if groups < 1 or outputs != left.shape[layout.x[1]] or outputs % groups:
        raise ShapeMismatch(
            f"conv_transpose: x of shape {left.shape} needs as many outputs of its kernel as it has channels, a multiple of "
            f"{groups} groups; shape {right.shape} was given"
        )
    reach = [dilated(right.shape[axis], d) for axis, d in zip(layout.kernel[2:], spread, strict=True)]
    if padding == "SAME":
        sizes = [left.shape[axis] * s for axis, s in zip(layout.x[2:], stride, strict=True)]
        more = tuple(m + max(s - w, 0) for m, s, w in zip(more, stride, reach, strict=True))
        margins = margins_of("conv_transpose", padding, sizes, reach, stride)
    else:
        margins = margins_of("conv_transpose", padding, reach, reach, stride)
    back = [
        (window - 1 - low, window - 1 - high + extra)
        for window, (low, high), extra in zip(reach, margins, more, strict=True)
    ]
    turned = reverse(right, layout.kernel[2:]) if count else right
    turned = _exchanged(turned, layout, groups)
    # The exchanged kernel keeps its order of axes, so that the same letters name inputs and outputs.
    return conv_general(left, turned, 1, back, stride, spread, groups, orders)


def _exchanged(kernel: Tensor, layout: Layout, groups: int) -> Tensor:
    """The kernel with inputs and outputs exchanged within every group."""
    o, i = layout.kernel[:2]
    order = list(range(kernel.ndim))
    order[o], order[i] = i, o
    # Axis o has the inputs of a group now, axis i the outputs of all groups.
    return regrouped(transpose(kernel, order), i, o, groups)


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


declare(
    "convolution",
    Kind.product,
    is_bilinear=True,
    flops=convolution_flops,
    functions=("conv_general",),
    derivative=convolution_cotangents,
    batching=batched_convolution,
)

export_operations(__name__)
