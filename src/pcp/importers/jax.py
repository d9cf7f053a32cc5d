"""From any function that `jax.jit` takes to a Program."""

import dataclasses
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jax.extend.core import jaxpr_as_fun

from pcp.importers.imported_module import NotImportable, clean, largest_constant
from pcp.importers.jax_checking import check_beside_jax
from pcp.importers.jax_derivatives import CustomDerivatives
from pcp.importers.jax_exported import exported_program, mapped_leaves, with_symbols
from pcp.importers.jax_trees import are_keys, check_precision, is_number
from pcp.ir import Argument, Program, Result, Role, TensorSpec, Tree
from pcp.ir.beginnings import Beginning
from pcp.ir.bindings import bytecode_of, ir, parse_module
from pcp.ir.expecting import expect_arguments, expect_callable
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of
from pcp.ir.tree import flatten
from pcp.ir.trees.nodes import varies
from pcp.ir.types import dtype_of
from pcp.refusals import TracingError
from pcp.specs import NumberSpec
from pcp.symbolic.numbers import numbers_in
from pcp.tensor import NumberTensor, Tensor
from pcp.tracing import ArgumentSpec, aliases_of, at_sizes, leaf_names, leaf_spec

log = logging.getLogger("pcp.importers.jax")

_COST = 5
"""How many times as long as PCP JAX takes to trace a function, about."""

_UNSEEN = (
    "what JAX and Python choose by sizes is not seen (what jax.export.export makes of the function with symbolic sizes "
    "calculates with them itself: import that by pcp.from_jax)"
)

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_FORMS = "pcp.calling.signature"
_FEW = 1 << 10
"""Numbers of an array that plans are measured on as it is."""
LARGEST_MODULE_BYTES = 64 << 20
"""What a Worker accepts. Constants are part of the program, and MLIR keeps them as long as the process lives."""


def from_jax(
    function: Callable[..., Any],
    *arguments: Any,
    roles: Sequence[Role | str] | None = None,
    platform: str = "cpu",
    check: bool = False,
    constraints: Sequence[str] = (),
) -> Program:
    """Trace a function of JAX with `jax.jit` and return the Program that it computes.

    Arguments:
        function: anything that `jax.jit` takes, or what `jax.export.export` made, without further arguments. The function's
            `stop_gradient` and the rules of `jax.custom_vjp` and `jax.custom_jvp` hold in derivatives that PCP takes, up to the
            third order; an export has none.
        arguments: one for each parameter, any pytree; leaves are arrays, whose role is `weight`, or what `pcp.spec` or
            `jax.ShapeDtypeStruct` makes, typed PRNG keys (which become their key data) or numbers, all of them `input`.
            Every other leaf, and a number inside of a module, is a constant. Where sizes are symbols, of `pcp.spec` or of
            `jax.export.symbolic_shape`, the function is traced at a few sizes, and the result is a `SymbolicProgram`.
        roles: the role of each argument, in place of those of its leaves.
        platform: where JAX may lower an operation differently, for which platform: `cpu`, `cuda`, `rocm` or `tpu`.
        check: whether to run the program and the function beside one another at once, and compare results and the gradients of
            random cotangents. Arrays are taken as they are; in the place of specs stand random numbers, of integers 0 and 1.
        constraints: what holds of symbolic sizes, as in `pcp.trace`; those of `jax.export.symbolic_shape` are added.

    Returns:
        A Program that takes the same pytrees, and what `pcp.jax_arrays` makes of them, and returns what the function returns,
        in its types; unused arguments are kept. Arguments that are `state` throughout must have their successors returned
        first, as in `pcp.trace`.

    Raises:
        NotImportable: an operation has no place in a Program, or the function closes over more than 64 MiB of arrays.
        ProgramExpected, WrongArguments: it is no function, or one of more or fewer arguments.
        PrecisionMismatch: an argument has 64 bits while JAX computes in 32.
        InvalidArgument: a state has no successor of its nesting, shapes and element types.
        ImportDiffers: with `check`, a result or a gradient differs; the message names each with its error and tolerance.
        InvalidConstraint, BuiltDifferently: of symbolic sizes, as `pcp.trace`.
    """
    if isinstance(function, jax.export.Exported):
        return exported_program(function, arguments, constraints)
    expect_callable(function, "pcp.from_jax", "a function that jax.jit takes, and its arguments")
    expect_arguments(function, "pcp.from_jax", arguments, roles)
    opened, more = with_symbols(arguments)
    unchecked = [check]

    def make(closed: tuple[Any, ...]) -> Program:
        program = _imported(function, closed, roles, platform)
        if unchecked and unchecked.pop():
            check_beside_jax(function, program, closed)
        return program

    numbers = numbers_in(function)
    return at_sizes(opened, (*constraints, *more), make, mapped_leaves, numbers, _COST, _UNSEEN)


class MixedFunction(TracingError):
    """A traced function that calls JAX with Tensors, and PCP with values of JAX."""


