"""State that is kept in bfloat16 from call to call: read in float32, and rounded by chance where its successor is returned.

What an optimizer keeps moves by less in a step than such numbers are apart, so that to the nearest it would stay where it is.
"""

from collections.abc import Collection
from dataclasses import replace

from pcp.ir import Argument, Builder, DType, Program, Role
from pcp.ir.bindings import Value, context, ir
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of, return_instead, update_function_type
from pcp.ir.toolkit.tensor_types import mlir_type
from pcp.ir.types import TensorSpec
from pcp.ops.by_chance import bf16_by_chance
from pcp.ops.elementwise import convert
from pcp.rewrite.stored.arguments import NotStored
from pcp.rewrite.stored.products import first_of, opened
from pcp.tensor import Tensor, building

LEAST_STATE = 4096
"""Numbers of a moment; of a smaller one nothing is gained."""


def is_moment(entry: Argument) -> bool:
    """Whether an argument is state of float32 that is judged otherwise than by what is added to it, as a parameter is."""
    return (
        entry.role is Role.state
        and entry.alias is not None
        and entry.kept != 1.0
        and entry.spec.dtype is DType.f32
        and entry.spec.size >= LEAST_STATE
    )


def narrower(spec: TensorSpec) -> TensorSpec:
    """What stands in the place of a tensor."""
    return TensorSpec(spec.shape, DType.bf16)


def with_narrow_state(program: Program, places: Collection[int]) -> Program:
    """The program that takes and returns moments in bfloat16.

    Arguments:
        places: of the moments among its flat arguments.

    Raises:
        NotStored: an argument is none, or there is no such argument.
    """
    entries, results = list(program.arguments), list(program.results)
    for place in places:
        if place >= len(entries) or not is_moment(entries[place]):
            shown = f"argument {place}" + (f", {entries[place].name}" if place < len(entries) else "")
            raise NotStored(
                f"{shown} is kept in bfloat16, and is no moment of {LEAST_STATE} numbers of float32 or more: plan again"
            )
    module, block = opened(program)
    *_, terminator = block.operations
    with context(), ir.Location.unknown(), building(Builder(module, block)) as builder:
        for place in sorted(places):
            entry = entries[place]
            assert entry.alias is not None
            spec = narrower(entry.spec)
            _widen(block.arguments[place], spec, builder)
            entries[place] = replace(entry, spec=spec)
            results[entry.alias] = replace(results[entry.alias], spec=spec)
        returned = list(terminator.operation.operands)
        with builder.before(terminator.operation):
            for place in sorted(places):
                alias = entries[place].alias
                assert alias is not None
                returned[alias] = bf16_by_chance(Tensor(returned[alias], builder)).value
        main = main_of(module)
        return_instead(terminator.operation, returned)
        update_function_type(main)
    describe_signature(main, entries, results, program.argument_tree, program.result_tree)
    return Program.from_module(module)


def _widen(argument: Value, spec: TensorSpec, builder: Builder) -> None:
    """Let an argument be narrower, and what reads it read it in float32."""
    readers = [(use.owner.operation, use.operand_number) for use in argument.uses]
    argument.set_type(mlir_type(spec))
    with builder.before(first_of(argument.owner)):
        wide = convert(Tensor(argument, builder), DType.f32).value
    for reader, operand in readers:
        reader.operands[operand] = wide
