"""The one door to jaxlib's MLIR bindings: context, parsing, bytecode, portable artifacts, passes.

An upgrade of jaxlib is an edit of this file. Rules that the bindings impose, each learnt from a crash:
the context never starts threads (a fork would hang); a wrapper is never kept across a pass; a module is held as long as
anything inside it; and `serialize_portable_artifact` is only given a module of its own, because it rewrites it in place.
"""

import contextlib
import functools
import io
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, cast

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as jax does before it loads jaxlib: warnings, no chatter

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from pcp.errors import PCPError
from pcp.ir.nesting import check_depth

__all__ = [
    "CUSTOM_DERIVATIVE",
    "InvalidProgram",
    "Value",
    "bytecode_of",
    "check_strings",
    "context",
    "describe_location",
    "flag_of",
    "flat_bytecode",
    "flatten",
    "has_custom_derivative",
    "inline_calls",
    "inline_composites",
    "inline_function",
    "integer_elements",
    "integer_of",
    "integers_of",
    "ir",
    "keeps_its_derivative",
    "legalise",
    "legalise_chlo",
    "named_operations",
    "names_functions",
    "operation_names",
    "parse_module",
    "run_passes",
    "stablehlo",
    "string_of",
    "symbol_name",
    "verify",
]

if TYPE_CHECKING:
    Value = ir.Value[Any]  # in the stubs it is generic over the class of its MLIR type
else:
    Value = ir.Value

CUSTOM_DERIVATIVE = "pcp.custom_derivative"
"""The name of composites that are known for their own derivative alone; see `pcp.ir.custom_derivatives`."""


class InvalidProgram(PCPError):
    """Text, bytes or a module that is no valid StableHLO program."""


@functools.cache
def context() -> ir.Context:
    """The process-wide MLIR context with the StableHLO, CHLO, Shardy and func dialects."""
    stablehlo.register_stablehlo_passes()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made = ir.Context()
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    stablehlo.register_dialect(made)
    chlo.register_dialect(made)
    sdy.register_dialect(made)
    made.enable_multithreading(False)
    return made


def parse_module(source: str | bytes) -> ir.Module:
    """A module from MLIR text or bytecode.

    Raises:
        InvalidProgram: it does not parse or verify, or a string in it is not UTF-8 text.
        NestedTooDeeply: brackets of a text are nested so deep that the parser's stack would end.
    """
    if isinstance(source, str):
        _check_brackets(source)
        check_strings(source)
    try:
        return ir.Module.parse(source, context())
    except ir.MLIRError as error:
        module = (
            _parse_aligned(source)
            if isinstance(source, bytes) and "section alignment" in str(error)
            else None
        )
        if module is None:
            raise InvalidProgram(_explain("the program does not parse", error)) from None
        return module


def _parse_aligned(source: bytes) -> ir.Module | None:
    """A module from bytecode with blobs, which MLIR only reads where they lie at multiples of their alignment.

    Python does not say where bytes lie, but MLIR reads a file into memory of its own: a large one at the start of a page, a
    small one behind the file's name, at a multiple of 64 in one of four attempts.
    """
    with tempfile.TemporaryDirectory() as folder:
        for length in list(range(1, 200, 16)) * 8:
            path = os.path.join(folder, "m" * length)
            with open(path, "wb") as file:
                file.write(source)
            with contextlib.suppress(ir.MLIRError):
                return ir.Module.parseFile(path, context())
            os.remove(path)
    return None


_COMBINING = {
    f"stablehlo.{name}"
    for name in ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter", "select_and_scatter")
}
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|->|[][{}()<>]')
_STEPS = {"{": ("{", 1), "}": ("{", -1), "[": ("[", 1), "]": ("[", -1)} | {
    "(": ("(", 1), ")": ("(", -1), "<": ("<", 1), ">": ("<", -1)
}  # fmt: skip
REGIONS = "the regions of operations (loops, branches)"
FLATTER = "compute in fewer of them, or in functions that are called"


