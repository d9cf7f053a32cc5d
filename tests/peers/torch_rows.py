"""For every row of the table of PyTorch's operations, a function that needs it and the arrays to call it with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """One use of a row.

    Arguments:
        rows: the operations that the graph must hold, separated by spaces.
        function: from tensors to a tensor or a tuple of them.
        inputs: float64 arrays are differentiated for, others are not.
    """

    rows: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive(*shape: int, low: float = 0.2, high: float = 0.9) -> Any:
    return np.random.default_rng(shape).uniform(low, high, size=shape)


def integers(low: int, high: int, *shape: int) -> Any:
    return np.random.default_rng([high, *shape]).integers(low, high, size=shape)


def flags(*shape: int) -> Any:
    return np.random.default_rng(shape).random(shape) < 0.5


X, Y, P = normal(3, 4), normal(3, 4, seed=1), positive(3, 4)
I, J, B = integers(-5, 6, 3, 4), integers(1, 4, 3, 4), flags(3, 4)  # noqa: E741
HALVES = np.array([[-2.5, -1.5, -0.5, 0.0], [0.5, 1.5, 2.5, 7.0], [-7.0, 3.0, 1e3, -1e3]])
Z = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # where the derivatives of kinks are

UNARY = [
    *[
        Case(f"{name}.default", getattr(torch, name), (P,))
        for name in [
            "acos",
            "asin",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "digamma",
            "erf",
            "erfc",
            "erfinv",
            "exp",
            "expm1",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "reciprocal",
            "rsqrt",
            "sigmoid",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "asinh",
            "neg",
        ]
    ],
    *[
        Case(f"{name}.default", getattr(torch, name), (HALVES,))
        for name in ["ceil", "floor", "round", "trunc", "sign", "abs", "relu"]
    ],
    Case("acosh.default", torch.acosh, (P + 1,)),
    Case("exp.default sqrt.default", lambda i: torch.exp(i) + torch.sqrt(i), (J,)),
    Case("abs.default relu.default", lambda x: (x.abs(), F.relu(x)), (Z,)),
    Case(
        "ceil.default abs.default sign.default neg.default", lambda i: (i.ceil(), i.abs(), i.sign(), -i), (I,)
    ),
    Case("silu.default", F.silu, (X,)),
    Case("gelu.default", lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), (X,)),
    Case("elu.default", lambda x: F.elu(x, 0.7), (1000 * X,)),
    Case("selu.default celu.default", lambda x: (F.selu(x), F.celu(x, 1.3)), (1000 * X,)),
    Case("leaky_relu.default", lambda x: F.leaky_relu(x, 0.2), (Z,)),
    Case("hardtanh.default", lambda x: (F.hardtanh(x), F.relu6(3 * x)), (Z,)),
    Case(
        "isfinite.default isnan.default isinf.default",
        lambda x: (x.isfinite(), x.isnan(), x.isinf()),
        (np.array([1, np.nan, -np.inf]),),
    ),
    Case("logical_not.default bitwise_not.default", lambda i, b: (i.logical_not(), ~i, ~b), (I, B)),
    Case("clamp.default", lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=1)), (Z,)),
    Case("clamp.Tensor", lambda x, low, high: x.clamp(low, high), (X, Y - 1, Y + 1)),
    Case(
        "clamp_min.default clamp_max.default",
        lambda x: (aten.clamp_min(x, 0.1), aten.clamp_max(x, 0.1)),
        (X,),
    ),
    Case("pow.Tensor_Scalar", lambda x: tuple(x**n for n in (0, 1, 2, 3, 0.5, -1, 2.5)), (P,)),
    Case("pow.Tensor_Scalar", lambda x: (x**0, x**2, x**4), (Z,)),
    Case("pow.Tensor_Tensor pow.Scalar", lambda x, y: (x**y, 2.5**y), (P, Y)),
    Case("pow.Tensor_Tensor", lambda i, j: i**j, (I, J)),
]
BINARY = [
    *[
        Case(f"{name}.Tensor", lambda x, y, f=getattr(torch, name): (f(x, y), f(x, y[:1]), f(x, 1.5)), (X, Y))
        for name in ["add", "sub", "mul", "div", "fmod", "remainder"]
    ],
    Case("rsub.Scalar", lambda x: torch.rsub(x, 2, alpha=3), (X,)),
    Case("rsub.Tensor", lambda x, y: aten.rsub.Tensor(x, y, alpha=3), (X, Y)),
    Case(
        "add.Scalar sub.Scalar mul.Scalar",
        lambda x: (aten.add.Scalar(x, 2, 3), aten.sub.Scalar(x, 2, 3), aten.mul.Scalar(x, 3)),
        (X,),
    ),
    Case(
        "div.Scalar fmod.Scalar remainder.Scalar",
        lambda x: (aten.div.Scalar(x, 3), torch.fmod(x, 0.3), x % 0.3),
        (X,),
    ),
    Case(
        "add.Tensor sub.Tensor", lambda x, y: (torch.add(x, y, alpha=2.5), torch.sub(x, y, alpha=2.5)), (X, Y)
    ),
    Case(
        "add.Tensor mul.Tensor",
        lambda i, b, x: (i + b, b + b, i + 1.5, i * x, b * x, b * 2, i + i[0, 0]),
        (I, B, X),
    ),
    Case("div.Tensor", lambda i, j: i / j, (I, J)),
    Case("fmod.Tensor remainder.Tensor", lambda i, j: (torch.fmod(i, j), i % -j), (I, J)),
    Case(
        "div.Tensor_mode",
        lambda x, y: (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")),
        (X, Y),
    ),
    Case(
        "div.Tensor_mode",
        lambda i, j: (torch.div(i, j, rounding_mode="floor"), torch.div(i, -j, rounding_mode="trunc")),
        (I, J),
    ),
    Case("div.Scalar_mode", lambda x: aten.div.Scalar_mode(x, 0.3, rounding_mode="floor"), (X,)),
    Case("floor_divide.default", lambda x, i, j: (x.detach() // 0.3, i // j, i // -j), (X, I, J)),
    Case(
        "atan2.default maximum.default minimum.default",
        lambda x, y: (torch.atan2(x, y), torch.maximum(x, y), torch.minimum(x, y)),
        (X, Y),
    ),
    Case(
        "maximum.default minimum.default",
        lambda x: (torch.maximum(x, x.abs()), torch.minimum(x, x.abs())),
        (Z + 0.5,),
    ),
    Case(
        "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor",
        lambda i, j: (
            i & j,
            i | j,
            i ^ j,
            i << j,
            i >> j,
            torch.bitwise_left_shift(i, j),
            torch.bitwise_right_shift(i, j),
        ),
        (I, J),
    ),
    Case(
        "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar",
        lambda i: (
            aten.bitwise_and.Scalar(i, 6),
            aten.bitwise_or.Scalar(i, 6),
            aten.bitwise_xor.Scalar(i, 6),
        ),
        (I,),
    ),
    Case(
        "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor",
        lambda i, x: (i == x, i != x, i < x, i <= x, i > x, i >= x),
        (I, np.round(2 * X)),
    ),
    Case(
        "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar",
        lambda i: (i == 2, i != 2, i < 1.5, i <= 2, i > 1.5, i >= 2),
        (I,),
    ),
    Case(
        "logical_and.default logical_or.default logical_xor.default",
        lambda i, x: (torch.logical_and(i, x), torch.logical_or(i, x), torch.logical_xor(i, x)),
        (I, X),
    ),
    Case(
        "where.self",
        lambda b, x, y, i: (torch.where(b, x, y), torch.where(b, i, 0.5), torch.where(b[0], x, i)),
        (B, X, Y, I),
    ),
]
CREATION = [
    Case("full.default full_like.default", lambda x: (torch.full((2, 3), 1.5), torch.full_like(x, 2) * x), (X,)),
    Case("new_full.default fill.Scalar fill.Tensor", lambda x: (x.new_full((2,), 3), aten.fill.Scalar(x, 2), aten.fill.Tensor(x, x[0, 0])), (X,)),
    Case("scalar_tensor.default", lambda x: x * torch.scalar_tensor(2.5), (X,)),
    Case("zeros.default zeros_like.default new_zeros.default", lambda x: (torch.zeros(2), torch.zeros_like(x), x.new_zeros(3)), (X,)),
    Case("ones.default ones_like.default new_ones.default", lambda x: (torch.ones(2), torch.ones_like(x) * x, x.new_ones(3)), (X,)),
    Case(
        "empty.memory_format empty_like.default new_empty.default empty_strided.default new_empty_strided.default",
        lambda x: tuple(
            0 * torch.nan_to_num(t)
            for t in (
                torch.empty(2), torch.empty_like(x), x.new_empty(3), torch.empty_strided((2, 2), (2, 1)),
                x.new_empty_strided((2, 2), (2, 1)),
            )
        ),
        (X,),
    ),
    Case("arange.start_step", lambda x: (aten.arange.start_step(1, 9, 3), aten.arange.start_step(0.5, 2, 0.25), x), (X,)),
    Case("arange.start arange.default", lambda x: (torch.arange(2, 7), torch.arange(5, dtype=torch.float64), x), (X,)),
]  # fmt: skip
ARRANGEMENT = [
    Case("view.default", lambda x: (x.view(2, 6), x.T.reshape(-1), x.reshape(2, -1)), (X,)),
    Case("_unsafe_view.default", lambda x: aten._unsafe_view(x, [2, 6]), (X,)),
    Case("expand.default", lambda x: (x[:1].expand(5, -1), x.expand(2, 3, 4)), (X,)),
    Case("permute.default transpose.int", lambda x: (x.permute(2, 0, 1), x.transpose(0, -1)), (normal(2, 3, 4),)),
    Case("squeeze.dim squeeze.dims squeeze.default", lambda x: (x.squeeze(1), x.squeeze((0, 1)), x.squeeze()), (normal(3, 1, 4, 1),)),
    Case("unsqueeze.default", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1)), (X,)),
    Case("cat.default stack.default", lambda x, y, i: (torch.cat([x, y, x]), torch.cat([x, i], -1), torch.stack([x, y], -1), torch.cat([x.new_zeros(0), x])), (X, Y, I)),
    Case("slice.Tensor select.int", lambda x: (x[1:], x[:, ::2], x[-2:-1], x[1], x[:, -1]), (X,)),
    Case("slice_scatter.default select_scatter.default", lambda x, y: (torch.slice_scatter(x, y[:, :2], 1, 1, 4, 2), torch.select_scatter(x, y[0], 0, -1)), (X, Y)),
    Case("slice_scatter.default", lambda x, y: _written(x, y), (X, Y)),
    Case("split_with_sizes.default", lambda x: x.split([1, 3], 1), (X,)),
    Case("unbind.int", lambda x: x.unbind(1), (X,)),
    Case("flip.default roll.default repeat.default", lambda x: (x.flip(0, 1), x.roll((1, -2), (0, 1)), x.roll(3), x.repeat(2, 3, 1)), (X,)),
    Case("diagonal.default", lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1), x[None].diagonal(0, 1, 2)), (X,)),
    Case("tril.default triu.default", lambda x: (x.tril(), x.triu(1), x.tril(-1)), (X,)),
    Case("constant_pad_nd.default", lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 1, 2, -1), value=1.5)), (X,)),
    Case("copy.default clone.default", lambda x, y: (x.clone().copy_(y[0]), x.clone(), x.T.contiguous()), (X, Y)),
    Case("_to_copy.default", lambda x, i: (x.to(torch.float32), x.to(torch.int64), i.to(torch.float64), x.bool(), i.to(torch.int8)), (3 * X, I)),
    Case("detach.default alias.default", lambda x: (x * x.detach(), x * x[...], x.detach()[:] * x, _without_gradient(x)), (X,)),
    Case("", lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), (X,)),
]  # fmt: skip


def _without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.exp()
        shift = scale * x
    return x * scale + shift


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:, ::2] = y[1:, ::2]
    x[0] += 1
    return x


X3 = normal(2, 3, 4)
REDUCTION = [
    Case("sum.dim_IntList mean.dim", lambda x, i, b: (x.sum(), x.sum(1), x.sum((0, -1), keepdim=True), i.sum(), b.sum(0), x.mean(), x.mean((1, 2))), (X3, I, B)),
    Case("sum.default mean.default", lambda x: (aten.sum.default(x), aten.mean.default(x)), (X,)),
    Case("prod.default prod.dim_int", lambda x, j: (x.prod(), x.prod(1), x.prod(-1, keepdim=True), j.prod(0)), (X, J)),
    Case("amax.default amin.default", lambda x: (x.amax(), x.amax(1), x.amin((0, 2), keepdim=True), x.amax(())), (X3,)),
    Case("amax.default amin.default", lambda x: (x.round().amax(0) + x.abs().amax(), x.amin(0)), (np.array([[1.0, 2], [1.0, 2]]),)),
    Case("max.default min.default", lambda x: (x.max(), x.min()), (X3,)),
    Case("max.dim min.dim", lambda x: (*x.max(1), *x.min(-1, keepdim=True), *x[0, 0, 0].max(0)), (X3,)),
    Case("max.dim", lambda x: x.max(0)[0], (np.array([[1.0, 2], [1.0, 2]]),)),
    Case("any.default any.dim any.dims all.default all.dim all.dims", lambda b, i: (b.any(), b.any(0), b.any((0, 1)), b.all(), b.all(1, keepdim=True), b.all((0, 1)), i.any(1)), (B, I)),
    Case("argmax.default argmin.default", lambda x: (x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True), x.argmin()), (X3,)),
    Case("var.correction", lambda x: (x.var(), x.var((0, 2)), x.var(1, correction=0, keepdim=True), x.std(-1)), (X3,)),
    Case("var_mean.correction", lambda x: torch.var_mean(x, (1, 2), correction=0), (X3,)),
    Case("cumsum.default cumprod.default logcumsumexp.default", lambda x, i, b: (x.cumsum(0), i.cumsum(-1), b.cumsum(0), x.cumprod(1), x.logcumsumexp(1), x[0, 0].cumsum(0)), (X, I, B)),
    Case("sort.default", lambda x: (*x.sort(), *x.sort(0, descending=True), x[0, 0].sort()[0]), (X,)),
    Case("sort.stable", lambda i: torch.sort(i, stable=True, dim=0), (I,)),
    Case("topk.default", lambda x: (*x.topk(2), *x.topk(3, 0, largest=False)), (normal(5, 6),)),
    Case("_softmax.default _log_softmax.default", lambda x: (x.softmax(1), x.log_softmax(-1), 50 * x[0, 0].softmax(0), (1000 * x).log_softmax(0)), (X,)),
]  # fmt: skip
K, L = normal(4, 5), normal(2, 4, 5)
PRODUCTS = [
    Case("mm.default bmm.default", lambda x, k, x3, k3: (torch.mm(x, k), torch.bmm(x3, k3)), (X, K, X3, L)),
    Case("matmul.default", lambda x, k, x3, k3: (x @ k, x3 @ k, x3 @ k3, x[0] @ k, x3[:, None] @ k3), (X, K, X3, L)),
    Case("mv.default dot.default", lambda x, y: (torch.mv(x, y[0]), torch.dot(x[0], y[0])), (X, Y)),
    Case("linear.default", lambda x, k, b: (F.linear(x, k.T, b), F.linear(x[None], k.T), F.linear(x[0], k.T, b)), (X, K, normal(5))),
    Case("addmm.default", lambda x, k, b: (torch.addmm(b, x, k), torch.addmm(b, x, k, beta=0.5, alpha=2), torch.addmm(b, x, k, beta=0)), (X, K, normal(5))),
    Case("baddbmm.default", lambda x, k, b: torch.baddbmm(b, x, k, beta=0.5, alpha=2), (X3, L, normal(2, 3, 5))),
    Case("bmm.default", lambda x, k: torch.einsum("bij,bjk->kib", x, k), (X3, L)),
]  # fmt: skip
PLACES, FAR = integers(-3, 3, 5), integers(0, 2, 2, 3)
INDEXING = [
    Case("index.Tensor", lambda x, i: (x[i], x[i, :, i], x[:, i % 3], x[i[:, None], i]), (normal(3, 3, 4), PLACES)),
    Case("_unsafe_index.Tensor _unsafe_index_put.default", lambda x, i, y: (aten._unsafe_index(x, [i]), aten._unsafe_index_put(x, [i], y, True)), (X, PLACES, normal(5, 4))),
    Case("index_put.default", lambda x, i, y: (x.index_put((i,), y), x.index_put((i,), y[0], accumulate=True), x.index_put((i, i), y[:, 0], accumulate=True)), (X, np.array([2, -3]), normal(2, 4))),
    Case("index_put.default", lambda x, i, y: x.index_put((i,), y, accumulate=True), (X, PLACES, normal(5, 4))),
    Case("index_put.default", lambda x, b: _masked(x, b), (X, B)),
    Case("index_select.default embedding.default", lambda x, i: (x.index_select(1, i), F.embedding(i, x), F.embedding(i, x, padding_idx=1)), (X, integers(0, 3, 5))),
    Case("gather.default", lambda x, i: (x.gather(1, i), x.gather(0, i), x.gather(1, i[:, :2])), (X, FAR)),
    Case("scatter.src scatter.value", lambda x, i, y: (x.scatter(1, i, y[:2, :3]), x.scatter(0, i[:, :2] % 3, 2.5)), (X, np.array([[0, 3, 1], [2, 1, 0]]), Y)),
    Case("scatter_add.default", lambda x, i, y: (x.scatter_add(1, i, y[:2, :3]), x.scatter_add(0, i, y[:2, :3])), (X, FAR, Y)),
    Case("scatter_reduce.two", lambda x, i, y: _reduced(x, i, y[:2, :3], "sum mean"), (X, FAR, Y)),
    Case("scatter_reduce.two", lambda x, i, y: _reduced(x.detach(), i, y[:2, :3].detach(), "prod amax amin"), (X, FAR, Y)),
    Case("masked_scatter.default", lambda x, b, y: x.masked_scatter(b, y), (X, B, Y)),
]  # fmt: skip


def _reduced(
    x: torch.Tensor, places: torch.Tensor, source: torch.Tensor, modes: str
) -> tuple[torch.Tensor, ...]:
    return tuple(
        x.scatter_reduce(axis, places, source, mode, include_self=axis == 0)
        for mode in modes.split()
        for axis in (0, 1)
    )


def _masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[mask] = 0.25
    return x


IMAGE, LINE, CUBE = normal(2, 4, 7, 6), normal(2, 4, 9), normal(1, 2, 4, 5, 4)
WINDOWS = [
    Case("convolution.default", lambda x, k, b: (F.conv1d(x, k, b), F.conv1d(x, k, stride=2, padding=2, dilation=2), F.conv1d(x, k, padding="same")), (LINE, normal(6, 4, 3), normal(6))),
    Case("convolution.default", lambda x, k, b: (F.conv2d(x, k, b, padding=1), F.conv2d(x, k, b, (2, 1), (1, 2), (1, 2)), F.conv2d(x[0], k)), (IMAGE, normal(6, 4, 3, 2), normal(6))),
    Case("convolution.default", lambda x, k, d: (F.conv2d(x, k, groups=2), F.conv2d(x, d, groups=4)), (IMAGE, normal(6, 2, 3, 2), normal(4, 1, 3, 3))),
    Case("convolution.default", lambda x, k: F.conv3d(x, k, padding=(1, 0, 1)), (CUBE, normal(3, 2, 2, 3, 2))),
    Case("convolution.default", lambda x, k, b: (F.conv_transpose2d(x, k, b, 2, 1, (1, 0)), F.conv_transpose2d(x, k, dilation=2), F.conv_transpose1d(x[:, :, 0], k[..., 0], stride=3)), (IMAGE, normal(4, 5, 3, 2), normal(5))),
    Case("convolution.default", lambda x, k: (F.conv_transpose2d(x, k, stride=2, groups=2)), (IMAGE, normal(4, 3, 3, 2))),
    Case("max_pool2d_with_indices.default", lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (3, 2), (2, 1), ceil_mode=True), F.max_pool2d(x, 2, dilation=2)), (IMAGE,)),
    Case("max_pool2d_with_indices.default", lambda x: (*F.max_pool2d_with_indices(x, 3, 2, 1), *F.max_pool2d_with_indices(x, 2, ceil_mode=True)), (IMAGE,)),
    Case("max_pool3d_with_indices.default max_pool2d_with_indices.default", lambda x, y: (F.max_pool3d(x, 2), F.max_pool1d(y, 3, 2)), (CUBE, LINE)),
    Case("avg_pool2d.default", lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, True), F.avg_pool2d(x, 3, 2, 1, True, False), F.avg_pool2d(x, (2, 3), divisor_override=5)), (IMAGE,)),
    Case("avg_pool1d.default avg_pool3d.default", lambda x, y: (F.avg_pool1d(x, 3, 2, 1), F.avg_pool3d(y, 2, ceil_mode=True)), (LINE, CUBE)),
    Case("_adaptive_avg_pool2d.default", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (None, 2))), (IMAGE,)),
    Case("adaptive_avg_pool1d.default _adaptive_avg_pool3d.default", lambda x, y: (F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool3d(y, (2, 3, 1))), (LINE, CUBE)),
]  # fmt: skip
RESAMPLING = [
    Case("upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec", lambda x, y, z: (F.interpolate(x, scale_factor=2), F.interpolate(y, scale_factor=(2, 1.5)), F.interpolate(y, (4, 9)), F.interpolate(z, scale_factor=2)), (LINE, IMAGE, CUBE)),
    Case(
        "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec",
        lambda x, y, z: (
            F.interpolate(x, scale_factor=2, mode="linear"),
            F.interpolate(y, scale_factor=(2, 1.5), mode="bilinear"),
            F.interpolate(y, (4, 9), mode="bilinear", align_corners=True),
            F.interpolate(y, (4, 13), mode="bilinear"),
            F.interpolate(z, scale_factor=2, mode="trilinear"),
        ),
        (LINE, IMAGE, CUBE),
    ),
]  # fmt: skip
Q, KEYS, VALUES = normal(2, 4, 5, 6), normal(2, 4, 5, 6, seed=1), normal(2, 4, 5, 6, seed=2)
ATTENTION = [
    Case(
        "scaled_dot_product_attention.default",
        lambda q, k, v, b, m: (
            F.scaled_dot_product_attention(q, k, v),
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, scale=0.3),
            F.scaled_dot_product_attention(q, k, v, b),
            F.scaled_dot_product_attention(q, k, v, m),
            F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
            F.scaled_dot_product_attention(q[0], k[0, :, :3], v[0, :, :3], is_causal=True),
        ),
        (Q, KEYS, VALUES, np.tril(np.ones((5, 5), bool), -1), normal(5, 5)),
    )
]
# PyTorch decomposes these into the rows above. Its derivative of hardsigmoid is exact to float32 only, so that is left out.
COMPOSED = [
    Case("native_layer_norm.default native_group_norm.default", lambda x, w, b: (F.layer_norm(x, (3, 4)), F.layer_norm(x, (4,), w, b), F.rms_norm(x, (4,), w), F.group_norm(x[None], 3, None, None)), (X, normal(4), normal(4, seed=1))),
    Case("", lambda x, m, v: (F.batch_norm(x, m.detach(), v.detach()), F.instance_norm(x)), (IMAGE, normal(4), positive(4))),
    Case("", lambda x, i: (F.cross_entropy(x, i), F.cross_entropy(x, i, label_smoothing=0.1), F.nll_loss(x, i, ignore_index=2, reduction="sum"), F.cross_entropy(x, i, ignore_index=1)), (X, np.array([0, 2, 1]))),
    Case("", lambda x, y, p: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5), F.binary_cross_entropy_with_logits(x, p), F.binary_cross_entropy(p, p.flip(0)), F.kl_div(x, p, reduction="batchmean")), (X, Y, P)),
    Case("", lambda x: (F.softplus(x), F.hardswish(x), F.hardsigmoid(x.detach()), F.mish(x), F.logsigmoid(x), F.glu(x), F.tanhshrink(x), F.softsign(x), F.softmin(x, 0), F.threshold(x, 0.1, 2.0), F.prelu(x, x[0, :1])), (X,)),
    Case("linalg_vector_norm.default", lambda x: (x.logsumexp(1), x.norm(), x.norm(dim=1, p=1), x.norm(p=3), x.norm(p=np.inf), x.norm(dim=0, p=0), (0 * x).norm(dim=1), F.normalize(x), F.cosine_similarity(x, x.flip(0)), x.std(), x.cross(x.flip(1), dim=0)), (X[:, :3],)),
    Case("unfold.default", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :6, :], 2), F.channel_shuffle(x, 2), F.pad(x, (1, 2, 2, 1), "reflect"), F.pad(x, (1, 2, 2, 1), "replicate"), F.pad(x, (1, 1, 1, 1), "circular"), F.unfold(x, 3), x.unfold(2, 3, 2)), (IMAGE,)),
    Case("adaptive_max_pool2d.default adaptive_max_pool3d.default", lambda x, g: (F.adaptive_max_pool3d(x, 3), F.grid_sample(x, g, align_corners=False), F.interpolate(x, scale_factor=2, mode="bicubic"), F.adaptive_max_pool2d(x, 3)), (IMAGE, normal(2, 3, 3, 2))),
    Case("", lambda x, b: (x.masked_fill(b, -1e9), torch.addcmul(x, x, x, value=2), torch.addcdiv(x, x, x.exp()), torch.lerp(x, 2 * x, 0.3), x.rot90(), torch.outer(x[0], x[1]), torch.meshgrid(x[0], x[1], indexing="ij")[0], x.index_add(0, torch.tensor([0, 2]), x[:2]), torch.linspace(0, 1, 5), torch.eye(3), F.one_hot(torch.tensor([0, 2]), 3), torch.kron(x, x), x.nan_to_num(), torch.tensordot(x, x.T, 1), x.index_fill(0, torch.tensor([1]), 3.0), x.index_copy(0, torch.tensor([1]), x[:1])), (X, B)),
]  # fmt: skip


def _recurrent(kind: type[torch.nn.Module], *sizes: int, **options: Any) -> Case:
    torch.manual_seed(0)
    network = kind(*sizes, **options).double()
    names = [name for name, _ in network.named_parameters()]
    mode = getattr(network, "mode", "").lower()
    shape = (5, 3, sizes[0])

    def apply(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        out, last = torch.func.functional_call(network, dict(zip(names, weights, strict=True)), (x,))
        return (out, *(last if isinstance(last, tuple) else (last,)))

    parameters = tuple(p.detach().numpy() for p in network.parameters())
    return Case(f"{mode}.input", apply, (normal(*shape), *parameters))


RECURRENCE = [
    _recurrent(torch.nn.LSTM, 4, 3),
    _recurrent(torch.nn.LSTM, 4, 3, num_layers=2, bidirectional=True, batch_first=True),
    _recurrent(torch.nn.GRU, 4, 3, bias=False),
    _recurrent(torch.nn.GRU, 4, 3, bidirectional=True),
    _recurrent(torch.nn.RNN, 4, 3),
    _recurrent(torch.nn.RNN, 4, 3, nonlinearity="relu"),
]
FAMILIES = {
    "unary": UNARY,
    "binary": BINARY,
    "creation": CREATION,
    "arrangement": ARRANGEMENT,
    "reduction": REDUCTION,
    "products": PRODUCTS,
    "indexing": INDEXING,
    "windows": WINDOWS,
    "resampling": RESAMPLING,
    "attention": ATTENTION,
    "composed": COMPOSED,
    "recurrence": RECURRENCE,
}
RANDOM = [
    "native_dropout.default",
    "rand.default",
    "rand_like.default",
    "randn.default",
    "randn_like.default",
    "bernoulli.default",
    "bernoulli.p",
    "randint.default",
    "randint.low",
    "randint_like.default",
    "randint_like.low_dtype",
    "randperm.default",
]
"""Rows whose numbers are not PyTorch's: a test of their own looks at them."""
