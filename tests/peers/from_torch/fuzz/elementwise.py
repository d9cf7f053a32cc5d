"""Draws of elementwise operations, element types and precisions."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family

ACTIVATIONS = {
    "relu": {}, "relu6": {}, "elu": {"alpha": 0.7}, "selu": {}, "celu": {"alpha": 1.3}, "gelu": {}, "silu": {}, "mish": {},
    "hardsigmoid": {}, "hardswish": {}, "hardtanh": {"min_val": -2, "max_val": 0.5}, "softplus": {"beta": 2, "threshold": 1},
    "softsign": {}, "softshrink": {"lambd": 0.5}, "hardshrink": {"lambd": 0.5}, "tanhshrink": {}, "logsigmoid": {},
    "leaky_relu": {"negative_slope": -0.2}, "threshold": {"threshold": 0.5, "value": 9},
    "rrelu": {"lower": 0.1, "upper": 0.3},
}  # fmt: skip


@family
def activation(r: Draw) -> Made:
    name = r.pick(*ACTIVATIONS)
    options = ACTIVATIONS[name] if r.flag() else {}
    if name == "threshold":
        options = ACTIVATIONS[name]
    if name == "gelu":
        options = {"approximate": r.pick("none", "tanh")}
    function = getattr(F, name)
    if name in ("softmax",):
        return name, lambda x: function(x, -1), r.floats(*r.shape())
    if r.flag() and name in (
        "relu",
        "elu",
        "celu",
        "selu",
        "silu",
        "mish",
        "hardtanh",
        "hardswish",
        "leaky_relu",
    ):
        return f"{name}_({options})", lambda x: function(1 * x, inplace=True, **options), r.floats(*r.shape())
    return f"{name}({options})", lambda x: function(x, **options), r.floats(*r.shape())


UNARY = [
    "abs", "ceil", "cos", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac", "i0", "lgamma",
    "digamma", "log", "log10", "log1p", "log2", "neg", "positive", "rad2deg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "signbit", "sgn", "sin", "sinc", "sinh", "cosh", "sqrt", "square", "tan", "tanh", "trunc",
    "isfinite", "isinf", "isnan", "isposinf", "isneginf", "logical_not", "nan_to_num", "asin", "acos", "atan",
    "asinh", "acosh", "atanh", "erfinv", "logit", "special.xlog1py", "special.expit", "special.log_ndtr",
    "special.ndtr", "special.ndtri", "special.entr", "special.erfcx", "special.i0e", "special.i1", "special.i1e",
    "special.log_softmax", "special.gammaln", "special.psi", "special.polygamma", "fix", "relu", "angle", "real",
    "conj", "isreal",
]  # fmt: skip


@family
def unary(r: Draw) -> Made:
    name = r.pick(*UNARY)
    function: Any = torch
    for part in name.split("."):
        function = getattr(function, part)
    if name == "special.polygamma":
        return name, lambda x: function(1, x), r.positive(*r.shape())
    if name == "special.log_softmax":
        return name, lambda x: function(x, 0), r.floats(*r.shape(1))
    inner = r.pick(r.floats, r.positive, r.normal)(*r.shape())
    if r.integer(0, 4) == 0:
        return f"{name} of integers", function, r.integers(-3, 3, *r.shape())
    if r.integer(0, 6) == 0:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 1e300])
        return f"{name} of special numbers", lambda x: function(x.detach()), special
    return name, function, inner


BINARY = [
    "add", "sub", "mul", "div", "true_divide", "floor_divide", "fmod", "remainder", "pow", "atan2", "maximum",
    "minimum", "fmax", "fmin", "hypot", "logaddexp", "logaddexp2", "xlogy", "copysign", "ldexp", "heaviside", "eq",
    "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm", "rsub", "isclose", "nextafter",
    "float_power", "dist", "polar", "special.xlog1py", "special.zeta", "subtract", "clamp_min", "clamp_max",
]  # fmt: skip


@family
def binary(r: Draw) -> Made:
    name = r.pick(*BINARY)
    function: Any = torch
    for part in name.split("."):
        function = getattr(function, part)
    shape = r.shape()
    other = tuple(r.pick(size, 1) for size in shape[r.integer(0, len(shape)) :])
    makers = (r.floats, r.normal, lambda *s: r.integers(-3, 3, *s), r.flags)
    if name.startswith(("bitwise", "gcd", "lcm")):
        makers = (lambda *s: r.integers(-3, 3, *s), r.flags)
    x, y = r.pick(*makers)(*shape), r.pick(*makers)(*other)
    match r.integer(0, 4):
        case 0:
            number = r.pick(-2.5, -1, 0, 0.5, 1, 2, 3, True)
            return f"{name} with {number}", lambda x: function(x, number), x
        case 1 if name in ("add", "sub"):
            alpha = r.pick(2, -1)
            return f"{name} alpha={alpha}", lambda x, y: function(x, y, alpha=alpha), x, y
        case 2 if name in ("div", "floor_divide"):
            mode = r.pick("floor", "trunc", None)
            return f"div {mode}", lambda x, y: torch.div(x, y, rounding_mode=mode), x, y
    return name, function, x, y


TYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
    torch.bool,
]  # fmt: skip


@family
def promotion(r: Draw) -> Made:
    first, second = r.pick(*TYPES), r.pick(*TYPES)
    name = r.pick(
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "maximum",
        "where",
        "remainder",
        "eq",
        "floor_divide",
        "cat",
        "atan2",
        "fmod",
    )
    shape = r.shape(0, 2)
    other = r.pick(shape, ())
    number = r.pick(None, 2, 1.5, True)

    def apply(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x.to(first), (y.to(second) if number is None else number)
        if name == "where":
            return torch.where(x > 1, a, b)
        if name == "cat":
            return torch.cat([a.reshape(-1), y.to(second).reshape(-1)])
        return getattr(torch, name)(a, b)

    return f"{name} {first} {second} {number}", apply, r.integers(1, 4, *shape), r.integers(1, 3, *other)


@family
def conversion(r: Draw) -> Made:
    dtype = r.pick(*TYPES)
    values = r.pick(np.array([-3.7, -1.0, -0.2, 0.0, 0.4, 2.5, 3.5, 100.6]), r.integers(-3, 100, 5))
    back = r.pick(torch.float64, torch.float32, torch.int32)
    return (
        f"to {dtype} and {back}",
        lambda x: x.abs().to(dtype).to(back) if dtype is torch.uint8 else x.to(dtype).to(back),
        values,
    )


@family
def low_precision(r: Draw) -> Made:
    dtype = r.pick(torch.float16, torch.bfloat16, torch.float32)
    name = r.pick(
        "sum",
        "mean",
        "softmax",
        "log_softmax",
        "exp",
        "matmul",
        "layer_norm",
        "cumsum",
        "var",
        "norm",
        "gelu",
        "prod",
        "silu",
    )
    shape = r.sizes(2, 2, 5)

    def apply(x: torch.Tensor) -> Any:
        y = x.to(dtype)
        match name:
            case "softmax" | "log_softmax" | "cumsum" | "prod":
                return getattr(torch, name)(y, 1)
            case "matmul":
                return y @ y.T
            case "layer_norm":
                return F.layer_norm(y, y.shape[-1:])
            case "gelu" | "silu":
                return getattr(F, name)(y)
        return getattr(torch, name)(y)

    return f"{name} {dtype}", apply, r.normal(*shape)
