"""Programs from programs: Jacobian-vector products, and Hessian-vector products by way of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from pcp.autodiff.forward import Forward
from pcp.autodiff.gradient import grad
from pcp.autodiff.wrt import Wrt, chosen, chosen_leaves, every_differentiable, on_functions
from pcp.ir import Argument, Builder, Program, Result, Role, Tree
from pcp.ir.bindings import context, ir, run_passes
from pcp.ir.expecting import expect_function
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.dataflow import is_used
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block, function_type, main_of, update_function_type
from pcp.ir.toolkit.inlining import inline_calls, inline_composites, keeps_its_derivative
from pcp.ir.toolkit.legalisation import legalise
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import InvalidRule
from pcp.symbolic.lifting import lifted
from pcp.tensor import Tensor, building
from pcp.tracing import close_main


@overload
def jvp(function: Program, wrt: Wrt | None = None, *, argnums: Wrt | None = None) -> Program: ...
@overload
def jvp(
    function: Callable[..., Any], wrt: Wrt | None = None, *, argnums: Wrt | None = None
) -> Callable[..., Any]: ...
@lifted
def jvp(
    function: Program | Callable[..., Any], wrt: Wrt | None = None, *, argnums: Wrt | None = None
) -> Program | Callable[..., Any]:
    """The Jacobian-vector product of a program: its results, and their derivative along given directions.

    Arguments:
        function: a Program, or a function of Tensors.
        wrt: the arguments to differentiate for, counted at the top level: one or several. None takes every argument of a
            Program whose leaves are all floating-point or complex, and every argument of a function. `argnums` is the same.

    Returns:
        For a Program, a Program `(arguments..., tangents...) -> (results, tangents of the results)`, where each argument
        that `wrt` names has a tangent of its nesting, shapes and types; for a function, such a function, which computes
        with arrays outside of any trace. The tangents of the results are nested like these, with None in the place of integers
        and booleans. Loops whose number of trips depends on data are fine.

    Raises:
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.1.
    """
    wrt = chosen(wrt, argnums, None)
    if isinstance(function, Program):
        return pushed_forward(function, wrt, keep=True)
    expect_function(function, "pcp.jvp")
    return on_functions(
        function, wrt, lambda program, wrt: pushed_forward(program, wrt, keep=True), takes_tangents=True
    )


@overload
def hvp(function: Program, wrt: Wrt = 0, *, argnums: Wrt | None = None) -> Program: ...
@overload
def hvp(function: Callable[..., Any], wrt: Wrt = 0, *, argnums: Wrt | None = None) -> Callable[..., Any]: ...
@lifted
def hvp(
    function: Program | Callable[..., Any], wrt: Wrt = 0, *, argnums: Wrt | None = None
) -> Program | Callable[..., Any]:
    """The product of the Hessian of a scalar function with a vector, by forward mode over reverse mode.

    Arguments:
        function: a Program, or a function of Tensors, whose result is one real number (shape ()).
        wrt: the arguments to differentiate for, counted at the top level: one or several; `argnums` is the same.

    Returns:
        For a Program, a Program `(arguments..., vectors...) -> products`, where each argument that `wrt` names has a vector
        of its nesting, shapes and types, and the products are nested like the gradient; for a function, such a function,
        which computes with arrays outside of any trace. It takes about as long as two gradients, whatever the number of
        parameters.

    Raises:
        NonScalarLoss: the result is no real number.
        UnknownArgument, NotDifferentiable, NoDerivative: as `jvp`.

    Source: Pearlmutter, "Fast Exact Multiplication by the Hessian", 1994.
    """

    wrt = chosen(wrt, argnums, 0)

    def along(program: Program, wrt: Wrt) -> Program:
        return pushed_forward(grad(program, wrt), wrt, keep=False)

    if isinstance(function, Program):
        return along(function, wrt)
    expect_function(function, "pcp.hvp")
    return on_functions(function, wrt, along, takes_tangents=True)


@dataclass(frozen=True, slots=True)
class _Signature:
    arguments: Sequence[Argument]
    argument_tree: Tree
    result_names: Sequence[str]
    result_tree: Tree


def pushed_forward(program: Program, wrt: Wrt | None, keep: bool) -> Program:
    """The program with tangents; `keep` says whether it returns its own results before theirs."""
    wrt = every_differentiable(program) if wrt is None else wrt
    leaves, tree = chosen_leaves(program, wrt)
    moving = [i for i, entry in enumerate(program.results) if entry.spec.dtype.is_differentiable]
    signature = _signature(program, leaves, (tree,) if isinstance(wrt, int) else tree.children, keep)
    module = program.module()
    inline_composites(module, keeps_its_derivative)
    inline_calls(module)
    legalise(module)
    with context(), ir.Location.unknown():
        placeholders = _append_tangents(module, leaves, moving, keep)
    # Pull-backs are dead once they are transposed.
    with context(), ir.Location.unknown():
        erase_dead(entry_block(module))
        _describe(module, placeholders, signature)
    run_passes(module, "builtin.module(cse)")
    return Program.from_module(module)


def _signature(program: Program, leaves: Sequence[int], trees: Sequence[Tree], keep: bool) -> _Signature:
    tangents = [
        Argument(f"tangent.{program.arguments[i].name}", program.arguments[i].spec, Role.input)
        for i in leaves
    ]
    own = [replace(entry, alias=None) for entry in program.arguments]
    takes = Tree("tuple", (), (*program.argument_tree.children, *trees))
    flags = iter([entry.spec.dtype.is_differentiable for entry in program.results])
    returns = _where(program.result_tree, flags)
    if keep:
        returns = Tree("tuple", (), (program.result_tree, returns))
    return _Signature([*own, *tangents], takes, returns.names(), returns)


def _where(tree: Tree, flags: Iterator[bool]) -> Tree:
    """The structure with None for the leaves whose flag is false."""
    if tree.kind == "leaf":
        return tree if next(flags) else Tree("none")
    return replace(tree, children=tuple(_where(child, flags) for child in tree.children))


def _append_tangents(
    module: ir.Module, leaves: Sequence[int], moving: Sequence[int], keep: bool
) -> list[str]:
    """Make `main` take and return tangents; returns what its last arguments, which are to be erased, stand for."""
    main = main_of(module)
    block = main.regions[0].blocks[0]
    *operations, terminator = (op.operation for op in block.operations)
    builder = Builder(module, block)
    builder.pinned = ir.Location.unknown()
    with building(builder), builder.before(terminator):
        forward = Forward(builder, block)
        for leaf in leaves:
            argument = block.arguments[leaf]
            tangent = block.add_argument(argument.type, builder.location)
            forward.tangents[argument] = Tensor(tangent, builder)
        forward.push(operations)
        builder.pinned = ir.Location.unknown()
        # Control flow that makes tangents stands in the place of what did not.
        outputs = list(terminator.operands)
        own = [Tensor(value, builder) for value in outputs] if keep else []
        results = [*own, *(forward.tangent_or_zeros(outputs[i]) for i in moving)]
        terminator.erase()
        close_main(main, block, results)
        for name in ("arg_attrs", "res_attrs"):  # those of another signature
            if name in main.attributes:
                del main.attributes[name]
    return forward.placeholders


def _describe(module: ir.Module, placeholders: Sequence[str], signature: _Signature) -> None:
    main = main_of(module)
    block = main.regions[0].blocks[0]
    first = len(signature.arguments)
    for index, name in reversed(list(enumerate(placeholders, first))):
        if is_used(block.arguments[index]):
            raise InvalidRule(
                f"the rule of {name} is not linear in the cotangent: forward mode needs its transpose; "
                "multiply, add and move the cotangent, and apply no other operation to it"
            )
        block.erase_argument(index)
    update_function_type(main)
    results = [
        Result(name, spec_of(t))
        for name, t in zip(signature.result_names, function_type(main).results, strict=True)
    ]
    describe_signature(main, signature.arguments, results, signature.argument_tree, signature.result_tree)
