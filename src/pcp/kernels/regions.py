"""Regions: what stands at a site, alone, as a Program of the values that it takes."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pcp.ir import Argument, Builder, Program, Result, Role
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE, decomposition_of
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.editing import substitute
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import LEAF, Tree
from pcp.tensor import Tensor, building
from pcp.tracing import close_main, open_main


def region_of(*operations: ir.Operation) -> Program:
    """Operations alone, as a Program of the values they take, those from outside their regions last.

    Arguments:
        operations: in order; what one returns and another takes is a result only.
    """
    produced = {result for op in operations for result in op.results}
    taken = [value for op in operations for value in (*op.operands, *values_from_outside(op))]
    values = [value for value in dict.fromkeys(taken) if value not in produced]

    def emit(builder: Builder, arguments: Sequence[Value]) -> list[Value]:
        known = dict(zip(values, arguments, strict=True))
        results: list[Value] = []
        for op in operations:
            if op.name == COMPOSITE:
                decomposition_of(op).clone(ip=ir.InsertionPoint(builder.module.body))
            copy = op.clone(ip=builder.insertion)
            substitute(copy, known)
            known.update(zip(op.results, copy.results, strict=True))
            results += copy.results
        return results

    return region_program(values, emit)


def region_program(
    values: Sequence[Value],
    emit: Callable[[Builder, Sequence[Value]], Sequence[Value]],
    donated: Mapping[int, Argument] = MappingProxyType({}),
) -> Program:
    """A Program of values of another one.

    Arguments:
        values: whose types its arguments have.
        emit: adds the operations, on its arguments, and returns the results.
        donated: by their places, arguments that are state.
    """
    specs = [spec_of(value.type) for value in values]
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        main, block = open_main(module, specs)
        builder = Builder(module, block)
        with building(builder):
            results = [Tensor(value, builder) for value in emit(builder, list(block.arguments))]
            close_main(main, block, results)
        taken = [donated.get(i) or Argument(str(i), each, Role.input) for i, each in enumerate(specs)]
        returned = [Result(str(i), tensor.spec) for i, tensor in enumerate(results)]
        describe_signature(main, taken, returned, _flat(len(taken)), _flat(len(returned)))
    return Program.from_module(module)


def _flat(count: int) -> Tree:
    return Tree("tuple", (), (LEAF,) * count)


def only_operation(block: ir.Block) -> ir.Operation:
    """The operation of a region that has one."""
    return next(op.operation for op in block.operations)


def written_out(region: Program) -> Program:
    """The region of a composite with what the composite decomposes into, in which composites stay."""
    module = region.module()
    composite = only_operation(entry_block(module))
    inline_composites(module, lambda op: op != composite)
    inline_calls(module)
    return Program.from_module(module)