def _check_brackets(source: str) -> None:
    """Refuse a text at which the parser's stack would end: a region takes up to two braces, and attributes have some."""
    depth = dict.fromkeys("{[(<", 0)
    for found in _BRACKETS.finditer(source):
        if found[0] in _STEPS:
            kind, step = _STEPS[found[0]]
            depth[kind] += step
            what = REGIONS if kind == "{" else f"brackets {kind} of the text"
            check_depth(
                depth[kind] // 4, what, FLATTER if kind == "{" else "write fewer inside of one another"
            )


def check_strings(text: str) -> None:
    """Refuse names that are no UTF-8, wherever they stand: MLIR does not care, and Python fails when it meets them.

    Raises:
        InvalidProgram: a string of the text, in which bytes may be written as `\\FF`, is no UTF-8.
    """
    if _HIGH_BYTE.search(text) is None:
        return
    for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        raw = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, quoted.encode())
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise InvalidProgram(f"the program is damaged: {raw[:80]!r} in it is not UTF-8 text") from None


_HIGH_BYTE = re.compile(r"\\[89A-Fa-f][0-9A-Fa-f]")


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 16)])


def check_nesting(module: ir.Module) -> None:
    """Refuse a module whose regions are nested so deep that walks over it, or a compiler, would end the process.

    Raises:
        NestedTooDeeply: they are nested more than 100 deep.
    """
    waiting = [(module.operation, 0)]
    while waiting:
        op, depth = waiting.pop()
        check_depth(depth - 1, REGIONS, FLATTER)  # the function's own does not count
        for region in op.regions:
            for block in region.blocks:
                views = (view.operation for view in block.operations)
                waiting += [(inner, depth + 1) for inner in views if len(inner.regions)]


def bytecode_of(module: ir.Module) -> bytes:
    """The module as MLIR bytecode, locations included."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def verify(module: ir.Module) -> None:
    """Check every operation of the module.

    Raises:
        InvalidProgram: the first operation that is wrong, with its location.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidProgram(_explain("the program does not verify", error)) from None


def describe_location(location: ir.Location) -> str:
    """Where in the user's files an operation was made, `model.py:12, in loss`; empty if that is unknown."""
    name = ""
    while not isinstance(location, ir.FileLineColLoc):
        if isinstance(location, ir.NameLoc):
            name = location.name_str
            location = location.child_loc
        elif isinstance(location, ir.CallSiteLoc):  # what a call inlined: its own place, or that of the call
            return describe_location(location.callee) or describe_location(location.caller)
        elif isinstance(location, ir.FusedLoc) and location.locations:
            location = cast(ir.Location, location.locations[0])
        else:
            return f"in {name}" if name else ""
    return f"{location.filename}:{location.start_line}" + (f", in {name}" if name else "")


def string_of(attribute: ir.Attribute) -> str:
    """The text of a string attribute.

    Raises:
        ValueError: it is none.
    """
    return ir.StringAttr(attribute).value


def integer_of(attribute: ir.Attribute) -> int:
    """The number in an integer attribute.

    Raises:
        ValueError: it is none.
    """
    return ir.IntegerAttr(attribute).value


def flag_of(attribute: ir.Attribute) -> bool:
    """The truth value of a boolean attribute.

    Raises:
        ValueError: it is none.
    """
    return ir.BoolAttr(attribute).value


def integers_of(attribute: ir.Attribute) -> tuple[int, ...]:
    """The numbers in an attribute `array<i64>`.

    Raises:
        ValueError: it is none.
    """
    return tuple(ir.DenseI64ArrayAttr(attribute))


def integer_elements(attribute: ir.Attribute) -> tuple[int, ...]:
    """The numbers in an attribute `dense<...>` of integers, in row-major order.

    Raises:
        ValueError: it is none.
    """
    elements = ir.DenseIntElementsAttr(attribute)
    return tuple(int(elements[place]) for place in range(len(elements)))


