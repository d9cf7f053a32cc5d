"""What a row of the test tables is: an expression that uses one operation, the same in JAX, and a domain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from pcp import Program, Tensor, call
from pcp.ops import elementwise as e
from pcp.tensor import current_builder

Array = np.ndarray[Any, Any]
Domain = Callable[[np.random.Generator], Array]


def normal(*shape: int) -> Domain:
    """Normally distributed values."""
    return lambda random: random.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Domain:
    """Uniformly distributed values."""
    return lambda random: random.uniform(low, high, size=shape)


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
    """

    rule: str
    function: Callable[..., Any]
    reference: Callable[..., Any] | None
    domains: Sequence[Domain]
    step: float = 1e-5
    tolerance: float = 1e-6
    second_order: bool = True
    float32: bool = True


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
