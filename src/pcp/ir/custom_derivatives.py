"""Composites that bring their own derivative, as `jax.custom_jvp` and `jax.custom_vjp` give one to a function.

Their name is `pcp.custom_derivative`; the function that decomposes them computes the results. The attribute `name` is for
messages; the others name functions of the module. Let x be the operands, and t those of floating-point or complex numbers:

- `jvp`: (x, tangents of t) to the tangents of the results that are floating-point or complex;
- `fwd` and `bwd`: x to the results and then residuals; (residuals, cotangents of such results) to the cotangents of t.

A composite with neither was imported beyond the order up to which derivatives are carried along. Simplification and kernels
see the decomposition alone: who plans a program, and differentiates it no further, takes `without_custom_derivatives`.
"""

from collections.abc import Mapping

from pcp.ir.bindings import InvalidProgram, ir
from pcp.ir.composites import module_of
from pcp.ir.program import Program
from pcp.ir.toolkit.attributes import string_of, symbol_name
from pcp.ir.toolkit.inlining import CUSTOM_DERIVATIVE, inline_calls, inline_composites


def derivative_name(op: ir.Operation) -> str:
    """What the user calls the function of a composite with its own derivative."""
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    return string_of(entries["name"]) if "name" in entries else "a function"


def derivative_functions(op: ir.Operation) -> dict[str, ir.Operation]:
    """The functions that are the derivative of a composite, by `jvp`, `fwd` and `bwd`.

    Raises:
        InvalidProgram: one is named that the module does not have.
    """
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    named = [entries[i] for i in range(len(entries)) if isinstance(entries[i].attr, ir.FlatSymbolRefAttr)]
    functions = {
        symbol_name(view.operation): view.operation for view in module_of(op).regions[0].blocks[0].operations
    }
    found = {entry.name: functions.get(ir.FlatSymbolRefAttr(entry.attr).value) for entry in named}
    if missing := [name for name, function in found.items() if function is None]:
        raise InvalidProgram(
            f"the composite {derivative_name(op)!r} names functions as its derivative that the module does not have: "
            f"{', '.join(missing)}"
        )
    return {name: function for name, function in found.items() if function is not None}


def set_derivative(op: ir.Operation, name: str, symbols: Mapping[str, str]) -> None:
    """Say what the derivative of a composite is, in the current context.

    Arguments:
        op: the composite.
        name: what the user calls its function.
        symbols: of functions of the same module, by `jvp`, `fwd` and `bwd`.
    """
    references = {key: ir.FlatSymbolRefAttr.get(symbol) for key, symbol in symbols.items()}
    op.attributes["composite_attributes"] = ir.DictAttr.get({"name": ir.StringAttr.get(name), **references})


def without_custom_derivatives(program: Program) -> Program:
    """The program, which is differentiated no further, with every composite of this kind replaced by what it computes."""
    if CUSTOM_DERIVATIVE.encode() not in program.bytecode:
        return program
    module = program.module()
    inline_composites(module, lambda op: string_of(op.attributes["name"]) != CUSTOM_DERIVATIVE)
    inline_calls(module)
    return Program.from_module(module)
