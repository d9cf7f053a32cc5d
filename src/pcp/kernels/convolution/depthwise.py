"""Native depthwise convolutions of float32: each channel has a window of its own, so nothing is a product of matrices.

Three forms of a convolution: with as many groups of features as channels, the gradient of its input, which is one too, and the
gradient of its windows, with as many groups of the batch.
"""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import Native
from pcp.kernels.convolution import native as native  # which registers the family
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import register_kernel
from pcp.ops.movement import reshape, transpose
from pcp.ops.windows.convolution_rules import Convolution, is_turned
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["depthwise"]


def _applies(op: ir.Operation) -> bool:
    conv = Convolution.read(op)
    x, kernel, result = (spec_of(value.type) for value in (*op.operands, *op.results))
    precise = "precision_config" in op.attributes and "HIGH" in str(op.attributes["precision_config"])
    common = (
        {spec.dtype for spec in (x, kernel, result)} == {DType.f32}
        and all(spec.size for spec in (x, kernel, result))
        and len(x.shape) in (3, 4)
        and not (precise or is_turned(op))
    )
    if not common or conv.feature_groups * conv.batch_groups == 1:
        return False
    channels = result.shape[conv.layout.result[1]]
    if conv.feature_groups > 1:
        return conv.batch_groups == 1 and conv.feature_groups == channels == x.shape[conv.layout.x[1]]
    groups = conv.batch_groups
    one = result.shape[conv.layout.result[0]] == 1 and set(conv.x_dilation) == {1}
    return one and groups == channels == x.shape[conv.layout.x[0]] == kernel.shape[conv.layout.kernel[0]]


def _in_order(x: Tensor, axes: Sequence[int], space: slice) -> Tensor:
    """A tensor with its axes in an order, and two of places, the first of size 1 if there is one only."""
    moved = x if list(axes) == list(range(x.ndim)) else transpose(x, tuple(axes))
    places = moved.shape[space]
    return reshape(moved, (*moved.shape[: space.start], *_two(places, 1), *moved.shape[space.stop :]))


def _two(numbers: Sequence[int], first: int) -> list[int]:
    """Numbers for rows and columns; where there are none for rows, `first`."""
    return [first] * (2 - len(numbers)) + list(numbers)


def _back(y: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """What stands in an order as a result whose axes these are."""
    ordered = reshape(y, tuple(shape[axis] for axis in axes))
    back = [list(axes).index(axis) for axis in range(len(axes))]
    return ordered if back == sorted(back) else transpose(ordered, tuple(back))


def _attributes(
    strides: Sequence[int], dilations: Sequence[int], spread: Sequence[int], conv: Convolution
) -> dict[str, list[int]]:
    return {
        "strides": _two(strides, 1),
        "dilations": _two(dilations, 1),
        "spread": _two(spread, 1),
        "before": _two([low for low, _ in conv.padding], 0),
    }


def _forward(conv: Convolution, x: Tensor, kernel: Tensor, result: TensorSpec) -> Tensor:
    (batch, feature, *space), (outputs, inputs, *window) = conv.layout.x, conv.layout.kernel
    images = _in_order(x, (batch, *space, feature), slice(1, 1 + len(space)))
    windows = _in_order(kernel, (inputs, *window, outputs), slice(1, 1 + len(window)))
    of_result = (conv.layout.result[0], *conv.layout.result[2:], conv.layout.result[1])
    shape = [result.shape[axis] for axis in of_result]
    wanted = TensorSpec((shape[0], *_two(shape[1:-1], 1), shape[-1]), DType.f32)
    told = _attributes(conv.strides, conv.kernel_dilation, conv.x_dilation, conv)
    (y,) = native_call(_LIBRARY, "depthwise", (images, reshape(windows, windows.shape[1:])), (wanted,), told)
    return _back(y, of_result, result.shape)


def _gradient(conv: Convolution, x: Tensor, cotangent: Tensor, result: TensorSpec) -> Tensor:
    (channels, samples, *space), (outputs, inputs, *places) = conv.layout.x, conv.layout.kernel
    images = _in_order(x, (samples, *space, channels), slice(1, 1 + len(space)))
    cotangents = _in_order(cotangent, (inputs, *places, outputs), slice(1, 1 + len(places)))
    of_result = (conv.layout.result[0], *conv.layout.result[2:], conv.layout.result[1])
    shape = [result.shape[axis] for axis in of_result]
    wanted = TensorSpec((*_two(shape[1:-1], 1), shape[-1]), DType.f32)
    told = _attributes(conv.kernel_dilation, conv.strides, conv.x_dilation, conv)
    (y,) = native_call(_LIBRARY, "depthwise_gradient", (images, cotangents), (wanted,), told)
    return _back(y, of_result, result.shape)


def _build(op: ir.Operation) -> list[Tensor]:
    conv, (x, kernel), result = Convolution.read(op), tensors(op), spec_of(op.results[0].type)
    return [
        _forward(conv, x, kernel, result) if conv.feature_groups > 1 else _gradient(conv, x, kernel, result)
    ]


register_kernel(
    Kernel(
        "convolution.native_depthwise",
        "a window for each channel, sixteen channels at once; sums in registers",
        _applies,
        Native(_LIBRARY, _build),
        nonfinite="skips",
        together=lambda _: 0,
    )
)
