"""The vector-Jacobian product of a python function of JAX arrays, as another function of JAX arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import jax


def vjp_of(function: Callable[..., Any], wrt: Sequence[int]) -> Callable[..., tuple[Any, ...]]:
    """The gradients of a function by JAX.

    Arguments:
        function: of JAX arrays, to one array.
        wrt: positions of the floating-point arguments to differentiate for.

    Returns:
        A function of the same arguments and then the cotangent of the result, to a gradient for each of `wrt`.
    """

    def gradients(*operands: Any) -> tuple[Any, ...]:
        *arguments, cotangent = operands

        def of_some(*some: Any) -> Any:
            every = list(arguments)
            for place, value in zip(wrt, some, strict=True):
                every[place] = value
            return function(*every)

        _, pull = jax.vjp(of_some, *(arguments[place] for place in wrt))
        pulled: tuple[Any, ...] = pull(cotangent)
        return pulled

    return gradients
