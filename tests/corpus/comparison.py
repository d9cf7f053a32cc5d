"""A case's gradients by PCP beside those of JAX: with random cotangents, in the types of the arguments."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import pcp
from pcp.autodiff import value_and_vjp
from pcp.ir.tree import flatten
from tests.corpus.case import Case
from tests.execution import run

FLOOR = 1e-5  # an array this much smaller than the greatest gradient holds little but rounding


class Mismatch(AssertionError):
    """Gradients further from the framework's than the case allows."""


def check_jax(case: Case) -> float:
    """Compare a case with JAX.

    Returns:
        The greatest relative distance that was found.

    Raises:
        Mismatch: it is greater than the case's tolerance.
        PCPError: PCP refuses.
    """
    rng = np.random.default_rng(sum(case.name.encode()))
    arguments = case.arguments(rng)
    with jax.enable_x64(True):
        program = imported(case.function, arguments)
        wrt = tuple(i for i, argument in enumerate(arguments) if _is_differentiable(argument))
        reference = _Reference(case.function, arguments, wrt)
        cotangents = reference.cotangents(rng)
        outputs, gradients = run(value_and_vjp(program, wrt), *arguments, *cotangents)
        expected = reference.outputs_and_gradients(cotangents)
        worst = max(distance(outputs, expected[0]), distance(gradients, expected[1]))
        if not any(np.any(leaf) for leaf in jax.tree.leaves(expected[1])):
            raise ValueError(f"{case.name}: every gradient is zero, so any rule would pass")
        if case.order == 2:
            worst = max(worst, _second_order(program, reference, wrt, cotangents, rng))
    if not worst <= case.tolerance:
        raise Mismatch(f"{case.name}: {worst:.2e} from JAX; expected at most {case.tolerance:.0e}")
    return worst


def imported(function: Callable[..., Any], arguments: tuple[Any, ...]) -> pcp.Program:
    """The program of a JAX function."""
    flat, structure = jax.tree.flatten(arguments)
    if len(flat) != len(arguments):
        raise NotImplementedError("nested arguments")
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    return pcp.Program.parse(text)


class _Reference:
    """The derivatives of a function by JAX, for the arguments that `wrt` names."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], wrt: Sequence[int]) -> None:
        self.function, self.arguments, self.wrt = function, arguments, wrt
        self.primals = tuple(arguments[i] for i in wrt)
        self.outputs, self.others = jax.eval_shape(self.split, *self.primals)

    def split(self, *primals: Any) -> tuple[list[Any], list[Any]]:
        """The results that have cotangents, and the others."""
        arguments = list(self.arguments)
        for index, value in zip(self.wrt, primals, strict=True):
            arguments[index] = value
        leaves = [jax.numpy.asarray(leaf) for leaf in jax.tree.leaves(self.function(*arguments))]
        self.kinds = [_is_differentiable(leaf) for leaf in leaves]
        return (
            [leaf for leaf, kind in zip(leaves, self.kinds, strict=True) if kind],
            [leaf for leaf, kind in zip(leaves, self.kinds, strict=True) if not kind],
        )

    def cotangents(self, rng: np.random.Generator) -> list[Any]:
        """A random cotangent for every result that has one."""
        return [_drawn_like(leaf, rng) for leaf in self.outputs]

    def outputs_and_gradients(self, cotangents: list[Any]) -> Any:
        """All results, in order, and the gradients."""

        def both(primals: Any, cotangents: Any) -> Any:
            outputs, pull, others = jax.vjp(self.split, *primals, has_aux=True)
            return outputs, others, pull(cotangents)

        outputs, others, gradients = _compiled(both)(self.primals, cotangents)
        made = {True: iter(outputs), False: iter(others)}
        return [next(made[kind]) for kind in self.kinds], gradients

    def gradients(self, primals: Any, cotangents: Any) -> Any:
        """The gradients, to be differentiated once more."""
        return jax.vjp(self.split, *primals, has_aux=True)[1](cotangents)

    def second_order(self, cotangents: list[Any], directions: Any) -> Any:
        """What `directions` make of the gradients' own derivatives, for the primals and the cotangents."""

        def pulled(primals: Any, cotangents: Any, directions: Any) -> Any:
            return jax.vjp(self.gradients, primals, cotangents)[1](directions)

        primals, more = _compiled(pulled)(self.primals, cotangents, directions)
        return [*primals, *more]


def _second_order(
    program: pcp.Program, reference: _Reference, wrt: Sequence[int], cotangents: list[Any], rng: np.random.Generator
) -> float:
    directions = jax.tree.map(lambda leaf: _drawn_like(leaf, rng), reference.primals)
    count = len(reference.arguments)
    twice = pcp.vjp(pcp.vjp(program, wrt), (*wrt, *range(count, count + len(cotangents))))
    found = run(twice, *reference.arguments, *cotangents, *jax.tree.leaves(directions))
    return distance(found, reference.second_order(cotangents, directions))


def distance(found: Any, expected: Any) -> float:
    """The greatest difference in any array relative to its greatest element, over all arrays of two trees."""
    ours, _ = flatten(found)
    theirs = [np.asarray(leaf) for leaf in jax.tree.leaves(expected)]
    if [a.shape for a in ours] != [a.shape for a in theirs] or [a.dtype for a in ours] != [a.dtype for a in theirs]:
        raise Mismatch(f"{[a.shape for a in ours]} beside {[a.shape for a in theirs]}")
    sizes = [_greatest(leaf) for leaf in theirs]
    if not np.all(np.isfinite(sizes)):
        raise ValueError("the framework's own gradients are not finite")
    floor = FLOOR * max(sizes, default=0.0)
    worst = 0.0
    for a, b, size in zip(ours, theirs, sizes, strict=True):
        difference = _greatest(a.astype(_wide(a)) - b.astype(_wide(b)))
        if not difference <= 0:
            worst = max(worst, difference / max(size, floor) if max(size, floor) > 0 else np.inf)
            if np.isnan(difference):
                return float("inf")
    return float(worst)


def _greatest(array: Any) -> float:
    return float(np.max(np.abs(array.astype(_wide(array))), initial=0.0))


def _wide(array: Any) -> Any:
    return np.complex128 if np.dtype(array.dtype).kind == "c" else np.float64


def _is_differentiable(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree)
    return bool(leaves) and all(jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact) for leaf in leaves)


def _drawn_like(leaf: Any, rng: np.random.Generator) -> Any:
    drawn = rng.normal(size=leaf.shape)
    if np.dtype(leaf.dtype).kind == "c":
        drawn = drawn + 1j * rng.normal(size=leaf.shape)
    return np.asarray(drawn).astype(leaf.dtype)


@functools.cache
def _quickly() -> None:
    """Let JAX compile without optimising: each reference runs once."""
    jax.config.update("jax_disable_most_optimizations", True)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
