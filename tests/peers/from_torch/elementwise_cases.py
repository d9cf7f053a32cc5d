"""Uses of elementwise operations and of those that make tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.cases import HALVES, B, Case, I, J, P, X, Y, Z

aten = torch.ops.aten


def with_numbers(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function of two tensors used with equal shapes, with a shape that broadcasts, and with a number."""
    return lambda x, y: (function(x, y), function(x, y[:1]), function(x, 1.5))


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
        Case(f"{name}.Tensor", with_numbers(getattr(torch, name)), (X, Y))
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
        "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor "
        "bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor",
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
    Case(
        "full.default full_like.default", lambda x: (torch.full((2, 3), 1.5), torch.full_like(x, 2) * x), (X,)
    ),
    Case(
        "new_full.default fill.Scalar fill.Tensor",
        lambda x: (x.new_full((2,), 3), aten.fill.Scalar(x, 2), aten.fill.Tensor(x, x[0, 0])),
        (X,),
    ),
    Case("scalar_tensor.default", lambda x: x * torch.scalar_tensor(2.5), (X,)),
    Case(
        "zeros.default zeros_like.default new_zeros.default",
        lambda x: (torch.zeros(2), torch.zeros_like(x), x.new_zeros(3)),
        (X,),
    ),
    Case(
        "ones.default ones_like.default new_ones.default",
        lambda x: (torch.ones(2), torch.ones_like(x) * x, x.new_ones(3)),
        (X,),
    ),
    Case(
        "empty.memory_format empty_like.default new_empty.default empty_strided.default new_empty_strided.default",
        lambda x: tuple(
            0 * torch.nan_to_num(t)
            for t in (
                torch.empty(2),
                torch.empty_like(x),
                x.new_empty(3),
                torch.empty_strided((2, 2), (2, 1)),
                x.new_empty_strided((2, 2), (2, 1)),
            )
        ),
        (X,),
    ),
    Case(
        "arange.start_step",
        lambda x: (aten.arange.start_step(1, 9, 3), aten.arange.start_step(0.5, 2, 0.25), x),
        (X,),
    ),
    Case(
        "arange.start arange.default",
        lambda x: (torch.arange(2, 7), torch.arange(5, dtype=torch.float64), x),
        (X,),
    ),
]