def symbol_name(function: ir.Operation) -> str:
    """The name under which a function is called."""
    return string_of(function.attributes["sym_name"])


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run MLIR passes over the module in place; every wrapper into it is invalid afterwards."""
    with context():
        PassManager.parse(pipeline).run(module.operation)


def inline_calls(module: ir.Module) -> None:
    """Replace every `func.call` under `main` by the body of its callee, in place, and drop unused functions.

    Where there are composites, so do calls in all functions: those are what the composites name.

    Raises:
        InvalidProgram: a function calls itself, directly or not.
    """
    functions = {
        symbol_name(op.operation): op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    _refuse_recursion(functions)
    has_composites = bool(named_operations(module.operation, "stablehlo.composite"))
    roots = list(functions.values()) if has_composites else [functions["main"]]
    while calls := [call for root in roots for call in named_operations(root, "func.call")]:
        for call in calls:
            callee = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
            with context(), call.location, ir.InsertionPoint(call):
                results = inline_function(callee, list(call.operands))
            _pass_on_marks(call, len(list(callee.regions[0].blocks[0].operations)) - 1)
            for old, new in zip(call.results, results, strict=True):
                old.replace_all_uses_with(new)
            call.erase()
    del functions, roots
    if len(list(module.body.operations)) > 1:
        run_passes(module, "builtin.module(symbol-dce)")


def _pass_on_marks(call: ir.Operation, count: int) -> None:
    """Give the marks of a call, attributes as `pcp.checkpoint`, to the operations that stand before it in its place."""
    marks = _marks_of(call)
    if marks:
        operations = [view.operation for view in ir.InsertionPoint(call).block.operations]
        place = operations.index(call)
        for op in operations[place - count : place]:
            for name, mark in marks.items():
                if name not in op.attributes:
                    op.attributes[name] = mark


def _marks_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    names = [entry if isinstance(entry, str) else entry.name for entry in op.attributes]
    return {name: op.attributes[name] for name in names if name.startswith("pcp.")}


def _refuse_recursion(functions: Mapping[str, ir.Operation]) -> None:
    callees = {
        name: {
            ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            for call in named_operations(op, "func.call")
        }
        for name, op in functions.items()
    }
    try:
        tuple(TopologicalSorter(callees).static_order())
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise InvalidProgram(
            f"functions of the program call themselves, which StableHLO forbids: {cycle}"
        ) from None


def inline_composites(module: ir.Module, keep: Callable[[ir.Operation], bool] | None = None) -> None:
    """Replace every composite operation, but those to `keep`, by a call of the function that decomposes it, in place."""
    for op in named_operations(module.operation, "stablehlo.composite"):
        if keep is None or not keep(op):
            types = [result.type for result in op.results]
            callee = {"callee": op.attributes["decomposition"], **_marks_of(op)}
            with context(), op.location, ir.InsertionPoint(op):
                call = ir.Operation.create("func.call", types, list(op.operands), callee)
            for old, new in zip(op.results, call.results, strict=True):
                old.replace_all_uses_with(new)
            op.erase()


def has_custom_derivative(op: ir.Operation) -> bool:
    """Whether an operation is a composite that brings its own derivative, or had one that was left behind."""
    if op.name != "stablehlo.composite":
        return False
    if string_of(op.attributes["name"]) == CUSTOM_DERIVATIVE:
        return True
    if "composite_attributes" not in op.attributes:
        return False
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    return any(key in entries and isinstance(entries[key], ir.FlatSymbolRefAttr) for key in ("jvp", "bwd"))


def keeps_its_derivative(op: ir.Operation) -> bool:
    """The same where that can be used: a body that combines two elements, as of a window, is differentiated as written out."""
    return has_custom_derivative(op) and (op.parent is None or op.parent.name not in _COMBINING)


def names_functions(op: ir.Operation) -> bool:
    """Whether more is said of a composite than what it decomposes into: functions that it names, such as its derivative.

    One whose own derivative is not there is among them: it has none, and is not that of what it decomposes into.
    """
    return has_custom_derivative(op) or any(
        "@" in str(attribute) and _is_symbolic(attribute)
        for name, attribute in op.attributes.items()
        if name != "decomposition"
    )


def _is_symbolic(attribute: ir.Attribute) -> bool:
    """Whether there is a symbol in an attribute, at any depth."""
    pending = [attribute]
    while pending:
        entry = pending.pop()
        if isinstance(entry, ir.SymbolRefAttr | ir.FlatSymbolRefAttr):
            return True
        if isinstance(entry, ir.ArrayAttr):
            pending.extend(entry)
        elif isinstance(entry, ir.DictAttr):
            pending.extend(entry[index].attr for index in range(len(entry)))
    return False


def flatten(module: ir.Module, keep: Callable[[ir.Operation], bool] | None = None) -> None:
    """Inline all composites, but those to `keep`, and calls, in place; what several compute alike is then computed once."""
    if named_operations(module.operation, "stablehlo.composite"):
        inline_composites(module, keep)
        inline_calls(module)
        run_passes(module, "builtin.module(cse)")


def flat_bytecode(bytecode: bytes) -> bytes:
    """A module without composites and calls, of a module given as bytecode; the same if it has no composites."""
    if b"composite" not in bytecode:
        return bytecode
    module = parse_module(bytecode)
    flatten(module)
    return bytecode_of(module)


DEPRECATED = ("broadcast", "create_token", "cross-replica-sum", "dot", "unary_einsum")
"""Operations of StableHLO that a pass replaces by others."""

DYNAMIC = (
    "dynamic_broadcast_in_dim", "dynamic_conv", "dynamic_gather", "dynamic_iota", "dynamic_pad", "dynamic_reshape",
    "real_dynamic_slice",
)  # fmt: skip
"""Operations of StableHLO that a pass replaces by others where the shapes in their operands are constants."""


def legalise_chlo(module: ir.Module) -> None:
    """Replace, in place, operations of CHLO, which have no portable form, by what they are made of in StableHLO."""
    run_passes(module, "builtin.module(func.func(chlo-legalize-to-stablehlo))")


def legalise(module: ir.Module) -> None:
    """Replace, in place, deprecated operations and those of dynamic shape whose shapes are constants of the program."""
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        names.add(op.name.removeprefix("stablehlo."))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if names.intersection(DEPRECATED):
        run_passes(module, "builtin.module(func.func(stablehlo-legalize-deprecated-ops))")
    if names.intersection(DYNAMIC):
        run_passes(
            module, "builtin.module(stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism))"
        )


def operation_names() -> frozenset[str]:
    """Every operation of StableHLO and CHLO that this jaxlib knows, as `stablehlo.add`."""
    return frozenset(
        entry.OPERATION_NAME
        for dialect in (stablehlo, chlo)
        for entry in vars(dialect).values()
        if isinstance(entry, type) and hasattr(entry, "OPERATION_NAME")
    )


def inline_function(function: ir.Operation, arguments: Sequence[Value]) -> list[Value]:
    """Copy the body of a single-block function to the current insertion point; returns what it returns.

    The location comes from the context, because jaxlib 0.10.2 crashes when it is given as an argument.
    """
    return list(_jax_mlir_ext.inlined_func_call(function, list(arguments)))


def named_operations(operation: ir.Operation, name: str) -> list[ir.Operation]:
    """Every operation of that name inside another."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    return found


def _explain(what: str, error: ir.MLIRError) -> str:
    diagnostics: Sequence[ir.DiagnosticInfo] = error.error_diagnostics
    return "\n".join([f"{what}:", *(f"  {entry.location}: {entry.message}" for entry in diagnostics)])
