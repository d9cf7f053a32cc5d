"""Calls of LAPACK for which StableHLO has an operation, as that operation.

JAX writes such calls when it lowers for a CPU. As operations they can be differentiated, run anywhere and travel.
"""

from collections.abc import Callable
from typing import Any

from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import integer_of, string_of
from pcp.ir.toolkit.walking import named_operations

_ROUTINES = {f"lapack_{kind}{routine}_ffi": routine for kind in "sdcz" for routine in ("potrf", "trsm")}
_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def replace_library_calls(module: ir.Module) -> None:
    """Replace Cholesky factorisations and triangular solutions by LAPACK in a module, in place."""
    calls = [
        op
        for op in named_operations(module.operation, "stablehlo.custom_call")
        if string_of(op.attributes["call_target_name"]) in _ROUTINES
    ]
    while calls:
        op = calls.pop()
        routine = _ROUTINES[string_of(op.attributes["call_target_name"])]
        with context(), op.location, ir.InsertionPoint(op):
            results = _REPLACEMENTS[routine](op)
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _cholesky(op: ir.Operation) -> list[Value]:
    """(factor, info): a matrix that has no factor gives NaN here, so that `info` may always say success."""
    attributes: dict[str, ir.Attribute] = {"lower": ir.BoolAttr.get(_flag(op, "uplo") == "L")}
    factor = ir.Operation.create("stablehlo.cholesky", [op.results[0].type], [op.operands[0]], attributes)
    info: Any = op.results[1].type
    success = ir.DenseElementsAttr.get_splat(info, ir.IntegerAttr.get(info.element_type, 0))
    constant = ir.Operation.create("stablehlo.constant", [info], [], {"value": success})
    return [factor.results[0], constant.results[0]]


def _triangular_solve(op: ir.Operation) -> list[Value]:
    transpose = _TRANSPOSES[_flag(op, "trans_x")]
    attributes: dict[str, ir.Attribute] = {
        "left_side": ir.BoolAttr.get(_flag(op, "side") == "L"),
        "lower": ir.BoolAttr.get(_flag(op, "uplo") == "L"),
        "unit_diagonal": ir.BoolAttr.get(_flag(op, "diag") == "U"),
        "transpose_a": ir.Attribute.parse(f"#stablehlo<transpose {transpose}>"),
    }
    solved = ir.Operation.create(
        "stablehlo.triangular_solve", [op.results[0].type], list(op.operands), attributes
    )
    return [solved.results[0]]


_REPLACEMENTS: dict[str, Callable[[ir.Operation], list[Value]]] = {
    "potrf": _cholesky,
    "trsm": _triangular_solve,
}


def _flag(op: ir.Operation, name: str) -> str:
    """One of the letters by which LAPACK is told what to do."""
    return chr(integer_of(ir.DictAttr(op.attributes["mhlo.backend_config"])[name]))
