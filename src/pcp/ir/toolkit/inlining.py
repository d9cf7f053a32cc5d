"""Calls and composites replaced by the bodies of the functions that they name."""

from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from pcp.ir.bindings import (
    InvalidProgram,
    bytecode_of,
    context,
    inline_function,
    ir,
    parse_module,
    run_passes,
)
from pcp.ir.nesting import REGIONS, check_depth
from pcp.ir.toolkit.functions import functions_of
from pcp.ir.toolkit.walking import named_operations

NO_DERIVATIVE = "no_derivative"
"""The attribute of a composite whose own derivative was left behind; see `pcp.ir.custom_derivatives`."""


DEEPEST_CALLS = 50
"""Calls inside of one another that are left to XLA, whose stack ends before two hundred."""


_COMBINING = {
    f"stablehlo.{name}"
    for name in ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter", "select_and_scatter")
}


def inline_calls(module: ir.Module) -> None:
    """Replace every `func.call` under `main` by the body of its callee, in place, and drop unused functions.

    Where there are composites, so do calls in all functions: those are what the composites name.

    Raises:
        InvalidProgram: a function calls itself, directly or not.
        NestedTooDeeply: calls in regions would nest those too deeply.
    """
    functions = functions_of(module)
    if _check_calls(functions):
        has_composites = bool(named_operations(module.operation, "stablehlo.composite"))
        _inline(functions, list(functions.values()) if has_composites else [functions["main"]])
    del functions
    if len(list(module.body.operations)) > 1:
        run_passes(module, "builtin.module(symbol-dce)")


def _inline(functions: Mapping[str, ir.Operation], roots: Sequence[ir.Operation]) -> None:
    """Replace every call in some of the functions by the body of its callee, until there is none."""
    while calls := [call for root in roots for call in named_operations(root, "func.call")]:
        for call in calls:
            callee = functions[_callee(call)]
            with context(), call.location, ir.InsertionPoint(call):
                results = inline_function(callee, list(call.operands))
            _pass_on_marks(call, len(list(callee.regions[0].blocks[0].operations)) - 1)
            for old, new in zip(call.results, results, strict=True):
                old.replace_all_uses_with(new)
            call.erase()


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


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _check_calls(functions: Mapping[str, ir.Operation]) -> int:
    """Refuse recursion, and calls in regions of functions that are called in regions, and so on, too deeply.

    Returns:
        How many calls there are inside of one another, at most.
    """
    calls = {name: named_operations(op, "func.call") for name, op in functions.items()}
    callees = {name: {_callee(call) for call in each} for name, each in calls.items()}
    try:
        order = list(TopologicalSorter(callees).static_order())
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise InvalidProgram(
            f"functions of the program call themselves, which StableHLO forbids: {cycle}"
        ) from None
    depths: dict[str, int] = {}
    regions: dict[str, int] = {}
    for name in order:
        inside = calls.get(name, ())
        depths[name] = max((1 + depths[_callee(call)] for call in inside), default=0)
        regions[name] = max((_regions_around(call) + regions[_callee(call)] for call in inside), default=0)
        # An inner function's own regions were checked when the program was made.
        check_depth(regions[name], f"{REGIONS} that call one another's functions", "compute in fewer of them")
    return max(depths.values(), default=0)


def _regions_around(op: ir.Operation) -> int:
    """How many regions an operation lies in, but for the function's own."""
    count, outer = 0, op.parent
    while outer is not None and outer.name != "func.func":
        count, outer = count + 1, outer.parent
    return count


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
    if "composite_attributes" not in op.attributes:
        return False
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    named = any(key in entries and isinstance(entries[key], ir.FlatSymbolRefAttr) for key in ("jvp", "bwd"))
    return named or NO_DERIVATIVE in entries


def is_combined(op: ir.Operation) -> bool:
    """Whether an operation stands in a body that combines two elements, as of a window; such are transformed as written out."""
    return op.parent is not None and op.parent.name in _COMBINING


def keeps_its_derivative(op: ir.Operation) -> bool:
    """Whether an operation is a composite whose own derivative can be used where it stands."""
    return has_custom_derivative(op) and not is_combined(op)


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
    """A module, as bytecode, without composites, and without calls where it has composites, or more calls inside of one
    another than XLA's stack holds.

    Raises:
        NestedTooDeeply: calls in regions would nest those too deeply.
    """
    if b"composite" not in bytecode and b"call" not in bytecode:
        return bytecode
    module = parse_module(bytecode)
    if b"composite" in bytecode:
        flatten(module)
    elif _check_calls(functions_of(module)) <= DEEPEST_CALLS:
        return bytecode
    inline_calls(module)
    return bytecode_of(module)
