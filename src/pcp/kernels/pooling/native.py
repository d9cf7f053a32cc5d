"""A native kernel for the gradient of the largest number of each window of images whose last axis holds the features."""

import math

from pcp.ir.bindings import ir
from pcp.ir.composites.records import MAX_POOL
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["pooling"]
_TOLD = ("sizes", "strides", "before")
LARGEST, FARTHEST = 64, 1 << 20
"""Numbers of a window, and rows and columns of it, between two, and before the first, that the handler takes."""


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    told = [named.attributes[name] for name in _TOLD]
    shapes = [spec_of(value.type).shape for value in list(op.operands)[:2]]
    is_of_images = all(len(shape) == 4 and 0 not in shape for shape in shapes)
    return (
        named.is_f32
        and is_of_images
        and all(len(pair) == 2 for pair in told)
        and math.prod(told[0]) <= LARGEST
        and max(map(max, told)) <= FARTHEST
    )


def _gradient(op: ir.Operation) -> list[Tensor]:
    named, (x, cotangent, *_) = Named.of(op), tensors(op)
    told = {name: list(named.attributes[name]) for name in _TOLD}
    (gradient,) = native_call(_LIBRARY, "max_pool_gradient", (x, cotangent), (x.spec,), told)
    return named.cotangents(op, {0: gradient})


register_family(
    Family(
        "max_pool_gradient",
        "the gradient of the largest number of each window: the first of equal ones gets the cotangent",
        is_named(MAX_POOL.gradient_name),
    )
)
register_kernel(
    Kernel(
        "max_pool_gradient.native",
        "the largest of a window is sought in registers, and its cotangent added where it lies",
        _applies,
        Native(_LIBRARY, _gradient),
        nonfinite="exact",
    )
)
