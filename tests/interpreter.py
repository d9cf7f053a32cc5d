"""StableHLO's own interpreter: one operation after the other, each as IEEE 754 says. It ends the process where it lacks one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir, stablehlo
from pcp.ir.toolkit.functions import main_of, return_instead, update_function_type
from pcp.ir.toolkit.legalisation import legalise_chlo
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of

Array = np.ndarray[Any, Any]


def interpreted(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The results of a program for flat arguments, of its own element types."""
    module = program.module()
    legalise_chlo(module)
    with context(), ir.Location.unknown():
        _return_what_can_be_read(module)
        given = [
            ir.DenseElementsAttr.get(
                np.ascontiguousarray(array), type=ir.Type.parse(entry.spec.dtype.mlir), shape=array.shape
            )
            for array, entry in zip(arrays, program.arguments, strict=True)
        ]
        made = iter([np.array(each) for each in stablehlo.eval_module(module, given)])
    results = []
    for entry in program.results:
        value = next(made)
        if entry.spec.dtype.kind == "complex":
            value = value + 1j * next(made)
        elif entry.spec.dtype is DType.bf16:
            value = value.view(DType.bf16.numpy)
        results.append(value.astype(entry.spec.dtype.numpy).reshape(entry.spec.shape))
    return results


def _return_what_can_be_read(module: ir.Module) -> None:
    """Complex results as their two parts, and bfloat16 as its bits: the bindings read neither."""
    *_, end = main_of(module).regions[0].blocks[0].operations
    with ir.InsertionPoint(end.operation):
        values = [part for operand in list(end.operation.operands) for part in _readable(operand)]
    return_instead(end.operation, values)
    update_function_type(main_of(module))
    if "res_attrs" in main_of(module).attributes:
        del main_of(module).attributes["res_attrs"]


def _readable(value: Value) -> list[Value]:
    spec = spec_of(value.type)
    if spec.dtype.kind == "complex":
        part = mlir_type(TensorSpec(spec.shape, DType.f32 if spec.dtype is DType.c64 else DType.f64))
        return [
            ir.Operation.create(f"stablehlo.{name}", [part], [value]).results[0] for name in ("real", "imag")
        ]
    if spec.dtype is DType.bf16:
        bits = mlir_type(TensorSpec(spec.shape, DType.u16))
        return [ir.Operation.create("stablehlo.bitcast_convert", [bits], [value]).results[0]]
    return [value]
