"""Composites that bring their own derivative, as `pcp.composite`, `jax.custom_jvp` and `jax.custom_vjp` give one to a function.

The function that decomposes them computes the results. Attributes name functions of the module that are the derivative. Let x
be the operands, and t those of floating-point or complex numbers:

- `jvp`: (x, tangents of t) to the tangents of the results that are floating-point or complex;
- `fwd` and `bwd`: x to the results and then residuals; (residuals, cotangents of such results) to the cotangents of t.

One that has `no_derivative` instead stands beyond the order up to which derivatives are carried along. Simplification and
kernels see no derivative: who plans a program, and differentiates it no further, takes `without_custom_derivatives`.
"""

from collections.abc import Mapping

from pcp.ir.bindings import InvalidProgram, context, ir
from pcp.ir.composites import COMPOSITE, composite_name, module_of
from pcp.ir.program import Program
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.inlining import NO_DERIVATIVE, has_custom_derivative, inline_calls
from pcp.ir.toolkit.walking import named_operations

ORDERS = 3
"""Up to which order derivatives are carried along of functions whose derivative uses the function itself."""

DERIVATIVES = ("jvp", "fwd", "bwd", NO_DERIVATIVE)
"""The attributes that say what the derivative is."""


def derivative_functions(op: ir.Operation) -> dict[str, ir.Operation]:
    """The functions that are the derivative of a composite, by `jvp`, `fwd` and `bwd`; none if it brings none.

    Raises:
        InvalidProgram: one is named that the module does not have.
    """
    if not has_custom_derivative(op):
        return {}
    entries = ir.DictAttr(op.attributes["composite_attributes"])
    named = [entries[i] for i in range(len(entries)) if isinstance(entries[i].attr, ir.FlatSymbolRefAttr)]
    functions = {
        symbol_name(view.operation): view.operation for view in module_of(op).regions[0].blocks[0].operations
    }
    derivatives = {entry.name: functions.get(ir.FlatSymbolRefAttr(entry.attr).value) for entry in named}
    if missing := [name for name, function in derivatives.items() if function is None]:
        raise InvalidProgram(
            f"the composite {composite_name(op)!r} names functions as its derivative that the module does not have: "
            f"{', '.join(missing)}"
        )
    return {name: function for name, function in derivatives.items() if function is not None}


def attributes_of_derivative(symbols: Mapping[str, str]) -> dict[str, ir.Attribute]:
    """The attributes of a composite that say what its derivative is, in the current context.

    Arguments:
        symbols: of functions of the same module, by `jvp`, `fwd` and `bwd`; none where it is carried along no further.
    """
    if not symbols:
        return {NO_DERIVATIVE: ir.BoolAttr.get(True)}
    return {key: ir.FlatSymbolRefAttr.get(symbol) for key, symbol in symbols.items()}


def without_custom_derivatives(program: Program) -> Program:
    """The program, which is differentiated no further, without the derivatives that composites bring."""
    module = program.module()
    bringing = [op for op in named_operations(module.operation, COMPOSITE) if has_custom_derivative(op)]
    if not bringing:
        return program
    with context():
        for op in bringing:
            entries = ir.DictAttr(op.attributes["composite_attributes"])
            kept = [entries[i] for i in range(len(entries)) if entries[i].name not in DERIVATIVES]
            op.attributes["composite_attributes"] = ir.DictAttr.get({e.name: e.attr for e in kept})
    inline_calls(module)
    return Program.from_module(module)
