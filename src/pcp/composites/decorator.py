"""The decorator that makes a function of Tensors a composite, and gives it its own derivative."""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from pcp.composites.derivatives import Call, Derivative, PullBack, PushForward
from pcp.composites.emission import InvalidComposite, InvalidDerivative, emitted, traced
from pcp.ir.composites import Number
from pcp.ir.custom_derivatives import DERIVATIVES, ORDERS, attributes_of_derivative
from pcp.ir.expecting import expect_function
from pcp.ir.tree import flatten
from pcp.refusals import at_once
from pcp.tensor import Tensor, as_tensor, is_tracing, is_weak

_OPEN: ContextVar[tuple["Composite", ...]] = ContextVar("pcp_open_derivatives", default=())
"""The composites whose derivatives are being traced: a derivative may use the function that it belongs to."""


class Composite:
    """A function of Tensors that is one operation of the program; `pcp.composite` makes it.

    Arguments:
        name: of the operation.
        function: computes it.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self._function = function
        self._signature = inspect.signature(function)
        self._derivative: Derivative | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns.

        Raises:
            InvalidComposite: a program cannot hold an attribute, or the function uses Tensors from around it.
            InvalidDerivative: its derivative returns something else than is asked of it.
        """
        if not is_tracing():
            return at_once()(self, arguments, named)
        arguments, keywords = self._bound(arguments, named)
        attributes = attributes_of(self.name, keywords)
        leaves, tree = flatten(arguments)
        operands = [as_tensor(leaf) for leaf in leaves if not is_weak(leaf)]
        call = Call(self.name, tree, leaves, operands, keywords)
        takes = [x.spec for x in operands]
        what = f"the composite {self.name!r}"
        function = traced(self.name, lambda *x: self._function(*call.arguments(x), **keywords), takes, what)
        if not function.specs:
            raise InvalidComposite(f"{what} returns nothing; expected Tensors, arrays or numbers")
        if self._derivative is None:
            return emitted(self.name, function, operands, attributes)
        open_before = _OPEN.get()
        if open_before.count(self) == ORDERS:
            return emitted(self.name, function, operands, {**attributes, **attributes_of_derivative({})})
        token = _OPEN.set((*open_before, self))
        try:
            symbols = self._derivative.functions(call, function)
        finally:
            _OPEN.reset(token)
        return emitted(self.name, function, operands, {**attributes, **attributes_of_derivative(symbols)})

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Give the composite its derivative in reverse mode, as `jax.custom_vjp` does.

        Arguments:
            forward: takes what the composite takes, and returns a pair: its result, and residuals, which are nested Tensors.
            backward: takes the residuals and the cotangent, nested like the result with None for integers and booleans. It
                returns a tuple with the cotangent of every argument, nested like the argument, or None where it is zero.

        Both get the attributes as keyword arguments. Forward mode transposes `backward`, which must be linear in the cotangent
        for that.

        Raises:
            InvalidDerivative: the composite has a derivative already.
            ProgramExpected: one of the two is no function of Tensors.
        """
        for function in (forward, backward):
            expect_function(function, "defvjp", "two functions of Tensors, forward and backward")
        self._set(PullBack(forward, backward))

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Give the composite its derivative in forward mode, as `jax.custom_jvp` does; reverse mode transposes it.

        Arguments:
            jvp: takes two tuples, the arguments and their tangents (None for numbers, integers and booleans), and the
                attributes as keyword arguments. It returns a pair: the result, which is only checked, and its tangent, which
                is linear in those of the arguments.

        Returns:
            The same function, so that this is also a decorator.

        Raises:
            InvalidDerivative: the composite has a derivative already.
            ProgramExpected: it is no function of Tensors.
        """
        expect_function(jvp, "defjvp", "a function of Tensors")
        self._set(PushForward(jvp))
        return jvp

    def _set(self, derivative: Derivative) -> None:
        if self._derivative is not None:
            raise InvalidDerivative(
                f"the composite {self.name!r} has a derivative already; give it one: defvjp or defjvp, once"
            )
        self._derivative = derivative

    def _bound(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, and its attributes: what is keyword-only, defaults as well."""
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as mistake:
            raise InvalidComposite(
                f"the composite {self.name!r}: {mistake}; expected {self._function.__name__}{self._signature}"
            ) from None
        bound.apply_defaults()
        return bound.args, bound.kwargs


def composite(name: str) -> Callable[[Callable[..., Any]], Composite]:
    """A decorator: the function becomes one operation of the program, a `stablehlo.composite` of this name.

    Positional parameters of the function are nested Tensors. Keyword-only parameters are attributes of the operation: booleans,
    integers, floating-point numbers, texts, tuples of integers, or None, which is left out. Kernels find the operation by its
    name and attributes; for everything else it is what the function computes, its digest included.

    It is differentiated as the function is, or, after `defvjp` or `defjvp`, as these say.

    Arguments:
        name: with a dot, as `"mine.swish"`. Names that begin with `pcp.` are PCP's own.

    Raises:
        InvalidComposite: it cannot be a name.
        ProgramExpected: what is decorated is no function of Tensors.

    Source: `jax.lax.composite`, `jax.custom_vjp`, `jax.custom_jvp`.
    """
    if not isinstance(name, str) or not all(name.split(".")) or "." not in name or not name.isascii():
        raise InvalidComposite(
            f"pcp.composite: the name {name!r} was given; expected a name with a dot, as 'mine.swish'"
        )
    if name.startswith("pcp."):
        raise InvalidComposite(
            f"pcp.composite: the name {name!r} was given; names that begin with 'pcp.' are PCP's own: choose another"
        )

    def decorated(function: Callable[..., Any]) -> Composite:
        expect_function(function, "pcp.composite", "a function of Tensors")
        return Composite(name, function)

    return decorated


def attributes_of(name: str, keywords: Mapping[str, Any]) -> dict[str, Number]:
    """What a composite's operation says of keyword arguments.

    Raises:
        InvalidComposite: one is nothing that an operation can say.
    """
    return {key: _number(name, key, value) for key, value in keywords.items() if value is not None}


def _number(name: str, key: str, value: Any) -> Number:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        value = tuple(value)
    parts = value if isinstance(value, tuple) else (value,)
    fits = all(-(2**63) <= part < 2**63 for part in parts if isinstance(part, int))
    is_tuple = isinstance(value, tuple) and all(type(part) is int for part in value)
    is_text = isinstance(value, str) and not value.startswith("@")
    if key in DERIVATIVES or not fits or not (is_tuple or is_text or isinstance(value, bool | int | float)):
        shown = (
            f"{value!r}"
            if isinstance(value, Tensor | bool | int | float | str | tuple)
            else type(value).__name__
        )
        raise InvalidComposite(
            f"the composite {name!r}: {key}={shown} was given, and keyword-only parameters are attributes; expected a boolean, "
            "an integer of 64 bits, a floating-point number, a text without @ at its beginning, a tuple of integers or None, "
            f"and a name besides {', '.join(DERIVATIVES)}; Tensors are positional arguments"
        )
    result: Number = list(value) if is_tuple else value
    return result
