"""Draws of reductions, order and search."""

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family

REDUCTIONS = [
    "sum", "mean", "prod", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "all", "any", "logsumexp",
    "std", "var", "var_mean", "std_mean", "nansum", "nanmean", "count_nonzero", "median", "nanmedian", "mode", "norm",
    "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "topk", "kthvalue", "quantile",
    "nanquantile", "softmax", "log_softmax", "softmin", "normalize", "vector_norm", "matrix_norm", "diff",
    "trapezoid", "cumulative_trapezoid", "unique_consecutive", "msort", "renorm", "cov", "corrcoef", "sum_dtype",
]  # fmt: skip


@family
def reduction(r: Draw) -> Made:  # noqa: C901  # one case an operation
    name = r.pick(*REDUCTIONS)
    shape = r.shape()
    axis, axes, keepdim = r.axis(shape), r.axes(shape), r.flag()
    x = r.pick(r.floats, r.normal)(*shape)
    kind = r.integer(0, 5)
    if kind == 0:
        x = r.integers(-2, 3, *shape)
    elif kind == 1:
        x = r.flags(*shape)
    words = f"{name} axis={axis} axes={axes} keepdim={keepdim}"
    order = r.pick(0, 1, 2, 3, 0.5, 2.5, -1, -2, float("inf"), float("-inf"))
    match name:
        case "sum" | "mean" | "nansum" | "nanmean" | "amax" | "amin" | "logsumexp" | "all" | "any":
            if r.integer(0, 3) == 0 and name != "logsumexp":
                return f"{name}", lambda x: getattr(torch, name)(x), x
            return words, lambda x: getattr(torch, name)(x, axes, keepdim=keepdim), x
        case "sum_dtype":
            dtype, of = (
                r.pick(torch.float32, torch.float64, torch.int64, torch.bfloat16),
                r.pick("sum", "mean", "prod", "cumsum", "cumprod", "softmax"),
            )
            return f"{of} {dtype} {axis}", lambda x: getattr(torch, of)(x, axis, dtype=dtype), x
        case "std" | "var" | "std_mean" | "var_mean":
            options = r.pick({"unbiased": r.flag()}, {"correction": r.pick(0, 1, 2, 5)})
            return (
                f"{words} {options}",
                lambda x: getattr(torch, name)(x, axes, keepdim=keepdim, **options),
                x,
            )
        case "norm" | "vector_norm":
            function = torch.norm if name == "norm" else torch.linalg.vector_norm
            return f"{words} {order}", lambda x: function(x, order, axes, keepdim), x
        case "matrix_norm":
            order = r.pick("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"))
            return (
                f"{name} {order}",
                lambda x: torch.linalg.matrix_norm(x, order, keepdim=keepdim),
                r.floats(*r.sizes(3, 2, 3)),
            )
        case "prod" | "max" | "min" | "argmax" | "argmin" | "median" | "nanmedian" | "mode":
            if name != "mode" and r.integer(0, 3) == 0:
                return name, lambda x: getattr(torch, name)(x), x
            return words, lambda x: getattr(torch, name)(x, axis, keepdim=keepdim), x
        case "aminmax":
            return words, lambda x: torch.aminmax(x, dim=axis, keepdim=keepdim), x
        case "count_nonzero":
            return words, lambda x: torch.count_nonzero(x, r.pick(axis)), x
        case "cumsum" | "cumprod" | "cummax" | "cummin" | "logcumsumexp":
            return words, lambda x: getattr(torch, name)(x, axis), x
        case "softmax" | "log_softmax" | "softmin":
            return words, lambda x: getattr(F, name)(x, axis), x
        case "sort" | "argsort":
            options = {"descending": r.flag(), "stable": True}
            return f"{words} {options}", lambda x: getattr(torch, name)(x, dim=axis, **options), x
        case "topk":
            k, largest = r.integer(0, 2), r.flag()
            if x.size and x.dtype == float:
                x = (
                    x + np.arange(x.size).reshape(x.shape) * 1e-3
                )  # which of equal elements it takes is not said
            return f"{words} {k} {largest}", lambda x: torch.topk(x, k, axis, largest), x
        case "kthvalue":
            k = r.integer(1, 2)
            return (
                f"{words} {k}",
                lambda x: torch.kthvalue(x, k, axis, keepdim),
                x + np.arange(x.size).reshape(x.shape) * 1e-3,
            )
        case "quantile" | "nanquantile":
            how, q = (
                r.pick("linear", "lower", "higher", "midpoint", "nearest"),
                r.pick(0.0, 0.25, 0.4, 0.9, 1.0),
            )
            return (
                f"{words} {q} {how}",
                lambda x: getattr(torch, name)(x, q, axis, keepdim, interpolation=how),
                x,
            )
        case "normalize":
            return f"{words} {order}", lambda x: F.normalize(x, p=order, dim=axis), x
        case "diff" | "trapezoid" | "cumulative_trapezoid":
            return words, lambda x: getattr(torch, name)(x, dim=axis), x
        case "renorm":
            return words, lambda x: torch.renorm(x, 2, axis, 1.5), x
        case "cov" | "corrcoef":
            return name, lambda x: getattr(torch, name)(x), r.normal(*r.sizes(2, 2, 4))
    return words, lambda x: getattr(torch, name)(x), x


@family
def searching(r: Draw) -> Made:
    right, int32 = r.flag(), r.flag()
    edges = np.sort(r.floats(r.integer(1, 5)))
    x = r.floats(*r.shape())
    rows = np.sort(r.floats(2, 4), axis=-1)
    bins = r.integer(1, 6)
    return r.pick(
        (f"bucketize {right}", lambda x, e: torch.bucketize(x, e, right=right, out_int32=int32), x, edges),
        (
            f"searchsorted {right}",
            lambda x, e: torch.searchsorted(e, x, right=right, out_int32=int32),
            x,
            edges,
        ),
        (
            f"searchsorted rows {right}",
            lambda x, e: torch.searchsorted(e, x, right=right),
            r.floats(2, 3),
            rows,
        ),
        ("bincount", lambda i: torch.bincount(i, minlength=7)[:7], r.integers(0, 6, 5)),
        (f"histc {bins}", lambda x: torch.histc(x.detach(), bins, -2, 2), r.normal(9)),
        ("isin", lambda i, j: torch.isin(i, j), r.integers(0, 5, 3, 2), r.integers(0, 5, 3)),
        ("one_hot", lambda i: F.one_hot(i, 6), r.integers(0, 5, *r.shape(0, 2))),
        ("bucketize number", lambda e: torch.bucketize(0.5, e), edges),
    )