def by_jax(function: Callable[..., Any], arguments: tuple[Any, ...], mistake: Exception) -> Program:
    """The Program of a function of JAX that was called with Tensors.

    Arguments:
        mistake: what it raised then.

    Raises:
        MixedFunction: it calls operations of PCP with values of JAX.
        Exception: what else it raises where JAX traces it.
    """
    leaves, tree = flatten(arguments, varies)
    given = tree.unflatten([_told(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves])
    try:
        return _imported(function, given, None, "cpu")
    except Exception as error:
        said = str(mistake).partition("\n")[0]
        if _is_of_pcp(error):
            raise MixedFunction(
                f"the function mixes operations of PCP and of JAX: {said}; write all of it in one of them, or import the part "
                "of JAX with pcp.from_jax(part, arguments...) and call that program"
            ) from mistake
        error.add_note(f"JAX traced the function, because it raised when it was called with Tensors: {said}")
        raise


def _told(tensor: Tensor) -> ArgumentSpec:
    return NumberSpec(tensor.spec, tensor.weak) if isinstance(tensor, NumberTensor) else leaf_spec(tensor)


def _is_of_pcp(error: BaseException) -> bool:
    """Whether an error comes out of an operation of PCP that the function called."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    called = [place for place, frame in enumerate(frames) if frame.f_code.co_name == _called.__name__]
    names = [frame.f_globals.get("__name__", "") for frame in frames[called[-1] + 1 :]] if called else []
    return any(name.startswith("pcp.") and name != _FORMS for name in names)


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What the user's function returns: the border behind which errors are the function's own."""
    return function(*arguments)


def _imported(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    roles: Sequence[Role | str] | None,
    platform: str,
) -> Program:
    """As `from_jax`, where all sizes are numbers."""
    if platform not in PLATFORMS:
        raise NotImportable(f"JAX has no platform {platform!r}; choose one of {', '.join(PLATFORMS)}")
    leaves, tree = flatten(arguments, varies)
    names = leaf_names(function, tree)
    entries = [_argument(*row) for row in zip(names, leaves, are_keys(tree), strict=True)]
    structs = [struct for struct, _ in entries]
    specs = [ArgumentSpec(_spec_of(struct), role) for struct, role in entries]
    if roles is not None:
        specs = _with_roles(specs, tree, roles)
    result_tree: list[Tree] = []

    def flat_function(*values: Any) -> list[Any]:
        returned, structure = flatten(_called(function, tree.unflatten(values)), varies)
        result_tree[:] = [structure]
        return returned

    flat_function.__name__ = getattr(function, "__name__", "function")
    traced = jax.jit(flat_function, keep_unused=True).trace(*structs)
    derivatives = CustomDerivatives(platform)
    try:
        kept = derivatives.kept(traced.jaxpr)
        if kept is not traced.jaxpr:
            again: Any = jaxpr_as_fun(kept)
            again.__name__ = flat_function.__name__
            traced = jax.jit(again, keep_unused=True).trace(*structs)
        lowered = traced.lower(lowering_platforms=(platform,))
    except (NotImplementedError, ValueError) as error:
        raise NotImportable(f"JAX has no form of the function for {platform}: {error}") from error
    lowered_module = lowered.compiler_ir("stablehlo")
    bytecode = bytecode_of(lowered_module)
    if len(bytecode) > LARGEST_MODULE_BYTES:
        raise NotImportable(
            f"the function has {len(bytecode)} bytes, constants included, and at most {LARGEST_MODULE_BYTES} fit into a "
            f"program: it closes over large arrays ({largest_constant(lowered_module)}); give them as arguments"
        )
    results = [_spec_of(info) for info in jax.tree.leaves(lowered.out_info)]
    module = parse_module(bytecode)
    clean(module)
    derivatives.attach(module)
    program = _program(module, names, specs, tree, results, result_tree[0])
    return dataclasses.replace(program, begins=_begins(names, leaves))


def _begins(names: list[str], leaves: list[Any]) -> dict[str, Beginning]:
    """What arguments begin with that were given as arrays: of large integers nothing, of large floats mean and deviation."""
    begins: dict[str, Beginning | None] = {}
    for name, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
            continue
        if leaf.size <= _FEW:
            begins[name] = Beginning.of(leaf)
        elif leaf.dtype.kind not in "biuc":
            begins[name] = Beginning.like(leaf)
    return {name: each for name, each in begins.items() if each is not None}


def _program(
    module: ir.Module,
    names: list[str],
    specs: list[ArgumentSpec],
    tree: Tree,
    results: list[TensorSpec],
    result_tree: Tree,
) -> Program:
    aliases = aliases_of(specs, tree, results, result_tree)
    described = [Argument(n, s.spec, s.role, a) for n, s, a in zip(names, specs, aliases, strict=True)]
    described_results = [Result(n, s) for n, s in zip(result_tree.names(), results, strict=True)]
    describe_signature(main_of(module), described, described_results, tree, result_tree)
    return Program.from_module(module)


def _argument(name: str, leaf: Any, is_key: bool) -> tuple[jax.ShapeDtypeStruct, Role]:
    """What JAX is told of an argument, and its role."""
    if is_number(leaf):
        return _struct((), jax.numpy.result_type(type(leaf)), weak_type=True), Role.input
    if isinstance(leaf, NumberSpec):
        check_precision(name, leaf.spec)
        return _struct((), leaf.spec.dtype.numpy, weak_type=True), Role.input
    entry = leaf_spec(leaf)
    role = Role.input if is_key or isinstance(leaf, jax.ShapeDtypeStruct) else entry.role
    check_precision(name, entry.spec)
    return _struct(entry.spec.shape, entry.spec.dtype.numpy), role


# jax does not annotate this constructor.
_struct: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct


def _spec_of(struct: Any) -> TensorSpec:
    return TensorSpec(tuple(struct.shape), dtype_of(struct.dtype))


def _with_roles(specs: list[ArgumentSpec], tree: Tree, roles: Sequence[Role | str]) -> list[ArgumentSpec]:
    wanted = [
        Role(role) for role, child in zip(roles, tree.children, strict=True) for _ in range(child.leaf_count)
    ]
    return [ArgumentSpec(entry.spec, role) for entry, role in zip(specs, wanted, strict=True)]
