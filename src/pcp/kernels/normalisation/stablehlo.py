"""Kernels for `pcp.layer_norm`, `pcp.rms_norm` and their gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.ir.composites.records import LAYER_NORM, RMS_NORM
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, is_named, tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, F32, Storage, widened
from pcp.ops.elementwise import convert, maximum, rsqrt
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import broadcast_to, full, ones, reshape, slice_
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.reductions.primitives import mean, sum_
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor

Mean = Callable[[Tensor, int], Tensor]
"""The mean along an axis, which stays with size 1."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What a normalisation takes, the scale as a tensor of the shape of x.

    Arguments:
        named: the composite.
        x: what is normalised.
        scale: the factor, or None.
        bias: what is added, or None.
    """

    named: Named
    x: Tensor
    scale: Tensor | None
    bias: Tensor | None

    @classmethod
    def of(cls, op: ir.Operation) -> "Operands":
        """Those of a composite, without cotangents."""
        named = Named.of(op)
        x, *rest = tensors(op)[: len(named.operands)]
        more = iter(rest)
        spread = [_spread(next(more), x, named) if named.attributes[k] else None for k in ("scale", "bias")]
        return cls(named, x, *spread)

    @property
    def axis(self) -> int:
        """Along which is normalised."""
        return int(self.named.attributes["axis"])

    @property
    def is_centred(self) -> bool:
        """Whether the mean is taken off."""
        return self.named.name == "layer_norm"

    def scaled(self, normed: Tensor) -> Tensor:
        """The result from what was normalised."""
        scaled = normed if self.scale is None else normed * self.scale
        return scaled if self.bias is None else scaled + self.bias


def _spread(parameter: Tensor, x: Tensor, named: Named) -> Tensor:
    """A scale or bias, of one axis longer than 1 at most, repeated to the shape of x."""
    axis = named.attributes["axis"]
    if parameter.size == 1:
        return broadcast_in_dim(reshape(parameter, ()), x.shape, ())
    return broadcast_in_dim(reshape(parameter, (x.shape[axis],)), x.shape, (axis,))


def _mean_by_product(x: Tensor, axis: int) -> Tensor:
    """A mean as a product with 1/n, n times: products of matrices run in blocks, on all cores."""
    size = x.shape[axis]
    mean = dot_general(x, full((size,), 1 / size, x.dtype), ((axis,), (0,)))
    return reshape(mean, [1 if i == axis else n for i, n in enumerate(x.shape)])


def _mean_of_sum(x: Tensor, axis: int) -> Tensor:
    return mean(x, axis, keepdims=True)


def _statistics(operands: Operands, mean_of: Mean) -> tuple[Tensor, Tensor]:
    """x without its mean, and the reciprocal of its deviation."""
    x, axis = operands.x, operands.axis
    centred = x - mean_of(x, axis) if operands.is_centred else x
    return centred, rsqrt(mean_of(centred * centred, axis) + operands.named.attributes["epsilon"])


def _two_passes(op: ir.Operation, storage: Storage) -> list[Tensor]:
    """Statistics in float32; what is rounded is so before scale and bias."""
    operands = Operands.of(op)
    centred, deviation = _statistics(operands, _mean_of_sum)
    return [operands.scaled(widened(convert(centred * deviation, storage.dtype)))]


def _by_products(op: ir.Operation) -> list[Tensor]:
    operands = Operands.of(op)
    centred, deviation = _statistics(operands, _mean_by_product)
    return [operands.scaled(centred * deviation)]


def _one_pass(op: ir.Operation) -> list[Tensor]:
    """The variance as mean(d^2) - mean(d)^2, where d is the distance to the first element of a row: x is read once.

    That element is within sqrt(n) deviations of the mean, so the difference of the two means loses log2(n + 1) bits at most,
    wherever the mean is (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983, section 3).
    """
    operands = Operands.of(op)
    x, axis = operands.x, operands.axis
    ends = [1 if i == axis else n for i, n in enumerate(x.shape)]
    first = slice_(x, [0] * x.ndim, ends)
    away = x - broadcast_to(first, x.shape)
    middle, square = _mean_of_sum(away, axis), _mean_of_sum(away * away, axis)
    variance = maximum(square - middle * middle, 0.0)
    return [operands.scaled((away - middle) * rsqrt(variance + operands.named.attributes["epsilon"]))]


def _sum_of_rows(x: Tensor, axis: int, shape: tuple[int, ...], by_product: bool) -> Tensor:
    """The sum over all axes but one, in another shape; over all, if that has one element."""
    others = tuple(i for i in range(x.ndim) if i != axis)
    if by_product and others:
        weights = ones([x.shape[i] for i in others], x.dtype)
        sums = dot_general(weights, x, (tuple(range(len(others))), others))
    else:
        sums = sum_(x, others)
    return reshape(sums if sums.size == math.prod(shape) else sum_(sums), shape)


def _gradient(mean_of: Mean, by_product: bool) -> Callable[[ir.Operation], list[Tensor]]:
    """r (h - mean(h) - n mean(h n)), where n is the normalised x, r its factor and h the cotangent times the scale."""

    def build(op: ir.Operation) -> list[Tensor]:
        operands = Operands.of(op)
        named, axis = operands.named, operands.axis
        g = tensors(op)[len(named.operands)]
        centred, deviation = _statistics(operands, mean_of)
        normed = centred * deviation
        h = g if operands.scale is None else g * operands.scale
        projected = h - normed * mean_of(h * normed, axis)
        cotangents = {0: deviation * (projected - mean_of(h, axis) if operands.is_centred else projected)}
        place = 1
        for kind, cotangent in (("scale", g * normed), ("bias", g)):
            if named.attributes[kind]:
                shape = named.operands[place].shape
                cotangents[place] = _sum_of_rows(cotangent, axis, shape, by_product)
                place += 1
        return named.cotangents(op, cotangents)

    return build


def _takes_mean_off(op: ir.Operation) -> bool:
    return applies_to_f32(op) and Named.of(op).name == "layer_norm"


register_family(
    Family(
        "normalisation",
        "x shifted to mean 0 (not for RMS) and scaled to mean square 1 along an axis, times scale plus bias",
        is_named(LAYER_NORM.name, RMS_NORM.name),
        gradient="normalisation_gradient",
    )
)
register_family(
    Family(
        "normalisation_gradient",
        "the gradient of layer or RMS normalisation",
        is_named(LAYER_NORM.gradient_name, RMS_NORM.gradient_name),
    )
)
register_kernel(
    Kernel(
        "normalisation.two_passes",
        "the mean first, then the mean of squared distances to it",
        applies_to_f32,
        StableHLO(_two_passes),
        storages=(F32, BF16),
        keeps="normalised values",
    )
)
for _name, _about, _build in (
    ("normalisation.by_products", "as two_passes, means as products with a vector", _by_products),
    (
        "normalisation_gradient.fused",
        "the derivative of the whole instead of that of each operation",
        _gradient(_mean_of_sum, by_product=False),
    ),
    (
        "normalisation_gradient.by_products",
        "as fused, means and sums as products with a vector",
        _gradient(_mean_by_product, by_product=True),
    ),
):
    register_kernel(Kernel(_name, _about, applies_to_f32, StableHLO(_build)))
register_kernel(
    Kernel(
        "normalisation.one_pass",
        "the variance from sums over x and its square, both less the first element of a row",
        _takes_mean_off,
        StableHLO(_one_pass),
        effect=Effect.lowers_precision,
        version=2,
    )
)
