"""An imported program beside the framework that it came from: values and gradients on random arrays, on the spot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pcp.autodiff.gradient import value_and_vjp
from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.planning.plan import plan

Array = np.ndarray[Any, Any]

TOLERANCES = {DType.f64: 1e-6, DType.f32: 1e-3, DType.c128: 1e-6, DType.c64: 1e-3}
"""The largest norm of a difference in units of the norm of what is expected, by element type; others are allowed:"""
COARSE = 0.1
_SMALLEST = 1e-3
"""A tensor whose elements are this much smaller than those of the largest is measured by that: it may cancel to nothing."""
_SEED = 20_261_122
_LISTED = 8


class ImportDiffers(PCPError):
    """A program that computes other values or gradients than the function or module it was imported from."""


class CannotCheck(PCPError):
    """An import whose results cannot be compared with the framework's own, because they are random."""


def random_like(spec: TensorSpec, place: int) -> Array:
    """Random numbers for an argument of which only the shape is known: normal, and 0 or 1 for integers and booleans."""
    generator = np.random.default_rng([_SEED, place])
    if spec.dtype.is_differentiable:
        return np.asarray(generator.normal(size=spec.shape)).astype(spec.dtype.numpy)
    return np.asarray(generator.integers(0, 2, spec.shape)).astype(spec.dtype.numpy)


def cotangents_of(program: Program, state: int = 0) -> list[Array]:
    """Random cotangents of the results of a program that have some; those of the first `state` results are zero."""
    specs = [
        (place, entry.spec)
        for place, entry in enumerate(program.results)
        if entry.spec.dtype.is_differentiable
    ]
    arrays = [(place, random_like(spec, 1000 + place)) for place, spec in specs]
    return [np.zeros_like(array) if place < state else array for place, array in arrays]


def differentiable_arguments(program: Program) -> list[int]:
    """The arguments, counted at the top level, that have leaves, all of them floating-point or complex."""
    places, first = [], 0
    for place, child in enumerate(program.argument_tree.children):
        leaves = program.arguments[first : first + child.leaf_count]
        first += child.leaf_count
        if leaves and all(entry.spec.dtype.is_differentiable for entry in leaves):
            places.append(place)
    return places


def values_and_gradients(
    program: Program, arguments: Sequence[Any], wrt: Sequence[int], cotangents: Sequence[Array]
) -> tuple[Any, Any]:
    """What a program gives for arguments, and its gradients for cotangents of its results.

    Arguments:
        wrt: the arguments to differentiate for, counted at the top level; the gradients are a tuple of as many.
    """
    if not wrt or not cotangents:
        return plan(program, cache=False).run(*arguments), ()
    pair: tuple[Any, Any] = plan(value_and_vjp(program, wrt), cache=False).run(*arguments, *cotangents)
    return pair


def by_name(value: Any, prefix: str) -> dict[str, Any]:
    """The leaves of a nested value by the names of their places."""
    leaves, tree = flatten(value)
    return dict(zip(tree.names(prefix), leaves, strict=True))


def by_argument(program: Program, wrt: Sequence[int], values: Sequence[Any]) -> dict[str, Any]:
    """The leaves of values nested like some arguments, by the names of these, as names of gradients."""
    counts = [child.leaf_count for child in program.argument_tree.children]
    names = [program.arguments[sum(counts[:i]) + k].name for i in wrt for k in range(counts[i])]
    return dict(zip((f"gradient of {name}" for name in names), flatten(tuple(values))[0], strict=True))


def compare(origin: Any, actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare arrays by name.

    Arguments:
        origin: the function or module that is their origin.

    Raises:
        ImportDiffers: one differs by more than its tolerance; the message names each with its error.
    """
    wrong = []
    arrays = {name: np.asarray(array) for name, array in expected.items()}
    least = _SMALLEST * max(map(_mean_size, arrays.values()), default=0.0)
    for name, theirs in arrays.items():
        dtype = dtype_of(theirs.dtype)
        tolerance = TOLERANCES.get(dtype, COARSE if dtype.is_float else 0.0)
        error = _error(np.asarray(actual[name]), theirs, least)
        if not error <= tolerance:
            wrong.append(f"  {name}: relative error {error:.2g}, tolerance {tolerance:g}")
    if wrong:
        more = [f"  and {len(wrong) - _LISTED} more"] if len(wrong) > _LISTED else []
        name = getattr(origin, "__name__", type(origin).__name__)
        lines = "\n".join([*wrong[:_LISTED], *more])
        raise ImportDiffers(
            f"the program that was imported from {name} differs from it in {len(wrong)} of {len(expected)} tensors:\n{lines}\n"
            "this is a defect of the import, if the function gives the same result twice: please report it with these names"
        )


def _error(mine: Array, theirs: Array, least: float) -> float:
    """The norm of the difference in units of that of what is expected, or of `least` for each of its elements."""
    if mine.shape != theirs.shape:
        return float("inf")
    if not dtype_of(theirs.dtype).is_differentiable:
        return float(np.mean(mine != theirs)) if theirs.size else 0.0
    a, b = _wide(mine), _wide(theirs)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities among them
    difference = float(np.linalg.norm(np.where(alike, 0, a - b)))
    size = max(_mean_size(theirs), least) * np.sqrt(theirs.size)
    return difference / float(size) if difference else 0.0


def _mean_size(array: Array) -> float:
    """The root of the mean square of the elements that are finite."""
    if not dtype_of(array.dtype).is_differentiable:
        return 0.0
    sizes = np.abs(_wide(array))
    finite = sizes[np.isfinite(sizes)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if dtype_of(array.dtype).kind == "complex" else np.float64)
