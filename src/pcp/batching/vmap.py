"""Programs for many samples from programs for one."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast, overload

from pcp.batching.engine import Batching
from pcp.errors import PCPError
from pcp.ir import Argument, Builder, Program, Result, Role, TensorSpec, Tree
from pcp.ir.bindings import context, ir, run_passes
from pcp.ir.expecting import expect_function, expect_program, program_of
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import main_of, update_function_type
from pcp.ir.toolkit.inlining import inline_calls, inline_composites, is_combined
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.tree import flatten
from pcp.ops.movement import moveaxis
from pcp.refusals import planned
from pcp.symbolic.lifting import with_symbol
from pcp.symbolic.program import SymbolicProgram
from pcp.tensor import Tensor, as_tensor, building, is_tracing, is_weak
from pcp.tracing import ArgumentSpec, call, close_main, trace_closure

Axes = int | None | Sequence[Any] | dict[Any, Any]
"""An axis for every leaf, None for a leaf without samples, or such nested like the arguments or a part of their nesting."""


class BatchMismatch(PCPError):
    """Axes of samples that do not exist, do not fit the nesting, or differ in size."""


@overload
def vmap(
    function: Program, in_axes: Axes = 0, out_axes: Axes = 0, size: int | str | None = None
) -> Program: ...
@overload
def vmap(
    function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, size: int | str | None = None
) -> Callable[..., Any]: ...
def vmap(
    function: Program | Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    size: int | str | None = None,
) -> Program | Callable[..., Any]:
    """A program for many samples at once from one for a single sample.

    What does not depend on an argument with samples is computed once. Of `pcp.random`, samples with one key get the same
    numbers: give each its own. A loop whose number of trips differs between samples runs until the last is done.

    Arguments:
        function: a Program, or a function of Tensors, for one sample.
        in_axes: along which axis of each argument the samples lie: one number for all arguments, or a sequence with one entry
            for each, which is a number, None (the argument is the same for all samples) or nested like the argument.
        out_axes: along which axis of each result they shall lie; None for a result that does not depend on the sample.
        size: how many samples there are: needed for a Program, whose shapes are those of one. A text is a symbol, as
            `"samples"`; then the result is a symbolic program.

    Returns:
        For a Program, a Program whose arguments and results have the axes of samples; for a function, such a function. Outside
        of any trace it computes with arrays.

    Raises:
        BatchMismatch: `in_axes` or `out_axes` do not fit, or the arguments have different numbers of samples.
    """
    function = program_of(function)
    if isinstance(size, str):
        if not isinstance(function, SymbolicProgram):
            expect_program(function, "pcp.vmap with a symbol as its size")
        program = cast(Program, function)
        return with_symbol(program, size, lambda program, count: vmap(program, in_axes, out_axes, count))
    if isinstance(function, SymbolicProgram):
        return cast(Program, function.mapped(lambda program: vmap(program, in_axes, out_axes, size)))
    if isinstance(function, Program):
        if size is None:
            raise BatchMismatch(
                "vmap: a Program has the shapes of one sample; give the number of samples: vmap(program, size=...)"
            )
        return vectorised(function, axes_like(in_axes, function.argument_tree, "in_axes"), out_axes, size)
    expect_function(function, "pcp.vmap")

    @functools.wraps(function)
    def mapped(*arguments: Any) -> Any:
        if not is_tracing():
            return planned()(mapped, arguments, {})
        leaves, tree = flatten(arguments)
        axes = axes_like(in_axes, tree, "in_axes")
        names = tree.names("argument")
        shaped = [_spec(leaf) for leaf in leaves]
        count = _common_size(zip(names, shaped, axes, strict=True), size)
        samples = [
            leaf if axis is None and is_weak(leaf) else ArgumentSpec(_sample(spec, axis), Role.input)
            for leaf, spec, axis in zip(leaves, shaped, axes, strict=True)
        ]
        program, captured = trace_closure(function, *tree.unflatten(samples))
        whole = vectorised(program, [*axes, *[None] * len(captured)], out_axes, count)
        return call(whole, *arguments, *captured)

    return mapped


def axes_like(axes: Axes, tree: Tree, what: str) -> list[int | None]:
    """An axis or None for every leaf of a structure, of which `axes` may stop at a part.

    Raises:
        BatchMismatch: it is nested otherwise.
    """
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * tree.leaf_count
    children: list[Any] | None = None
    if isinstance(axes, dict) and tree.kind == "dict" and set(axes) == set(tree.keys):
        children = [axes[key] for key in tree.keys]
    elif isinstance(axes, list | tuple) and tree.kind not in ("leaf", "none", "dict"):
        children = list(axes) if len(axes) == len(tree.children) else None
    if children is None:
        raise BatchMismatch(
            f"vmap: {what} {axes!r} was given for {tree}; expected a number, None, or numbers and None nested like it"
        )
    return [
        axis for a, child in zip(children, tree.children, strict=True) for axis in axes_like(a, child, what)
    ]


def _spec(leaf: Any) -> TensorSpec:
    return leaf.spec if isinstance(leaf, Tensor) else as_tensor(leaf).spec


def _common_size(entries: Iterable[tuple[str, TensorSpec, int | None]], size: int | None) -> int:
    """How many samples all of these have."""
    first = None if size is None else "size"
    for name, spec, axis in entries:
        if axis is None:
            continue
        rank = len(spec.shape)
        if not -rank <= axis < rank:
            raise BatchMismatch(
                f"vmap: {name} is {spec} and has no axis {axis} of samples; name another in in_axes, or None if it is the "
                "same for all samples"
            )
        if size is not None and spec.shape[axis] != size:
            raise BatchMismatch(
                f"vmap: {name} is {spec} with {spec.shape[axis]} samples along axis {axis}, but {first} says {size}; "
                "all must have the same number"
            )
        if size is None:
            size, first = spec.shape[axis], name
    if size is None:
        raise BatchMismatch(
            "vmap: in_axes is None for every argument; expected an axis of samples for at least one argument"
        )
    return size


def _sample(spec: TensorSpec, axis: int | None) -> TensorSpec:
    if axis is None:
        return spec
    place = axis % len(spec.shape)
    return TensorSpec((*spec.shape[:place], *spec.shape[place + 1 :]), spec.dtype)


def vectorised(program: Program, in_axes: Sequence[int | None], out_axes: Axes, size: int) -> Program:
    """The program for `size` samples.

    Arguments:
        in_axes: an axis or None for every array that the program takes.
    """
    arguments = [
        _with_samples(entry, axis, size) for entry, axis in zip(program.arguments, in_axes, strict=True)
    ]
    returned = axes_like(out_axes, program.result_tree, "out_axes")
    module = program.module()
    inline_composites(module, lambda op: not is_combined(op))
    inline_calls(module)
    with context(), ir.Location.unknown():
        count = _batch(module, program, arguments, in_axes, returned, size)
        main = main_of(module)
        block = main.regions[0].blocks[0]
        erase_dead(block)
        for index in reversed(range(len(arguments), len(arguments) + count)):
            block.erase_argument(index)
        *_, terminator = block.operations
        results = [
            Result(entry.name, spec_of(value.type))
            for entry, value in zip(program.results, terminator.operands, strict=True)
        ]
        update_function_type(main)
        describe_signature(main, arguments, results, program.argument_tree, program.result_tree)
    run_passes(module, "builtin.module(cse,symbol-dce)")
    return Program.from_module(module)


def _with_samples(entry: Argument, axis: int | None, size: int) -> Argument:
    if axis is None:
        return replace(entry, alias=None)
    shape = entry.spec.shape
    place = _place(axis, len(shape), f"argument {entry.name} of {entry.spec}", "in_axes")
    spec = TensorSpec((*shape[:place], size, *shape[place:]), entry.spec.dtype)
    return replace(entry, spec=spec, alias=None)


def _place(axis: int, rank: int, what: str, parameter: str) -> int:
    """Where the axis of samples goes in a shape of `rank` axes without it."""
    if not -rank - 1 <= axis <= rank:
        raise BatchMismatch(
            f"vmap: {parameter} puts the samples of {what} along axis {axis}; expected {-rank - 1} <= axis <= {rank}"
        )
    return axis % (rank + 1)


def _batch(
    module: ir.Module,
    program: Program,
    arguments: Sequence[Argument],
    in_axes: Sequence[int | None],
    out_axes: Sequence[int | None],
    size: int,
) -> int:
    """Batch `main`; returns how many arguments it has at the end that are to be erased."""
    main = main_of(module)
    block = main.regions[0].blocks[0]
    *operations, terminator = (op.operation for op in block.operations)
    own = list(block.arguments)
    builder = Builder(module, block)
    builder.pinned = ir.Location.unknown()
    first = operations[0] if operations else terminator
    with building(builder), builder.before(terminator):
        engine = Batching(builder, block, size)
        with builder.before(first):
            for value, entry, axis in zip(own, arguments, in_axes, strict=True):
                if axis is None:
                    continue
                sample = engine.placeholder(value.type)
                value.replace_all_uses_with(sample)
                value.set_type(mlir_type(entry.spec))
                whole = Tensor(value, builder, entry.spec)
                engine.batched[sample] = moveaxis(whole, axis % whole.ndim, 0)
        engine.push(operations)
        builder.pinned = ir.Location.unknown()
        results = [
            _returned(engine, value, axis, entry)
            for value, axis, entry in zip(list(terminator.operands), out_axes, program.results, strict=True)
        ]
        terminator.erase()
        close_main(main, block, results)
    return engine.placeholders


def _returned(engine: Batching, value: Any, axis: int | None, entry: Result) -> Tensor:
    if axis is None:
        if value in engine.batched:
            raise BatchMismatch(
                f"vmap: out_axes is None for the result {entry.name or 'of the function'}, but it depends on the sample; "
                "give it an axis"
            )
        return engine.lookup(value)
    place = _place(axis, len(entry.spec.shape), f"the result {entry.name} of {entry.spec}", "out_axes")
    return moveaxis(engine.with_samples(value), 0, place)
