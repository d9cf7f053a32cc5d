"""How the arguments of cases are drawn: random and never zero, from domains where a derivative exists."""

from typing import Any

import numpy as np

from tests.corpus.case import Maker

Shape = tuple[int, ...]


def normal(*shapes: Shape) -> Maker:
    """Arrays of standard normal numbers."""
    return lambda rng: tuple(rng.normal(size=shape) for shape in shapes)


def uniform(low: float, high: float, *shapes: Shape) -> Maker:
    """Arrays of numbers between two bounds."""
    return lambda rng: tuple(rng.uniform(low, high, shape) for shape in shapes)


def positive(*shapes: Shape) -> Maker:
    """Arrays of numbers well above zero."""
    return uniform(0.5, 2.0, *shapes)


def complex_normal(*shapes: Shape) -> Maker:
    """Arrays of complex numbers with normal parts."""
    return lambda rng: tuple(rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in shapes)


def integers(low: int, high: int, *shapes: Shape) -> Maker:
    """Arrays of 32-bit integers from `low` up to and without `high`."""
    return lambda rng: tuple(rng.integers(low, high, shape).astype(np.int32) for shape in shapes)


def distinct(*shapes: Shape) -> Maker:
    """Arrays without two near elements, so that no order among them is a matter of rounding."""

    def made(rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(
            (rng.permutation(int(np.prod(shape))) + rng.uniform(0.1, 0.4)).reshape(shape) / 3 - 1
            for shape in shapes
        )

    return made


def definite(*shapes: Shape) -> Maker:
    """Symmetric positive definite matrices with eigenvalues well apart."""

    def one(rng: np.random.Generator, shape: Shape) -> Any:
        size = shape[-1]
        basis = np.linalg.qr(rng.normal(size=shape))[0]
        values = np.arange(1, size + 1) + rng.uniform(0.1, 0.4, (*shape[:-2], size))
        return np.einsum("...ij,...j,...kj->...ik", basis, values, basis)

    return lambda rng: tuple(one(rng, shape) for shape in shapes)


def invertible(*shapes: Shape) -> Maker:
    """Square matrices far from singular ones."""
    return lambda rng: tuple(rng.normal(size=shape) / 2 + 2 * np.eye(shape[-1]) for shape in shapes)


def typed(dtype: str, maker: Maker) -> Maker:
    """The floating-point arrays of a maker in another type."""
    import ml_dtypes  # noqa: F401  # it names bfloat16 for NumPy

    return lambda rng: tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in maker(rng))


def together(*makers: Maker) -> Maker:
    """The arguments of several makers, one after another."""
    return lambda rng: tuple(argument for maker in makers for argument in maker(rng))
