"""The functions of a module: which there are, their types, and what they return."""

from collections.abc import Sequence

from pcp.ir.bindings import InvalidProgram, Value, context, ir
from pcp.ir.toolkit.attributes import string_of, symbol_name


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module, by name."""
    views = [view.operation for view in module.body.operations]
    return {symbol_name(op): op for op in views if op.name == "func.func"}


def main_of(module: ir.Module) -> ir.Operation:
    """The function that a module is run by: `main`, or its only public function.

    Raises:
        InvalidProgram: there is none, or more than one and none called `main`, or one without a body.
    """
    functions = functions_of(module).values()
    for function in functions:
        if not len(function.regions[0].blocks):
            raise InvalidProgram(
                f"the function {symbol_name(function)} of the program is declared and has no body; write the body, "
                "or leave it out"
            )
    public = [op for op in functions if _visibility(op) == "public"]
    named = [op for op in public if symbol_name(op) == "main"]
    candidates = named or public
    if len(candidates) != 1:
        names = ", ".join(symbol_name(op) for op in public) or "none"
        raise InvalidProgram(
            f"a program needs one public function, or one called main; this module has: {names}"
            + ("; choose one: pcp.load(path, main=...)" if len(public) > 1 else "")
        )
    return candidates[0]


def entry_block(module: ir.Module) -> ir.Block:
    """The block of the function that a module is run by."""
    block: ir.Block = main_of(module).regions[0].blocks[0]
    return block


def function_type(function: ir.Operation) -> ir.FunctionType:
    """The types that a function takes and returns."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def update_function_type(function: ir.Operation) -> None:
    """Write down what a function takes and returns, after its block has other arguments or another terminator."""
    block = function.regions[0].blocks[0]
    *_, terminator = block.operations
    inputs = [argument.type for argument in block.arguments]
    outputs = [value.type for value in terminator.operation.operands]
    with context():
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))


def return_instead(terminator: ir.Operation, values: Sequence[Value]) -> None:
    """Let a function return other values: its terminator is erased, and another one stands there."""
    with context(), ir.Location.unknown(), ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", [], list(values))
    terminator.erase()


def _visibility(op: ir.Operation) -> str:
    return string_of(op.attributes["sym_visibility"]) if "sym_visibility" in op.attributes else "public"
