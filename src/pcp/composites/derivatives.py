"""Derivatives that a composite brings along, traced into functions of the program as `pcp.ir.custom_derivatives` has them."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.composites.emission import (
    InvalidDerivative,
    Traced,
    is_tensor_like,
    leaves_along,
    tensor_of,
    traced,
)
from pcp.ir import TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.tensor import Tensor, as_tensor, emit, is_weak


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a composite.

    Arguments:
        name: of the composite.
        tree: how its arguments are nested.
        leaves: of the arguments; numbers among them stay numbers.
        operands: the others, as Tensors.
        attributes: the keyword arguments of its function.
    """

    name: str
    tree: Tree
    leaves: Sequence[Any]
    operands: Sequence[Tensor]
    attributes: Mapping[str, Any]

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """The arguments, with other Tensors for the operands."""
        operands = iter(tensors)
        nested: tuple[Any, ...] = self.tree.unflatten(
            leaf if is_weak(leaf) else next(operands) for leaf in self.leaves
        )
        return nested

    def tangents(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Tangents nested like the arguments, with None for numbers, integers and booleans."""
        moved, operands = iter(tensors), iter(self.operands)
        nested: tuple[Any, ...] = self.tree.unflatten(
            next(moved) if not is_weak(leaf) and next(operands).dtype.is_differentiable else None
            for leaf in self.leaves
        )
        return nested


@dataclass(frozen=True, slots=True)
class PullBack:
    """The derivative as `jax.custom_vjp` takes it: `forward` keeps residuals, from which `backward` makes cotangents."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]

    def functions(self, call: Call, result: Traced) -> dict[str, str]:
        """Symbols of `fwd` and `bwd`."""
        nesting: list[Tree] = []
        by = f"{_who(call, 'forward', self.forward)} returned"

        def fwd(*operands: Tensor) -> list[Any]:
            pair = self.forward(*call.arguments(operands), **call.attributes)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InvalidDerivative(f"{by} {_shown(pair)}; expected a pair: the result, and residuals")
            results = list(_like(result.tree, result.specs, pair[0], f"{by} a result that is"))
            residuals, tree = flatten(pair[1])
            if strange := [leaf for leaf in residuals if not is_tensor_like(leaf)]:
                raise InvalidDerivative(
                    f"{by} {_shown(strange[0])} as a residual; expected nested Tensors, arrays and numbers"
                )
            nesting[:] = [tree]
            return [*results, *residuals]

        takes = [x.spec for x in call.operands]
        kept = traced(f"{call.name}.fwd", fwd, takes, f"the forward of the composite {call.name!r}")
        residuals = kept.specs[len(result.specs) :]

        def bwd(*inputs: Tensor) -> list[Tensor]:
            cotangents = iter(inputs[len(residuals) :])
            nested = result.tree.unflatten(
                next(cotangents) if spec.dtype.is_differentiable else None for spec in result.specs
            )
            held = nesting[0].unflatten(inputs[: len(residuals)])
            return self._cotangents(call, self.backward(held, nested, **call.attributes))

        takes = [*residuals, *(spec for spec in result.specs if spec.dtype.is_differentiable)]
        pulled = traced(f"{call.name}.bwd", bwd, takes, f"the backward of the composite {call.name!r}")
        return {"fwd": kept.symbol, "bwd": pulled.symbol}

    def _cotangents(self, call: Call, returned: Any) -> list[Tensor]:
        """The cotangents of the operands of floating-point or complex numbers."""
        by = f"{_who(call, 'backward', self.backward)} returned"
        count = len(call.tree.children)
        if not isinstance(returned, tuple | list) or len(returned) != count:
            raise InvalidDerivative(
                f"{by} {_shown(returned)}; expected a tuple of {count}: one cotangent for each argument, None where it is zero"
            )
        cotangents: list[Any] = []
        for place, (child, value) in enumerate(zip(call.tree.children, returned, strict=True)):
            leaves = leaves_along(child, value)
            if leaves is None:
                raise InvalidDerivative(
                    f"{by} a cotangent nested as {flatten(value)[1]} for argument {place}; expected {child}, or None"
                )
            cotangents += leaves
        names, operands = call.tree.names(), iter(call.operands)
        checked = []
        for leaf, name, cotangent in zip(call.leaves, names, cotangents, strict=True):
            operand = None if is_weak(leaf) else next(operands)
            if operand is not None and operand.dtype.is_differentiable:
                checked.append(_one(operand.spec, cotangent, f"{by} a cotangent of argument {name} that is"))
        return checked


@dataclass(frozen=True, slots=True)
class PushForward:
    """The derivative as `jax.custom_jvp` takes it: from primals and tangents to the result and its tangent."""

    pushed: Callable[..., Any]

    def functions(self, call: Call, result: Traced) -> dict[str, str]:
        """The symbol of `jvp`."""
        by = f"{_who(call, 'jvp', self.pushed)} returned"
        count = len(call.operands)

        def jvp(*inputs: Tensor) -> list[Tensor]:
            primals, tangents = call.arguments(inputs[:count]), call.tangents(inputs[count:])
            pair = self.pushed(primals, tangents, **call.attributes)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InvalidDerivative(f"{by} {_shown(pair)}; expected a pair: the result, and its tangent")
            list(_like(result.tree, result.specs, pair[0], f"{by} a result that is"))
            leaves = leaves_along(result.tree, pair[1])
            if leaves is None:
                raise InvalidDerivative(
                    f"{by} a tangent nested as {flatten(pair[1])[1]}; expected {result.tree}, as the result is"
                )
            return [
                _one(spec, leaf, f"{by} a tangent that is")
                for spec, leaf in zip(result.specs, leaves, strict=True)
                if spec.dtype.is_differentiable
            ]

        moving = [x.spec for x in call.operands if x.dtype.is_differentiable]
        takes = [*(x.spec for x in call.operands), *moving]
        return {
            "jvp": traced(f"{call.name}.jvp", jvp, takes, f"the jvp of the composite {call.name!r}").symbol
        }


Derivative = PullBack | PushForward


def _like(tree: Tree, specs: Sequence[TensorSpec], value: Any, by: str) -> Iterator[Tensor]:
    """The leaves of a result, which must be nested, shaped and typed as that of the composite."""
    leaves, nesting = flatten(value)
    if nesting != tree:
        raise InvalidDerivative(f"{by} nested as {nesting}; expected {tree}, as the composite returns it")
    for spec, leaf in zip(specs, leaves, strict=True):
        yield _one(spec, leaf, by)


def _one(spec: TensorSpec, value: Any, by: str) -> Tensor:
    """A cotangent, tangent or result, checked; None is zero."""
    if value is None:
        return emit("broadcast_in_dim", (as_tensor(0, spec.dtype),), (spec,), {"broadcast_dimensions": ()})
    if not is_tensor_like(value):
        raise InvalidDerivative(f"{by} {_shown(value)}; expected {spec}")
    tensor = tensor_of(value, spec)
    if tensor.spec != spec:
        raise InvalidDerivative(f"{by} {tensor.spec}; expected {spec}")
    return tensor


def _who(call: Call, kind: str, function: Callable[..., Any]) -> str:
    """The function of a derivative, with the place where it is defined."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"the composite {call.name!r}: its {kind}{place}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, Tensor) else type(value).__name__
