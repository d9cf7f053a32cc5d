"""Jacobians and Hessians: products with every vector of the standard basis at once."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

from pcp.autodiff import grad, vjp
from pcp.autodiff.jvp import pushed_forward
from pcp.autodiff.wrt import Wrt, chosen, chosen_leaves, on_functions
from pcp.batching.vmap import vmap
from pcp.errors import PCPError
from pcp.ir import Program, Role, TensorSpec, Tree
from pcp.ir.bindings import context
from pcp.ir.expecting import expect_function
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of
from pcp.ir.tree import flatten
from pcp.ops.creation import eye
from pcp.ops.movement import reshape, zeros
from pcp.symbolic.lifting import lifted
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, call, trace


class NoJacobian(PCPError):
    """A Jacobian of integers or of complex numbers, or by a mode that does not exist."""


@overload
def jacobian(
    function: Program, wrt: Wrt = 0, mode: str | None = None, *, argnums: Wrt | None = None
) -> Program: ...
@overload
def jacobian(
    function: Callable[..., Any], wrt: Wrt = 0, mode: str | None = None, *, argnums: Wrt | None = None
) -> Callable[..., Any]: ...
@lifted
def jacobian(
    function: Program | Callable[..., Any],
    wrt: Wrt = 0,
    mode: str | None = None,
    *,
    argnums: Wrt | None = None,
) -> Program | Callable[..., Any]:
    """The derivative of every element of the results for every element of the arguments.

    Arguments:
        function: a Program, or a function of Tensors, whose results are real numbers.
        wrt: the arguments to differentiate for, counted at the top level: one or several; `argnums` is the same.
        mode: `"forward"` takes one product for each element of the arguments, `"reverse"` one for each element of the
            results, all in one batch; None takes what is less.

    Returns:
        For a Program, a Program with the same arguments; for a function, a function that computes with arrays outside of
        any trace. The result is nested like that of `function`. In the place of each of its arrays stands what `wrt` names (a
        tuple, if it is a sequence), with arrays of shape `(*shape of the result, *shape of the argument)`.

    Raises:
        NoJacobian: a result is of integers, a number is complex, or there is no such mode.
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.5 (vector modes).
    """
    wrt = chosen(wrt, argnums, 0)
    if isinstance(function, Program):
        return _jacobian(function, wrt, mode)
    expect_function(function, "pcp.jacobian")
    return on_functions(function, wrt, lambda program, wrt: _jacobian(program, wrt, mode))


@overload
def hessian(function: Program, wrt: Wrt = 0, *, argnums: Wrt | None = None) -> Program: ...
@overload
def hessian(
    function: Callable[..., Any], wrt: Wrt = 0, *, argnums: Wrt | None = None
) -> Callable[..., Any]: ...
@lifted
def hessian(
    function: Program | Callable[..., Any], wrt: Wrt = 0, *, argnums: Wrt | None = None
) -> Program | Callable[..., Any]:
    """The second derivatives of a scalar function: the Jacobian, by forward mode, of its gradient.

    Arguments:
        function: a Program, or a function of Tensors, whose result is one real number (shape ()).
        wrt: the arguments to differentiate for, counted at the top level: one or several; `argnums` is the same.

    Returns:
        As `jacobian` of the gradient.

    Raises:
        NonScalarLoss: the result is no real number.
        NoJacobian, UnknownArgument, NotDifferentiable, NoDerivative: as `jacobian`.
    """

    wrt = chosen(wrt, argnums, 0)

    def twice(program: Program, wrt: Wrt) -> Program:
        return _jacobian(grad(program, wrt), wrt, "forward")

    if isinstance(function, Program):
        return twice(function, wrt)
    expect_function(function, "pcp.hessian")
    return on_functions(function, wrt, twice)


def _jacobian(program: Program, wrt: Wrt, mode: str | None) -> Program:
    leaves, tree = chosen_leaves(program, wrt)
    inputs = [program.arguments[i].spec for i in leaves]
    outputs = [entry.spec for entry in program.results]
    _check(program, leaves, mode)
    if mode is None:
        width, height = (sum(spec.size for spec in specs) for specs in (inputs, outputs))
        mode = "forward" if width <= height else "reverse"
    trees = (tree,) if isinstance(wrt, int) else tree.children
    linear = pushed_forward(program, wrt, keep=False) if mode == "forward" else vjp(program, wrt)

    def blocks(*arguments: Any) -> Any:
        def apply(*vectors: Tensor) -> list[Tensor]:
            nested = _nested(trees, vectors) if mode == "forward" else vectors
            products: list[Tensor] = flatten(call(linear, *arguments, *nested))[0]
            return products

        if mode == "forward":
            columns = [_along_basis(apply, inputs, place, -1) for place in range(len(inputs))]
            rows = [[column[i] for column in columns] for i in range(len(outputs))]
        else:
            rows = [_along_basis(apply, outputs, place, 0) for place in range(len(outputs))]
        shaped = [
            tree.unflatten(
                reshape(block, (*out.shape, *entry.shape)) for block, entry in zip(row, inputs, strict=True)
            )
            for row, out in zip(rows, outputs, strict=True)
        ]
        return program.result_tree.unflatten(shaped)

    specs = [ArgumentSpec(entry.spec, Role.input) for entry in program.arguments]
    return _named_like(program, trace(blocks, *program.argument_tree.unflatten(specs)))


def _check(program: Program, leaves: Sequence[int], mode: str | None) -> None:
    if mode not in (None, "forward", "reverse"):
        raise NoJacobian(f"jacobian: mode {mode!r} was given; expected 'forward', 'reverse' or None")
    for entry in program.results:
        if not entry.spec.dtype.is_float:
            raise NoJacobian(
                f"jacobian: the result {entry.name} is {entry.spec}; expected floating-point numbers: leave it out, or "
                "return the real and the imaginary part"
            )
    for argument in (program.arguments[i] for i in leaves):
        if not argument.spec.dtype.is_float:
            raise NoJacobian(
                f"jacobian: wrt names {argument.name}, which is {argument.spec}; expected real numbers: pass the real and the "
                "imaginary part"
            )


def _along_basis(
    linear: Callable[..., list[Tensor]], specs: Sequence[TensorSpec], place: int, out_axis: int
) -> list[Tensor]:
    """A linear function of several tensors at every vector of the standard basis of one of them."""
    spec = specs[place]

    def at(vector: Tensor) -> list[Tensor]:
        return linear(
            *(vector if i == place else zeros(other.shape, other.dtype) for i, other in enumerate(specs))
        )

    columns: list[Tensor] = vmap(at, out_axes=out_axis)(
        reshape(eye(spec.size, dtype=spec.dtype), (spec.size, *spec.shape))
    )
    return columns


def _nested(trees: Sequence[Tree], leaves: Sequence[Tensor]) -> list[Any]:
    """The leaves as values nested like each of the structures."""
    rest = iter(leaves)
    return [tree.unflatten(itertools.islice(rest, tree.leaf_count)) for tree in trees]


def _named_like(program: Program, unnamed: Program) -> Program:
    """A program of the same arguments, with their names and roles."""
    module = unnamed.module()
    arguments = [replace(entry, alias=None) for entry in program.arguments]
    with context():
        describe_signature(
            main_of(module), arguments, unnamed.results, program.argument_tree, unnamed.result_tree
        )
    return Program.from_module(module)
