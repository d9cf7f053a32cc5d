"""What a row of the test tables is: an expression that uses one operation, the same in JAX, and a domain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pcp import Program, Tensor, call
from pcp.ops import elementwise as e
from pcp.tensor import current_builder
from tests.domains import Array as Array
from tests.domains import Domain as Domain
from tests.domains import between as between
from tests.domains import normal as normal


@dataclass(frozen=True)
class Row:
    """What checks one rule.

    Arguments:
        rule: its name, without `stablehlo.`.
        function: an expression of Tensors; its result is a Tensor or a tuple of them.
        reference: the same in JAX; None if `function` is both.
        domains: where each argument, in float64, is drawn from; none is at a kink or pole.
        step: of the finite differences, at which the expression changes smoothly and is resolved.
        tolerance: of the relative error of finite differences.
        second_order: whether the gradient is differentiated, too.
        float32: whether the expression keeps its meaning in float32.
        long: whether it only runs with the long tests, because another row checks the same rule.
    """

    rule: str
    function: Callable[..., Any]
    reference: Callable[..., Any] | None
    domains: Sequence[Domain]
    step: float = 1e-5
    tolerance: float = 1e-6
    second_order: bool = True
    float32: bool = True
    long: bool = False


def chlo(name: str) -> Callable[[Tensor], Tensor]:
    """An operation of CHLO that has no function in pcp.ops."""

    def apply(x: Tensor) -> Tensor:
        builder = current_builder()
        return Tensor(builder.emit(f"chlo.{name}", [x.value], (x.spec,)).results[0], builder)

    return apply


def from_text(text: str) -> Callable[..., Any]:
    """A function that calls the program `main` in MLIR text."""
    program = Program.parse(text)
    return lambda *arguments: call(program, *arguments)


def lowered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX as one of Tensors: the program that JAX lowers it to."""

    def apply(*arguments: Tensor) -> Any:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype.numpy) for x in arguments]
        with jax.enable_x64(True):
            module = jax.jit(function).lower(*shapes).compiler_ir("stablehlo")
        return call(Program.parse(str(module)), *arguments)

    return apply


def of_jax(rule: str, function: Callable[..., Any], *domains: Domain, **options: Any) -> Row:
    """A row for what JAX makes of a function."""
    return Row(rule, lowered(function), function, domains, **options)


def halves(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX of the real and imaginary parts of its arguments, whose results are real parts and imaginary parts."""

    def apply(*parts: Any) -> Any:
        results = function(*(a + 1j * b for a, b in zip(parts[::2], parts[1::2], strict=True)))
        leaves = jax.tree.leaves(results)
        return tuple(part for leaf in leaves for part in (jnp.real(leaf), jnp.imag(leaf)))

    return apply


def of_complex(
    function: Callable[..., Any], complex_of: Any = e.complex_, parts: Any = None
) -> Callable[..., Any]:
    """A function of pairs of real numbers by way of complex ones."""
    real, imag = parts or (e.real, e.imag)

    def apply(*halves: Any) -> Any:
        result = function(*(complex_of(a, b) for a, b in zip(halves[::2], halves[1::2], strict=True)))
        return real(result), imag(result)

    return apply


def complex_row(
    rule: str, function: Callable[..., Any], reference: Callable[..., Any] | None, *domains: Domain
) -> Row:
    """A row for complex numbers, each of which takes two domains: of its real and of its imaginary part."""
    parts = (jnp.real, jnp.imag)
    expected = of_complex(reference or function, lax.complex, parts)
    return Row(rule, of_complex(function), expected, domains)
