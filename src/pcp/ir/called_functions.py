"""Functions that operations name without calling them, as the comparator of a custom call, on their way between modules."""

from itertools import count

from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.attributes import string_of


def copy_functions(source: ir.Module, main: ir.Operation, target: ir.Module) -> None:
    """Copy to `target` every function and other symbol of `source` but `main`, which `target` then may name.

    Where `target` has another symbol of that name, it and its uses in `source` are renamed first, in place.
    """
    there = _symbols(target)
    copied = _symbols(source)
    del copied[_name(main)]
    with context():
        while clash := next(
            (n for n, op in copied.items() if n in there and _text(op) != _text(there[n])), None
        ):
            new = next(n for n in (f"{clash}_{i}" for i in count()) if n not in there and n not in copied)
            ir.SymbolTable.replace_all_symbol_uses(clash, new, source.operation)
            copied[new] = copied.pop(clash)
            ir.SymbolTable.set_symbol_name(copied[new], new)
        for name, op in copied.items():
            if name not in there:
                op.clone(ip=ir.InsertionPoint(target.body))


def _symbols(module: ir.Module) -> dict[str, ir.Operation]:
    """What a module defines by name; functions are private from here on, but for `main`, so that they go when unused."""
    symbols = {_name(op.operation): op.operation for op in module.body.operations}
    with context():
        for name, op in symbols.items():
            if op.name == "func.func" and name != "main":
                op.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return symbols


def _name(op: ir.Operation) -> str:
    return string_of(op.attributes["sym_name"])


def _text(op: ir.Operation) -> str:
    # The module around it is under construction, and does not verify.
    return str(op.get_asm(assume_verified=True, use_local_scope=True))
