"""How operands of tests are drawn: in any element type, and where an operation is defined."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.ir import DType

Shape = tuple[int, ...]
Operands = Callable[[np.random.Generator, Sequence[Shape], DType], list[Any]]
"""From generator, shapes and element type to operands."""


def draw(rng: np.random.Generator, shape: Shape, dtype: DType, low: float, high: float) -> Any:
    """Random elements between the bounds that the type allows."""
    if dtype is DType.bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        bottom, top = max(math.ceil(low), limits.min), min(math.floor(high), limits.max)
        return rng.integers(bottom, top, shape, endpoint=True).astype(dtype.numpy)
    if dtype.kind == "complex":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)


def modulo_divisor(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """A divisor that is not 0."""
    x = draw(rng, shapes[0], dtype, -40, 40)
    y = draw(rng, shapes[1], dtype, 1, 9)
    negative = rng.random(shapes[1]) < 0.5 if dtype.kind in ("signed", "float") else np.zeros(shapes[1], bool)
    return [x, np.where(negative, -y, y).astype(dtype.numpy)]


def power_operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """A base above 0, and an exponent not below 0."""
    return [draw(rng, shapes[0], dtype, 0.5, 3), draw(rng, shapes[1], dtype, 0, 4)]


def away_from_poles(bound: float) -> Callable[..., list[Any]]:
    """Operands whose imaginary parts are within 1: near a pole, few digits of a result are correct."""

    def operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
        x = draw(rng, shapes[0], dtype, -bound, bound)
        return [np.asarray(x.real + 1j * x.imag / bound, dtype.numpy) if dtype.kind == "complex" else x]

    return operands


def shift_operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """A distance within the width of the type."""
    return [draw(rng, shapes[0], dtype, -100, 100), draw(rng, shapes[1], dtype, 0, 8 * dtype.itemsize - 1)]


def mask_operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """A mask first."""
    return [rng.random(shapes[0]) < 0.5, *(draw(rng, shape, dtype, -9, 9) for shape in shapes[1:])]


def index_operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """Indices last."""
    return [draw(rng, shapes[0], dtype, -9, 9), rng.integers(-3, 3, shapes[1]).astype(np.int32)]
