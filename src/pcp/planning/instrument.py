"""A program that returns values from its inside as well: what the finder of NaNs, taps and timings are made from."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pcp.ir import Builder, Program, Result, Tree
from pcp.ir.bindings import context, ir
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.tree import LEAF
from pcp.tensor import Tensor, building
from pcp.tracing import close_main

Extras = Callable[[list[ir.Operation], list[Tensor]], Sequence[tuple[str, Tensor]]]
"""From the operations of `main`, without the last, and its arguments to named values; it may add operations."""


def flat(program: Program) -> Program:
    """The program with every call and composite replaced by what it stands for."""
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    return Program.from_module(module)


def with_extras(program: Program, extras: Extras, *, donate: bool) -> Program:
    """A program that returns the pair of its results and further values.

    Arguments:
        program: one that `flat` returned, or one without calls.
        extras: says which values; what it builds comes after all operations.
        donate: whether states still give their memory to their successors.
    """
    module = program.module()
    main = main_of(module)
    block = main.regions[0].blocks[0]
    with context(), ir.Location.unknown():
        *operations, terminator = (op.operation for op in block.operations)
        builder = Builder(module, block)
        builder.pinned = ir.Location.unknown()
        with building(builder), builder.before(terminator):
            arguments = [Tensor(value, builder) for value in block.arguments]
            named = extras(operations, arguments)
            results = [Tensor(value, builder) for value in terminator.operands]
            terminator.erase()
            close_main(main, block, [*results, *(tensor for _, tensor in named)])
    more = [Result(name, tensor.spec) for name, tensor in named]
    tree = Tree("tuple", (), (program.result_tree, Tree("tuple", (), (LEAF,) * len(more))))
    entries = [entry if donate else replace(entry, alias=None) for entry in program.arguments]
    describe_signature(main, entries, [*program.results, *more], program.argument_tree, tree)
    return Program.from_module(module)
