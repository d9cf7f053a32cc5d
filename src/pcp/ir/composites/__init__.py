"""Composites: operations named by what they compute, each with a function that says how in plain StableHLO.

The functions are private to their module and named by their contents, so equal ones are stored once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pcp.ir.bindings import InvalidProgram, Value, ir, run_passes
from pcp.ir.builder import Builder
from pcp.ir.composites.records import COMPOSITES, GRADIENT, Axes
from pcp.ir.digest import block_digest
from pcp.ir.toolkit.attributes import string_of, symbol_name
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites, keeps_its_derivative
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ir.toolkit.walking import named_operations

COMPOSITE = "stablehlo.composite"

Number = bool | int | float | str | tuple[int, ...] | list[int]
"""What an attribute of a composite can be; a list is a tuple that portable files carry as it is."""


class MalformedComposite(InvalidProgram):
    """A composite with one of PCP's own names, but not with the attributes that it has."""


def composite_name(op: ir.Operation) -> str:
    """What a composite computes, `pcp.softmax`; empty for any other operation."""
    return string_of(op.attributes["name"]) if op.name == COMPOSITE else ""


def composite_attributes(op: ir.Operation) -> dict[str, Any]:
    """The attributes of a composite as booleans, integers, floats, texts and tuples of integers."""
    if "composite_attributes" not in op.attributes:
        return {}
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    named = [entries[i] for i in range(len(entries)) if not isinstance(entries[i].attr, ir.FlatSymbolRefAttr)]
    return {entry.name: _number(entry.attr) for entry in named}


def known_attributes(op: ir.Operation) -> dict[str, Any]:
    """The same, checked where the composite is one of PCP's own, or the gradient of one.

    Raises:
        MalformedComposite: an attribute is missing, of another kind, or names an axis that is not there.
    """
    attributes, record = composite_attributes(op), COMPOSITES.get(composite_name(op).removesuffix(GRADIENT))
    if record is None:
        return attributes
    specs = [spec_if_tensor(value.type) for value in list(op.operands)[: primal_count(op)]]
    ranks = [0 if spec is None else len(spec.shape) for spec in specs]
    for key, kind in record.kinds.items():
        expected = kind.type if isinstance(kind, Axes) else kind
        if key in record.attributes or key in attributes:
            _require(op, type(attributes.get(key)) is expected, key, f"a value of type {expected.__name__}")
    operands = (*record.operands, *(key for key in record.further if key in attributes))
    for key, rank in zip(operands, ranks, strict=False):
        if record.kinds.get(key) is Axes.names:
            _require(op, len(attributes[key]) == rank, key, f"{rank} axes, as the operand has")
    for key, kind in record.kinds.items():
        if kind is Axes.axis:
            rank = ranks[0] if ranks else 0
            _require(op, 0 <= attributes[key] < rank, key, f"an axis of {rank}, counted from 0")
    for holds, key, words in record.demands(attributes):
        _require(op, holds, key, words)
    return attributes


def _require(op: ir.Operation, holds: bool, key: str, expected: str) -> None:
    if not holds:
        known = composite_attributes(op)
        raise MalformedComposite(
            f"the composite {composite_name(op)!r} has {f'{key} = {known[key]!r}' if key in known else f'no {key}'}; expected "
            f"{expected}; write the attribute as PCP does, or name the composite otherwise"
        )


