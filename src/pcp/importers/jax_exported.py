"""What `jax.export` made as a Program, and its symbolic sizes as PCP's."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export

from pcp.importers.imported_module import NotImportable, clean
from pcp.importers.jax_trees import jax_arrays
from pcp.ir import Argument, Program, Result, Role
from pcp.ir.artifact import parse_artifact
from pcp.ir.signature import describe_signature
from pcp.ir.specializing import refine
from pcp.ir.toolkit.functions import function_type, main_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.symbolic.computed import watch_sizes
from pcp.symbolic.constraints import Constraint, InvalidConstraint
from pcp.symbolic.numbers import numbers_in_text
from pcp.tracing import OpenArgument, at_sizes, spec

_COST = 5
"""How many times as long as tracing a function of PCP takes the refinement of an export, about."""

# jax does not annotate this constructor.
_struct: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct


def is_open(leaf: Any) -> bool:
    """Whether a leaf has a size that is no number: one of `jax.export.symbolic_shape`."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and not all(isinstance(size, int) for size in leaf.shape)


def mapped_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """A pytree with what a function makes of each leaf."""
    return jax.tree.map(function, tree, is_leaf=lambda leaf: leaf is None)


def with_symbols(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Arguments in which symbolic sizes of JAX are those of `pcp.spec`, and the constraints on them."""
    constraints: list[str] = []

    def opened(leaf: Any) -> Any:
        if not is_open(leaf):
            return leaf
        constraints.extend(constraints_of(leaf.shape))
        return spec(tuple(size if isinstance(size, int) else str(size) for size in leaf.shape), leaf.dtype)

    symbolic = mapped_leaves(opened, arguments)
    return symbolic, tuple(dict.fromkeys(constraints))


def constraints_of(shape: Sequence[Any]) -> list[str]:
    """What was said of symbols where they were made, in PCP's words; what has none is left to the program to assert."""
    constraints = []
    for size in shape:
        for entry in getattr(getattr(size, "scope", None), "_explicit_constraints", ()):
            try:
                constraints.append(str(Constraint.parse(entry.debug_str)))
            except (
                InvalidConstraint
            ):  # as a comparison with max(a, b), which the exported program asserts itself
                continue
    return constraints


def exported_program(
    exported: jax.export.Exported, arguments: tuple[Any, ...], constraints: Sequence[str]
) -> Program:
    """The Program of an exported function; where sizes are symbols, the symbolic program.

    Raises:
        NotImportable: it takes arguments by keyword, or was exported for several platforms, or further arguments are given.
        UnknownShape: it asserts something else of its sizes than the constraints say.
    """
    if arguments or len(exported.platforms) != 1:
        what = f"{len(arguments)} arguments beside it" if arguments else f"platforms {exported.platforms}"
        raise NotImportable(
            f"an exported function was given with {what}; expected it alone, of one platform: its arguments are in it"
        )
    structs = [_struct(each.shape, each.dtype) for each in exported.in_avals]
    _, named = jax.tree.unflatten(exported.in_tree, structs)
    if named:
        raise NotImportable(
            f"the exported function takes {', '.join(named)} by keyword; expected positions only: export a function of those"
        )
    kept = set(exported.module_kept_var_idx)
    numbered = jax.tree.unflatten(exported.in_tree, range(len(structs)))[0]
    nested = jax_arrays(mapped_leaves(lambda number: structs[number] if number in kept else None, numbered))
    leaves, tree = flatten(nested)
    names = tree.names("")
    _, result_tree = flatten(jax_arrays(jax.tree.unflatten(exported.out_tree, list(exported.out_avals))))
    artifact = exported.mlir_module_serialized

    def make(closed: tuple[Any, ...]) -> Program:
        module = parse_artifact(artifact)
        watch_sizes(module, open_shapes)
        refine(module, [entry.spec.shape for entry in closed])
        clean(module)
        main = main_of(module)
        taken = [Argument(n, entry.spec, Role.input) for n, entry in zip(names, closed, strict=True)]
        types = function_type(main).results
        returned = [Result(n, spec_of(t)) for n, t in zip(result_tree.names(), types, strict=True)]
        describe_signature(main, taken, returned, tree, result_tree)
        return Program.from_module(module)

    opened, more = with_symbols(tuple(leaves))
    specs = tuple(
        leaf if isinstance(leaf, OpenArgument) else spec(tuple(leaf.shape), dtype_of(leaf.dtype))
        for leaf in opened
    )
    open_shapes = [leaf.spec.shape if isinstance(leaf, OpenArgument) else None for leaf in opened]
    numbers = numbers_in_text(exported.mlir_module())
    return at_sizes(specs, (*constraints, *more), make, numbers=numbers, cost=_COST)
