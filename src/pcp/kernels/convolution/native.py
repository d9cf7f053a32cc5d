"""Native convolutions of float32, in any order of axes: products of patches that are gathered for the innermost loop."""

import functools
from collections.abc import Iterable

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import Native
from pcp.kernels.convolution.phases import by_phases, has_phases
from pcp.kernels.features import features_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, BF16_X3, F32, Storage
from pcp.ops.movement import moveaxis, transpose
from pcp.ops.windows.convolution_rules import Convolution, is_turned
from pcp.tensor import Tensor

LIBRARY = LIBRARIES["convolution"]
MOST_AXES = 8
"""Of an input, that the handlers take."""
SHORTEST = 16
"""Numbers that are gathered at once, at least: of images of three colours that takes longer than XLA's convolution."""


def _applies(op: ir.Operation) -> bool:
    conv = Convolution.read(op)
    specs = [spec_of(value.type) for value in (*op.operands, *op.results)]
    precise = "precision_config" in op.attributes and "HIGH" in str(op.attributes["precision_config"])
    return (
        {spec.dtype for spec in specs} == {DType.f32}
        and all(spec.size for spec in specs)
        and len(specs[0].shape) <= MOST_AXES
        and conv.feature_groups == conv.batch_groups == 1
        and not (precise or is_turned(op))
        and has_phases(conv)
        and _side_by_side(conv, *specs) >= SHORTEST
    )


def _side_by_side(conv: Convolution, x: TensorSpec, kernel: TensorSpec, result: TensorSpec) -> int:
    """How many numbers of the last axis of x are gathered at once."""
    last = conv.layout.x.index(len(x.shape) - 1)
    if last < 2:
        return x.shape[-1]
    places = result.shape[conv.layout.result[last]] // conv.x_dilation[last - 2]
    window = kernel.shape[conv.layout.kernel[last]]
    return max(
        places if conv.strides[last - 2] == 1 else 1, window if conv.kernel_dilation[last - 2] == 1 else 1
    )


def _call(handler: str, conv: Convolution, x: Tensor, kernel: Tensor, result: TensorSpec) -> Tensor:
    """One convolution whose elements lie close together."""
    layout = conv.layout
    (batch, features, *spatial), outputs, channel = layout.x, layout.kernel[0], layout.result[1]
    count = result.shape[channel]
    window = [axis for axis in range(kernel.ndim) if axis != outputs]
    places = [axis for axis in range(x.ndim) if axis != channel]
    sizes = kernel.shape
    if outputs not in (0, kernel.ndim - 1):  # a window is not one axis of a product then
        kernel = transpose(kernel, (*window, outputs))
    size = kernel.size // count
    of_window = dict(zip(layout.kernel[1:], (features, *spatial), strict=True))
    of_places = dict(zip((layout.result[0], *layout.result[2:]), (batch, *spatial), strict=True))

    def by_axis(of_batch: int, of_features: int, of_others: Iterable[int]) -> list[int]:
        """Numbers for the axes of x, in their order."""
        numbers = dict(zip(layout.x, (of_batch, of_features, *of_others), strict=True))
        return [numbers[axis] for axis in range(x.ndim)]

    attributes: dict[str, int | list[int]] = {
        "places": by_axis(x.shape[batch], 1, (result.shape[axis] for axis in layout.result[2:])),
        "strides": by_axis(1, 1, conv.strides),
        "order": [features, *(of_places[axis] for axis in places)],
        "window": by_axis(1, x.shape[features], (sizes[axis] for axis in layout.kernel[2:])),
        "dilations": by_axis(1, 1, conv.kernel_dilation),
        "window_order": [batch, *(of_window[axis] for axis in window)],
        "before": by_axis(0, 0, (low for low, _ in conv.padding)),
        "kernel_strides": [1, size] if outputs == 0 else [count, 1],
        "outputs": count,
    }
    last = TensorSpec((*(result.shape[axis] for axis in places), count), result.dtype)
    (y,) = native_call(LIBRARY, handler, (x, kernel), (last,), attributes)
    return y if channel == x.ndim - 1 else moveaxis(y, -1, channel)


def _build(op: ir.Operation, storage: Storage) -> list[Tensor]:
    x, kernel = tensors(op)
    convolve = functools.partial(_call, f"convolution_{storage}")
    return [by_phases(Convolution.read(op), x, kernel, spec_of(op.results[0].type), convolve)]


def _together(storage: Storage) -> int | None:
    """In float32 it was ahead of XLA's at all shapes of ResNet-50 on Xeons with tiles, and at a third of them on an EPYC."""
    return None if storage is F32 and "amx_bf16" not in features_of("cpu") else 0


register_family(
    Family("convolution", "sums of products over windows", lambda op: op.name == "stablehlo.convolution")
)
register_kernel(
    Kernel(
        "convolution.native",
        "windows gathered into the order of the innermost loop of a product, sums in float32",
        _applies,
        Native(LIBRARY, _build),
        storages=(F32, BF16, BF16_X3),
        together=_together,
    )
)
