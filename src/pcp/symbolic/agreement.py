"""Whether two Programs compute the same, though one of them may be written for any sizes."""

import importlib
from typing import Any

import ml_dtypes

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.inlining import inline_composites
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.toolkit.walking import named_operations
from pcp.symbolic.template import DTYPES, FLOAT_TYPE, TOKENS, renamed

_REWRITES = "pcp.rewrite"
"""A later layer, imported where two programs differ."""
_finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16


def agree(program: Program, expected: Program) -> bool:
    """Whether two Programs are one: in structure, perhaps after simplification; constants may differ in rounding."""
    if program.digest == expected.digest:
        return True
    one, other = _simplified(program), _simplified(expected)
    return one.digest == other.digest or _are_close(_text(one), _text(other))


def _simplified(program: Program) -> Program:
    """The program with composites written out, sums over axes of size 1 as well, and all that simplifies simplified."""
    module = program.module()
    inline_composites(module)
    for op in named_operations(module.operation, "stablehlo.reduce"):
        _reduce_units(op)
    rewrites = importlib.import_module(_REWRITES)
    simplified: Program = rewrites.simplify(Program.from_module(module), rewrites.Effect.reassociating)
    return simplified


def _reduce_units(op: ir.Operation) -> None:
    """Let a reduction take the axes of size 1 as well, whose order and place are a matter of form."""
    operands, axes = list(op.operands), integers_of(op.attributes["dimensions"])
    shape = tuple(spec_of(operands[0].type).shape)
    units = tuple(axis for axis, size in enumerate(shape) if size == 1 and axis not in axes)
    if not units:
        return
    with ir.InsertionPoint(op), op.location:
        results = [spec_of(result.type) for result in op.results]
        rest = tuple(size for axis, size in enumerate(shape) if size != 1 and axis not in axes)
        types = [mlir_type(TensorSpec(rest, entry.dtype)) for entry in results]
        attributes = {name: op.attributes[name] for name in op.attributes}
        attributes["dimensions"] = ir.DenseI64ArrayAttr.get(sorted((*axes, *units)))
        reduced = ir.Operation.create("stablehlo.reduce", types, operands, attributes, regions=1)
        op.regions[0].blocks[0].append_to(reduced.regions[0])
        for old, new in zip(op.results, reduced.results, strict=True):
            shaped = ir.Operation.create("stablehlo.reshape", [old.type], [new])
            old.replace_all_uses_with(shaped.results[0])
        op.erase()


def _text(program: Program) -> str:
    return renamed(str(program.module().operation.get_asm(enable_debug_info=False)))


def _are_close(one: str, other: str) -> bool:
    """Whether texts differ in floating-point constants alone, by their last bits."""
    start, end = 0, 0
    for token, theirs in zip(TOKENS.finditer(one), TOKENS.finditer(other), strict=False):
        if one[start : token.start()] != other[end : theirs.start()]:
            return False
        start, end = token.end(), theirs.end()
        if token.group() == theirs.group():
            continue
        dtype = FLOAT_TYPE.match(one, start)
        if token.lastgroup != "float" or theirs.lastgroup != "float" or not dtype or dtype[1] not in DTYPES:
            return False
        a, b = float(token.group()), float(theirs.group())
        if abs(a - b) > 2 * float(_finfo(DTYPES[dtype[1]]).eps) * max(abs(a), abs(b)):
            return False
    return one[start:] == other[end:]
