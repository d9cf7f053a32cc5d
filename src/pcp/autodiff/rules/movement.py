"""Derivatives of movement operations: each is linear, and its transpose moves the cotangent back."""

from collections.abc import Sequence

from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.movement import pad, reshape, reverse, slice_, transpose
from pcp.ops.record import supply_derivatives
from pcp.ops.reduction import sum_
from pcp.tensor import Tensor


def _transpose(primal: Primal, g: Tensor) -> list[Cotangent]:
    return [transpose(g, inverse(primal.integers("permutation")))]


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _broadcast_in_dim(primal: Primal, g: Tensor) -> list[Cotangent]:
    """The sum over every axis along which elements were repeated."""
    axes, shape = primal.integers("broadcast_dimensions"), primal.input(0).shape
    kept = [axis for axis, size in zip(axes, shape, strict=True) if size == g.shape[axis]]
    total = sum_(g, tuple(axis for axis, size in enumerate(g.shape) if axis not in kept and size != 1))
    in_order = sorted(kept)
    if in_order != kept:
        total = transpose(
            reshape(total, [g.shape[axis] for axis in in_order]), [in_order.index(a) for a in kept]
        )
    return [reshape(total, shape)]


def _concatenate(primal: Primal, g: Tensor) -> list[Cotangent]:
    axis, start = primal.integer("dimension"), 0
    parts: list[Cotangent] = []
    for index, active in enumerate(primal.active):
        size = primal.input(index).shape[axis]
        low, high = [0] * g.ndim, list(g.shape)
        low[axis], high[axis] = start, start + size
        parts.append(slice_(g, low, high) if active else None)
        start += size
    return parts


def _slice(primal: Primal, g: Tensor) -> list[Cotangent]:
    starts, steps = primal.integers("start_indices"), primal.integers("strides")
    sizes = zip(starts, steps, g.shape, primal.input(0).shape, strict=True)
    widths = [
        (start, whole - start - max((n - 1) * step + 1, 0) * (n > 0), step - 1)
        for start, step, n, whole in sizes
    ]
    return [pad(g, widths)]


def _pad(primal: Primal, g: Tensor) -> list[Cotangent]:
    low, high, inner = (
        primal.integers(f) for f in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    # Negative padding cut elements off: they get zeros. Then the padding in front, behind and between is cut off.
    missing = [(max(-a, 0), max(-b, 0)) for a, b in zip(low, high, strict=True)]
    whole = pad(g, missing) if any(map(any, missing)) else g
    start = [max(a, 0) for a in low]
    stop = [n - max(b, 0) for n, b in zip(whole.shape, high, strict=True)]
    part = slice_(whole, start, stop, [i + 1 for i in inner])
    filler = sum_(g) - sum_(part) if primal.active[1] else None
    return [part if primal.active[0] else None, filler]


def _reverse(primal: Primal, g: Tensor) -> list[Cotangent]:
    return [reverse(g, primal.integers("dimensions"))]


supply_derivatives(
    {
        "transpose": _transpose,
        "reshape": (lambda g, y, x: reshape(g, x.shape),),
        "broadcast_in_dim": _broadcast_in_dim,
        "concatenate": _concatenate,
        "slice": _slice,
        "pad": _pad,
        "reverse": _reverse,
    }
)
