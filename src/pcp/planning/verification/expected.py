"""What a problem should come out as: in float64, by the plain program, and on which scale each element is judged."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.autodiff import vjp
from pcp.ir import Program, TensorSpec
from pcp.ir.tree import flatten
from pcp.kernels.problems import Problem
from pcp.planning.judging.distances import scale_of
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.plan import Plan, plan
from pcp.planning.verification.values import (
    GRADIENT_KINDS,
    KINDS,
    Values,
    arguments_for,
    flushed,
    kinds_for,
)

Array = np.ndarray[Any, Any]


LARGE = 1 << 18
"""Operands with this many elements are tried with the first `FEW` kinds of values only, and the kinds of indices."""
FEW = 6
SHORT = 1 << 21
"""Elements of all arrays of a wide problem up to which it is tried on more than one list of arguments."""
HUGE = 1 << 24
"""Elements of all arrays from which on the plain program says what is right: float64 would take too long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One result on one list of arguments.

    Arguments:
        exact: in float64.
        flushed: in float64 too, where denormal operands are read as 0.
        plain: by the plain program.
        scale: for each element the size of what was added up to it, which is the result for the operands' absolute values, but
            at least the size of a typical element. What is larger itself is judged on its own scale.
    """

    exact: Array
    flushed: Array
    plain: Array
    scale: Array | float


@dataclass(frozen=True, slots=True)
class Expectation:
    """Everything that a candidate is compared with on one problem.

    Arguments:
        program: the plain one.
        kinds: of values, one for each list of arguments.
        outcomes: for each list, of every result.
    """

    program: Program
    kinds: tuple[Values, ...]
    arguments: tuple[list[Array], ...]
    outcomes: tuple[list[Outcome], ...]

    @property
    def result(self) -> TensorSpec:
        """Of the first result."""
        return self.program.results[0].spec


@functools.lru_cache(maxsize=24)
def expected_results(problem: Problem, seed: int) -> Expectation:
    """What the problem should come out as, for every kind of values."""
    large = problem.size > LARGE
    kinds = tuple(
        kind
        for count, kind in enumerate(kinds_for(problem))
        if not large or count < FEW or kind.indices is not None
    )
    arguments = tuple(arguments_for(problem, kind, seed) for kind in kinds)
    return _expectation(problem.reference(), kinds, arguments)


@functools.lru_cache(maxsize=24)
def expected_gradients(problem: Problem, seed: int) -> Expectation:
    """What the gradients of the floating-point operands should come out as; the last argument is the cotangent."""
    reference = problem.reference()
    program = vjp(reference, wrt=differentiable(problem))
    [result] = reference.results
    kinds = tuple(KINDS[name] for name in GRADIENT_KINDS)
    arguments = []
    for count, kind in enumerate(kinds):
        rng = np.random.default_rng([seed, count])
        cotangent = rng.standard_normal(result.spec.shape).astype(result.spec.dtype.numpy)
        arguments.append([*arguments_for(problem, kind, seed), cotangent])
    return _expectation(program, kinds, tuple(arguments))


def expected_wide(problem: Problem, seed: int) -> Expectation:
    """What a wide problem should come out as on a few kinds of values; of a huge one the plain program says so."""
    program = problem.reference()
    size = problem.size + sum(spec.size for spec in problem.results)
    names = ["normal", "again", "large"] if size <= SHORT else ["normal"]
    if problem.ranges and size <= HUGE:
        names += ["equal indices", "Zipf indices"]
    kinds = tuple(KINDS[name] for name in names)
    arguments = tuple(arguments_for(problem, kind, seed) for kind in kinds)
    compiled = plan(program)
    plain = [_run(compiled, operands)[0] for operands in arguments]
    exact = plain
    if size <= HUGE:
        wide = plan(widened(program))
        exact = [_run(wide, _wide(program, operands))[0] for operands in arguments]
    outcomes = tuple(
        [Outcome(y, y, by_plain, typical_size(y))] for y, by_plain in zip(exact, plain, strict=True)
    )
    return Expectation(program, kinds, arguments, outcomes)


def differentiable(problem: Problem) -> tuple[int, ...]:
    """The places of the floating-point operands."""
    return tuple(place for place in range(len(problem.specs)) if place not in problem.ranges)


def _expectation(
    program: Program, kinds: tuple[Values, ...], arguments: tuple[list[Array], ...]
) -> Expectation:
    plain, exact = plan(program), plan(widened(program))
    outcomes = []
    for kind, operands in zip(kinds, arguments, strict=True):
        results = _run(exact, _wide(program, operands))
        at_zero = _run(exact, _wide(program, flushed(operands))) if "denormal" in kind.name else results
        sizes = _run(exact, [np.abs(array) for array in _wide(program, operands)])
        scales = map(_scale, results, sizes)
        outcomes.append(list(map(Outcome, results, at_zero, _run(plain, operands), scales)))
    return Expectation(program, kinds, arguments, tuple(outcomes))


def _wide(program: Program, arrays: Sequence[Array]) -> list[Array]:
    return list(widened_arrays(program.arguments, arrays))


def _run(compiled: Plan, arguments: Sequence[Array]) -> list[Array]:
    results, _ = flatten(compiled.run(*arguments))
    return [np.array(result) for result in results]


def typical_size(exact: Array) -> float:
    """The size of an element; where most are 0, as in the gradient of a large table, of the rest."""
    return scale_of(exact).whole / math.sqrt(max(1, int(np.count_nonzero(exact))))


def _scale(exact: Array, size: Array) -> Array:
    scale = np.fmax(np.abs(exact), np.abs(size))
    finite = scale[np.isfinite(scale)]
    if not finite.size:
        return np.ones_like(scale)
    largest = finite.max(initial=0.0)
    typical = largest * np.sqrt(np.mean((finite / largest) ** 2)) if largest > 0 else 0.0
    scales: Array = np.where(np.isfinite(scale), np.fmax(scale, typical), typical)
    return scales
