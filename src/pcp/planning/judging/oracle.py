"""The same Program in wider floating-point types: what exact arithmetic gives is estimated by running it in float64.

Where bits are read as numbers or numbers as bits, and where code from outside is called, the original types stay and values are
converted around them. So they do where numbers that depend on no argument become integers or booleans: what is chosen there is
what the program says in its own types. T5's bucket of a distance of 16 is 8 + int(8 * log(16 / 8) / log(16)): 10 where all is
rounded to float32, 9 where only the constant log(16) was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.ir import Argument, DType, Program, Result, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.digest import has_effect
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.dataflow import defining_op, depth_first
from pcp.ir.toolkit.functions import entry_block, update_function_type
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.retyping import Copier
from pcp.ir.toolkit.tensor_types import mlir_type, spec_if_tensor
from pcp.tracing import open_main

_AS_WRITTEN = tuple(
    f"stablehlo.{name}" for name in ("bitcast_convert", "constant", "custom_call", "reduce_precision", "rng")
)
_LOWERING = ("algorithm", "precision_config")


def widened(program: Program, to: DType = DType.f64) -> Program:
    """The Program in float64 (and complex128): shapes, names, integers and control flow stay.

    Arguments:
        program: any Program.
        to: `DType.f32` widens only types narrower than that.
    """
    return Copy(program, to).made


def widened_arrays(
    entries: Sequence[Argument | Result], arrays: Sequence[Any]
) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays for a program as arrays for the same program in float64, one after another."""
    for entry, array in zip(entries, arrays, strict=True):
        yield np.asarray(array).astype(wide_spec(entry.spec, DType.f64).dtype.numpy)


def wide_spec(spec: TensorSpec, to: DType) -> TensorSpec:
    """The spec of a value in wider types."""
    if to is DType.f64:
        wide = {"float": DType.f64, "complex": DType.c128}.get(spec.dtype.kind, spec.dtype)
    else:
        wide = to if spec.dtype.kind == "float" and spec.dtype.itemsize < to.itemsize else spec.dtype
    return TensorSpec(spec.shape, wide)


class Copy(Copier):
    """A program copied operation by operation into wider types.

    Arguments:
        to: as of `widened`.

    Attributes:
        made: the copy.
    """

    def __init__(self, program: Program, to: DType = DType.f64) -> None:
        super().__init__(lambda type_: _wider(type_, to), _AS_WRITTEN)
        self._chosen: set[Value] = set()
        self._narrow: dict[Value, Value] = {}
        module = program.module()
        flatten(module)
        inline_calls(module)
        old = entry_block(module)
        with context(), ir.Location.unknown():
            copied = ir.Module.create()
            function, block = open_main(copied, [wide_spec(entry.spec, to) for entry in program.arguments])
            self.known.update(zip(old.arguments, block.arguments, strict=True))
            self.block(old, block)
            update_function_type(function)
            arguments = [replace(entry, spec=wide_spec(entry.spec, to)) for entry in program.arguments]
            results = [replace(entry, spec=wide_spec(entry.spec, to)) for entry in program.results]
            describe_signature(function, arguments, results, program.argument_tree, program.result_tree)
        self.made = Program.from_module(copied)

    def operation(self, op: ir.Operation) -> ir.Operation:
        """Copy one operation; values that stand for its results are known then.

        A choice that depends on no argument, and what leads to it, is also copied as written.
        """
        if any(result in self._chosen for result in op.results):
            copy = op.clone()
            for index, value in enumerate(op.operands):
                copy.operands[index] = self._narrow.get(value, self.known[value])
            is_choice = not any(map(_is_float, op.results))
            (self.known if is_choice else self._narrow).update(zip(op.results, copy.results, strict=True))
            if is_choice:
                return copy
        return super().operation(op)

    def attributes(self, op: ir.Operation) -> dict[str, ir.Attribute]:
        """What the copy of an operation says: nothing of how it is computed."""
        return {name: value for name, value in super().attributes(op).items() if name not in _LOWERING}

    def block(self, old: ir.Block, new: ir.Block) -> None:
        """Copy all operations of a block to the end of another one."""
        self._chosen |= _choices(old)
        super().block(old, new)


def _wider(type_: ir.Type, to: DType) -> ir.Type:
    spec = spec_if_tensor(type_)
    return type_ if spec is None else mlir_type(wide_spec(spec, to))


def _is_float(value: Value) -> bool:
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.dtype.is_differentiable


def _choices(block: ir.Block) -> set[Value]:
    """Integers and booleans of a block that come from numbers which depend on no argument, and those numbers."""
    free: set[Value] = set()
    choices: list[ir.Operation] = []
    for view in block.operations:
        op = view.operation
        is_alone = not has_effect(op) and not any(True for _ in values_from_outside(op))
        if not is_alone or not free.issuperset(op.operands):
            continue
        free.update(op.results)
        if any(map(_is_float, op.operands)) and not any(map(_is_float, op.results)):
            choices.append(op)

    def before(op: ir.Operation) -> list[ir.Operation]:
        return [maker for value in op.operands if _is_float(value) and (maker := defining_op(value))]

    return {result for op in depth_first(choices, before) for result in op.results}
