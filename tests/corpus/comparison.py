"""A case's gradients by PCP beside those of JAX: with random cotangents, in the types of the arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pcp
from pcp.autodiff import value_and_vjp
from pcp.ir.tree import flatten
from tests.corpus.case import Case
from tests.execution import run

FLOOR = 1e-5  # an array this much smaller than the greatest gradient holds little but rounding
TINY = 1e-300  # where every gradient is zero, any difference is too great


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
    with jax.enable_x64(True):
        arguments = case.arguments(rng)
        program = pcp.from_jax(case.function, *arguments)
        wrt = case.wrt or tuple(i for i, argument in enumerate(arguments) if _is_differentiable(argument))
        gradient = value_and_vjp(program, wrt)
        reference = _Reference(case.reference or case.function, arguments, wrt)
        cotangents = reference.cotangents(rng)
        found = run(gradient, *pcp.jax_arrays(arguments), *cotangents)
        expected = reference.outputs_and_gradients(cotangents)
        if not any(np.any(leaf) for leaf in expected[1]):
            raise ValueError(f"{case.name}: every gradient is zero, so any rule would pass")
        worst = max(distance(found[0], expected[0]), distance(found[1], expected[1]))
        if case.order == 2:
            worst = max(worst, _second_order(program, reference, cotangents, rng))
    if not worst <= case.tolerance:
        raise Mismatch(f"{case.name}: {worst:.2e} from JAX; expected at most {case.tolerance:.0e}")
    return worst


class _Reference:
    """The derivatives of a function by JAX, for the arguments that `wrt` names, in the order that PCP has."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], wrt: Sequence[int]) -> None:
        self.function, self.arguments, self.wrt = function, arguments, wrt
        self.leaves, self.structure = jax.tree.flatten([arguments[i] for i in wrt])
        self.primals = {str(i): leaf for i, leaf in enumerate(self.leaves) if _is_array(leaf)}
        self.outputs, self.others = jax.eval_shape(self.split, self.primals)

    def nested(self, primals: dict[str, Any]) -> Any:
        """Arrays in place of those of the arguments."""
        return self.structure.unflatten([primals.get(str(i), leaf) for i, leaf in enumerate(self.leaves)])

    def ordered(self, primals: dict[str, Any]) -> list[Any]:
        """Arrays in the order in which PCP has them."""
        return flatten(pcp.jax_arrays(self.nested(primals)))[0]

    def split(self, primals: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """The results that have cotangents, and the others."""
        arguments = list(self.arguments)
        for index, value in zip(self.wrt, self.nested(primals), strict=True):
            arguments[index] = value
        leaves = [jnp.asarray(leaf) for leaf in flatten(pcp.jax_arrays(self.function(*arguments)))[0]]
        self.kinds = [_is_differentiable(leaf) for leaf in leaves]
        return (
            [leaf for leaf, kind in zip(leaves, self.kinds, strict=True) if kind],
            [leaf for leaf, kind in zip(leaves, self.kinds, strict=True) if not kind],
        )

    def cotangents(self, rng: np.random.Generator) -> list[Any]:
        """A random cotangent for every result that has one."""
        return [drawn_like(leaf, rng) for leaf in self.outputs]

    def outputs_and_gradients(self, cotangents: list[Any]) -> tuple[list[Any], list[Any]]:
        """All results and the gradients."""

        def both(primals: Any, cotangents: Any) -> Any:
            outputs, pull, others = jax.vjp(self.split, primals, has_aux=True)
            return outputs, others, self.ordered(*pull(cotangents))

        outputs, others, gradients = _compiled(both)(self.primals, cotangents)
        made = {True: iter(outputs), False: iter(others)}
        return [next(made[kind]) for kind in self.kinds], gradients

    def gradients(self, primals: Any, cotangents: Any) -> list[Any]:
        """The gradients, to be differentiated once more."""
        return self.ordered(*jax.vjp(self.split, primals, has_aux=True)[1](cotangents))

    def second_order(self, cotangents: list[Any], directions: list[Any]) -> list[Any]:
        """What `directions` make of the gradients' own derivatives, for the primals and the cotangents."""

        def pulled(primals: Any, cotangents: Any, directions: Any) -> Any:
            primals, cotangents = jax.vjp(self.gradients, primals, cotangents)[1](directions)
            return [*self.ordered(primals), *cotangents]

        return _compiled(pulled)(self.primals, cotangents, directions)


def _second_order(
    program: pcp.Program, reference: _Reference, cotangents: list[Any], rng: np.random.Generator
) -> float:
    directions = [drawn_like(leaf, rng) for leaf in reference.ordered(reference.primals)]
    count = len(reference.arguments)
    wrt = tuple(reference.wrt)
    twice = pcp.vjp(pcp.vjp(program, wrt), (*wrt, *range(count, count + len(cotangents))))
    found = run(twice, *pcp.jax_arrays(reference.arguments), *cotangents, *directions)
    return distance(found, reference.second_order(cotangents, directions))


def distance(found: Any, expected: Sequence[Any]) -> float:
    """The greatest difference in any array relative to its greatest element, over all arrays."""
    ours, theirs = flatten(found)[0], [np.asarray(leaf) for leaf in expected]
    kinds = [[f"{a.dtype}{list(a.shape)}" for a in arrays] for arrays in (ours, theirs)]
    if kinds[0] != kinds[1]:
        raise Mismatch(f"PCP gives {kinds[0]}, the framework {kinds[1]}")
    sizes = [_greatest(array) for array in theirs]
    if not np.all(np.isfinite(sizes)):
        raise ValueError("the framework's own results or gradients are not finite")
    floor = FLOOR * max(sizes, default=0.0)
    differences = [_greatest(_wide(a) - _wide(b)) for a, b in zip(ours, theirs, strict=True)]
    if not np.all(np.isfinite(differences)):
        return float("inf")
    return max((d / max(size, floor, TINY) for d, size in zip(differences, sizes, strict=True)), default=0.0)


def drawn_like(leaf: Any, rng: np.random.Generator) -> Any:
    """A random array of the shape and type of another."""
    drawn = rng.normal(size=leaf.shape)
    if np.dtype(leaf.dtype).kind == "c":
        drawn = drawn + 1j * rng.normal(size=leaf.shape)
    return np.asarray(drawn).astype(leaf.dtype)


def _greatest(array: Any) -> float:
    return float(np.max(np.abs(_wide(array)), initial=0.0))


def _wide(array: Any) -> Any:
    return array.astype(np.complex128 if np.dtype(array.dtype).kind == "c" else np.float64)


def _is_differentiable(tree: Any) -> bool:
    arrays = [leaf for leaf in jax.tree.leaves(tree) if _is_array(leaf)]
    return bool(arrays) and all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in arrays)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
