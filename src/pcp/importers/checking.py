"""An imported program beside the framework that it came from: values and gradients on random arrays, on the spot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pcp.autodiff.gradient import value_and_vjp
from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.types import dtype_of
from pcp.planning import plan

Array = np.ndarray[Any, Any]

TOLERANCES = {DType.f64: 1e-6, DType.f32: 1e-3, DType.c128: 1e-6, DType.c64: 1e-3}
"""The largest norm of a difference in units of the norm of what is expected, by element type; others are allowed:"""
COARSE = 0.1
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


def cotangents_of(program: Program) -> list[Array]:
    """Random cotangents of the results of a program that have some."""
    specs = [entry.spec for entry in program.results if entry.spec.dtype.is_differentiable]
    return [random_like(spec, 1000 + place) for place, spec in enumerate(specs)]


def differentiable_arguments(program: Program) -> list[int]:
    """The arguments, counted at the top level, whose leaves are all floating-point or complex; there is at least one leaf."""
    found, first = [], 0
    for place, child in enumerate(program.argument_tree.children):
        leaves = program.arguments[first : first + child.leaf_count]
        first += child.leaf_count
        if leaves and all(entry.spec.dtype.is_differentiable for entry in leaves):
            found.append(place)
    return found


def values_and_gradients(program: Program, arguments: Sequence[Any], wrt: Sequence[int]) -> tuple[Any, Any]:
    """What a program gives for arguments, and the gradients for `cotangents_of` it.

    Arguments:
        wrt: the arguments to differentiate for, counted at the top level; the gradients are a tuple of as many.
    """
    cotangents = cotangents_of(program)
    if not wrt or not cotangents:
        return plan(program, cache=False).run(*arguments), ()
    results: tuple[Any, Any] = plan(value_and_vjp(program, wrt), cache=False).run(*arguments, *cotangents)
    return results


def compare(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare arrays by name.

    Arguments:
        what: they are of, for the message: `Linear`.

    Raises:
        ImportDiffers: one differs by more than its tolerance; the message names each with its error.
    """
    wrong = []
    for name, array in expected.items():
        mine, theirs = np.asarray(found[name]), np.asarray(array)
        tolerance = TOLERANCES.get(dtype_of(theirs.dtype), COARSE if dtype_of(theirs.dtype).is_float else 0.0)
        error = _error(mine, theirs)
        if not error <= tolerance:
            wrong.append(f"  {name}: relative error {error:.2g}, tolerance {tolerance:g}")
    if wrong:
        more = [f"  and {len(wrong) - _LISTED} more"] if len(wrong) > _LISTED else []
        lines = "\n".join([*wrong[:_LISTED], *more])
        raise ImportDiffers(
            f"the program that was imported from {what} differs from it in {len(wrong)} of {len(expected)} tensors:\n{lines}\n"
            "this is a defect of the import, if the function gives the same result twice: please report it with these names"
        )


def _error(mine: Array, theirs: Array) -> float:
    """The norm of the difference in units of that of what is expected; not a number where one of them alone is none."""
    if mine.shape != theirs.shape:
        return float("inf")
    if not dtype_of(theirs.dtype).is_differentiable:
        return float(np.mean(mine != theirs)) if theirs.size else 0.0
    wide = np.complex128 if dtype_of(theirs.dtype).kind == "complex" else np.float64
    a, b = mine.astype(wide), theirs.astype(wide)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities among them
    difference, size = np.linalg.norm(np.where(alike, 0, a - b)), np.linalg.norm(b[np.isfinite(b)])
    # What cancels to almost nothing is compared with one per element.
    return float(difference / max(size, 1e-4 * np.sqrt(b.size), 1e-300))