def gradient_operands(op: ir.Operation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Of the gradient of one of PCP's composites the operands in `wrt` and in `added`; None of any other composite.

    Raises:
        MalformedComposite: they are no places of operands.
    """
    name = composite_name(op)
    if not name.startswith("pcp.") or GRADIENT not in name:
        return None
    attributes = composite_attributes(op)
    wrt, added = (attributes.get(key) for key in ("wrt", "added"))
    most = len(op.operands) - 1 - (len(added) if isinstance(added, tuple) else 0)
    for key, places in (("wrt", wrt), ("added", added)):
        is_places = isinstance(places, tuple) and all(isinstance(i, int) and 0 <= i < most for i in places)
        _require(op, is_places, key, "places of operands that it is the gradient for")
    assert isinstance(wrt, tuple)
    assert isinstance(added, tuple)
    _require(op, len(wrt) == len(op.results), "wrt", f"{len(op.results)} places, one for each result")
    return wrt, added


def primal_count(op: ir.Operation) -> int:
    """How many operands of a composite are those of what it computes, or is the gradient of; they come first.

    Raises:
        MalformedComposite: as `gradient_operands`.
    """
    gradient = gradient_operands(op)
    return len(op.operands) - (0 if gradient is None else 1 + len(gradient[1]))


def decomposition_of(op: ir.Operation) -> ir.Operation:
    """The function that says what a composite computes."""
    name = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
    functions = [entry.operation for entry in module_of(op).regions[0].blocks[0].operations]
    named: ir.Operation = next(function for function in functions if symbol_name(function) == name)
    return named


def module_of(op: ir.Operation) -> ir.Operation:
    """The module that an operation is in."""
    while op.parent is not None:
        op = op.parent.operation
    return op


def open_composites(module: ir.Module, keep: Callable[[ir.Operation], bool]) -> None:
    """Replace every composite under `main`, but those to `keep`, by what it computes, in place, and those inside of that.

    Functions of the module then hold no composites but those that bring their own derivative.
    """
    main = main_of(module)
    has_opened = False
    while opened := {op for op in named_operations(main, COMPOSITE) if not keep(op)}:
        inline_composites(module, _others_than(opened))
        inline_calls(module)
        has_opened = True
    kept = set(named_operations(main, COMPOSITE))
    inline_composites(module, lambda op: op in kept or keeps_its_derivative(op))
    inline_calls(module)
    if has_opened:  # what several of them computed alike is computed once
        run_passes(module, "builtin.module(cse)")


def _others_than(opened: Collection[ir.Operation]) -> Callable[[ir.Operation], bool]:
    return lambda op: op not in opened


def private_function(
    module: ir.Operation,
    name: str,
    arguments: Sequence[ir.Type],
    fill: Callable[[ir.Block], Sequence[Value]],
) -> str:
    """Add a private function to a module, unless it is there already.

    Arguments:
        module: where it goes.
        name: what its symbol begins with.
        arguments: types of what it takes.
        fill: adds operations to its empty block, and returns what it returns.

    Returns:
        Its symbol.
    """
    functions = module.regions[0].blocks[0]
    with ir.Location.unknown(), ir.InsertionPoint(functions):
        function = ir.Operation.create(
            "func.func",
            [],
            [],
            {
                "sym_name": ir.StringAttr.get("unnamed"),
                "sym_visibility": ir.StringAttr.get("private"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(arguments), [])),
            },
            regions=1,
        )
        block = function.regions[0].blocks.append(*arguments)
        try:
            results = list(fill(block))
        except BaseException:
            function.erase()
            raise
        ir.Operation.create("func.return", [], results, ip=ir.InsertionPoint(block))
        types = [result.type for result in results]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(arguments), types))
    symbol = f"{name}.{block_digest(block)[:16]}"
    known = {symbol_name(entry.operation) for entry in functions.operations}
    if symbol in known:
        del block, results
        function.erase()
    else:
        function.attributes["sym_name"] = ir.StringAttr.get(symbol)
    return symbol


def emit_composite(
    builder: Builder,
    name: str,
    operands: Sequence[Value],
    results: Sequence[ir.Type],
    function: str,
    attributes: Mapping[str, Number | ir.Attribute],
) -> list[Value]:
    """Add a composite whose decomposition is a function of the same module; returns its results."""
    with builder.location:
        described = {
            "name": ir.StringAttr.get(name),
            "decomposition": ir.FlatSymbolRefAttr.get(function),
            "composite_attributes": ir.DictAttr.get(
                {key: _attribute(value) for key, value in attributes.items()}
            ),
        }
        op = ir.Operation.create(COMPOSITE, list(results), list(operands), described, ip=builder.insertion)
    return list(op.results)


def _attribute(value: Number | ir.Attribute) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, list):
        return ir.ArrayAttr.get([_attribute(entry) for entry in value])
    return ir.DenseI64ArrayAttr.get(value)


def _number(attribute: ir.Attribute) -> Any:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(map(_number, attribute))
    return getattr(attribute, "value", attribute)
