"""The float64 oracle: the same Program, with every floating-point number in float64.

What a Program computes in exact arithmetic is estimated by running it in float64. Where bits are read as numbers or numbers as
bits, and where code from outside is called, the original types stay and values are converted around them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.ir import Argument, DType, Program, Result, TensorSpec
from pcp.ir.bindings import InvalidProgram, Value, context, inline_calls, inline_composites, ir
from pcp.ir.program import describe_signature, main_of, mlir_type, spec_of
from pcp.ir.types import UnknownDType

_AS_WRITTEN = tuple(
    f"stablehlo.{name}" for name in ("bitcast_convert", "constant", "custom_call", "reduce_precision", "rng")
)
_LOWERING = ("algorithm", "precision_config")


def widened(program: Program) -> Program:
    """The Program in float64 (and complex128): shapes, names, integers and control flow stay.

    Arguments:
        program: any Program.
    """
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    main = main_of(module)
    old = main.regions[0].blocks[0]
    with context(), ir.Location.unknown():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            inputs = [_wider(argument.type) for argument in old.arguments]
            *_, terminator = old.operations
            outputs = [_wider(value.type) for value in terminator.operation.operands]
            function = ir.Operation.create(
                "func.func",
                [],
                [],
                {
                    "sym_name": ir.StringAttr.get("main"),
                    "sym_visibility": ir.StringAttr.get("public"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs)),
                },
                regions=1,
            )
        block = function.regions[0].blocks.append(*inputs)
        _Copy(dict(zip(old.arguments, block.arguments, strict=True))).block(old, block)
        arguments = [replace(entry, spec=_wide(entry.spec)) for entry in program.arguments]
        results = [replace(entry, spec=_wide(entry.spec)) for entry in program.results]
        describe_signature(function, arguments, results, program.argument_tree, program.result_tree)
    return Program.from_module(made)


def widened_arrays(
    entries: Sequence[Argument | Result], arrays: Sequence[Any]
) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays for a program as arrays for the same program in float64, one after another."""
    for entry, array in zip(entries, arrays, strict=True):
        yield np.asarray(array).astype(_wide(entry.spec).dtype.numpy)


class _Copy:
    """Copies blocks into another module with wider types; `known` is what stands for each value there."""

    def __init__(self, known: dict[Value, Value]) -> None:
        self.known = known

    def block(self, old: ir.Block, new: ir.Block) -> None:
        with ir.InsertionPoint(new):
            for view in old.operations:
                self.operation(view.operation)

    def operation(self, op: ir.Operation) -> None:
        operands: list[Value] = [self.known[value] for value in op.operands]
        types = [result.type for result in op.results]
        if op.name in _AS_WRITTEN:
            narrow = [_converted(new, old.type) for new, old in zip(operands, op.operands, strict=True)]
            made = op.clone()
            for index, value in enumerate(narrow):
                made.operands[index] = value
        else:
            attributes = {entry: op.attributes[entry] for entry in op.attributes if entry not in _LOWERING}
            made = ir.Operation.create(
                op.name, [_wider(type_) for type_ in types], operands, attributes, regions=len(op.regions)
            )
            self.regions(op, made)
        for old, new in zip(op.results, made.results, strict=True):
            self.known[old] = _converted(new, _wider(old.type))

    def regions(self, op: ir.Operation, made: ir.Operation) -> None:
        for old_region, new_region in zip(op.regions, made.regions, strict=True):
            for old in old_region.blocks:
                new = new_region.blocks.append(*(_wider(argument.type) for argument in old.arguments))
                self.known.update(zip(old.arguments, new.arguments, strict=True))
                self.block(old, new)


def _converted(value: Value, type_: ir.Type) -> Value:
    if value.type == type_:
        return value
    made: Value = ir.Operation.create("stablehlo.convert", [type_], [value]).results[0]
    return made


def _wider(type_: ir.Type) -> ir.Type:
    try:
        return mlir_type(_wide(spec_of(type_)))
    except (InvalidProgram, UnknownDType):  # a token
        return type_


def _wide(spec: TensorSpec) -> TensorSpec:
    wide = {"float": DType.f64, "complex": DType.c128}.get(spec.dtype.kind, spec.dtype)
    return TensorSpec(spec.shape, wide)
