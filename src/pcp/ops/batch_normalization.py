"""Batch normalisation, which becomes elementwise operations and sums before it is differentiated.

Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift",
2015, algorithms 1 and 2.
"""

import math
from collections.abc import Sequence

from pcp.ir.bindings import ir
from pcp.ops.derivative import Expansion, Primal
from pcp.ops.elementwise import rsqrt
from pcp.ops.record import Kind, declare
from pcp.ops.reductions.primitives import broadcast_reduced, sum_
from pcp.tensor import Tensor


def _axes(primal: Primal) -> tuple[int, ...]:
    """All axes but that of the features."""
    feature = primal.integer("feature_index")
    return tuple(axis for axis in range(primal.input(0).ndim) if axis != feature)


def _epsilon(primal: Primal) -> float:
    return float(ir.FloatAttr(primal.op.attributes["epsilon"]).value)


def _mean(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return sum_(x, axes) / math.prod(x.shape[axis] for axis in axes)


def _training(primal: Primal) -> Sequence[Tensor]:
    x, scale, offset = primal.inputs
    axes = _axes(primal)
    mean = _mean(x, axes)
    centred = x - broadcast_reduced(mean, x.shape, axes)
    variance = _mean(centred * centred, axes)
    inverse = broadcast_reduced(scale * rsqrt(variance + _epsilon(primal)), x.shape, axes)
    return [centred * inverse + broadcast_reduced(offset, x.shape, axes), mean, variance]


def _inference(primal: Primal) -> Sequence[Tensor]:
    x, scale, offset, mean, variance = primal.inputs
    axes = _axes(primal)
    inverse = broadcast_reduced(scale * rsqrt(variance + _epsilon(primal)), x.shape, axes)
    return [(x - broadcast_reduced(mean, x.shape, axes)) * inverse + broadcast_reduced(offset, x.shape, axes)]


def _grad(primal: Primal) -> Sequence[Tensor]:
    x, scale, mean, variance, g = primal.inputs
    axes = _axes(primal)

    def wide(row: Tensor) -> Tensor:
        return broadcast_reduced(row, x.shape, axes)

    inverse = rsqrt(variance + _epsilon(primal))
    normal = (x - wide(mean)) * wide(inverse)
    by_offset, by_scale = sum_(g, axes), sum_(g * normal, axes)
    rest = g - wide(_mean(g, axes)) - normal * wide(_mean(g * normal, axes))
    return [wide(scale * inverse) * rest, by_scale, by_offset]


declare("batch_norm_training", Kind.reduction, derivative=Expansion(_training), batching=None)
declare("batch_norm_inference", Kind.reduction, derivative=Expansion(_inference), batching=None)
declare("batch_norm_grad", Kind.reduction, derivative=Expansion(_grad), batching=None)
