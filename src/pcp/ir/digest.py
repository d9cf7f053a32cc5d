"""The identity of a program: a Merkle digest over its dataflow.

A value is what computes it: the operation's name, its attributes, the digests of its operands and of its regions. So names,
locations, the order of independent operations, dead code, calls and composites leave no trace, and neither does the version
of a library, because attributes that stand at their default are left out. A composite with its own derivative counts with it.
"""

import hashlib
from collections.abc import Iterable

from pcp.ir.bindings import (
    Value,
    context,
    flag_of,
    has_custom_derivative,
    inline_calls,
    inline_composites,
    ir,
    parse_module,
    symbol_name,
)

# Attributes that a round trip through a portable artifact adds or drops; each says nothing at this value.
_DEFAULTS = {
    "precision_config": ("[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]", "[]"),
    "result_accuracy": ("#stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>",),
    "indices_are_sorted": ("false",),
    "unique_indices": ("false",),
    "is_stable": ("false",),
    "has_side_effect": ("false",),
    "backend_config": ('""',),
    "version": ("0 : i32",),
    "called_computations": ("[]",),
    "compare_type": (
        "#stablehlo<comparison_type NOTYPE>",
        "#stablehlo<comparison_type FLOAT>",
        "#stablehlo<comparison_type SIGNED>",
        "#stablehlo<comparison_type UNSIGNED>",
    ),
    "window_strides": (),
    "operandSegmentSizes": (),
}
_EFFECTS = ("stablehlo.outfeed", "stablehlo.send", "stablehlo.infeed", "stablehlo.recv")


def digest_of(bytecode: bytes) -> str:
    """The digest, in hexadecimal, of the program in a module given as bytecode."""
    module = parse_module(bytecode)
    inline_composites(module, has_custom_derivative)
    inline_calls(module)
    main = next(op for op in module.body.operations if symbol_name(op.operation) == "main")
    with context():
        return _Merkle().program(main.regions[0].blocks[0])


def operation_digests(module: ir.Module) -> dict[ir.Operation, str]:
    """The digest of every operation under `main`, from what it computes: equal for operations that compute the same.

    Calls must be inlined; a composite is known by its name and its function. Values in a region are known by the place of the
    region's arguments, so equal bodies of two loops have equal digests.
    """
    main = next(op for op in module.body.operations if symbol_name(op.operation) == "main")
    merkle = _Merkle()
    with context():
        merkle.program(main.regions[0].blocks[0])
    return {op: made.hex() for op, made in merkle.operations.items()}


def block_digest(block: ir.Block) -> str:
    """The digest of the body of a function, in the current context."""
    return _Merkle().program(block)


class _Merkle:
    """One walk over a program; digests of values and texts of attributes are computed once."""

    def __init__(self) -> None:
        self.values: dict[Value, bytes] = {}
        self.operations: dict[ir.Operation, bytes] = {}
        self.texts: dict[ir.Attribute, str] = {}
        self.functions: dict[str, str] = {}

    def program(self, block: ir.Block) -> str:
        types = [str(argument.type) for argument in block.arguments]
        return _hash("program", types, [self.block(block, "in")]).hex()

    def block(self, block: ir.Block, prefix: str) -> bytes:
        for index, argument in enumerate(block.arguments):
            self.values[argument] = f"{prefix}{index}:{argument.type}".encode()
        effects: list[bytes] = []
        operations = [op.operation for op in block.operations]
        for op in operations:
            made = self.operation(op, prefix)
            if has_effect(op):
                effects.append(made)
        return _hash("block", [], [self.values[value] for value in operations[-1].operands] + effects)

    def operation(self, op: ir.Operation, prefix: str) -> bytes:
        regions = [self.block(block, f"{prefix}.") for region in op.regions for block in region.blocks]
        parts = [self.values[value] for value in op.operands]
        made = self.operations[op] = _hash(op.name, self.attributes(op), [*parts, b"|", *regions])
        for index, result in enumerate(op.results):
            self.values[result] = _hash("result", [str(index), str(result.type)], [made])
        return made

    def attributes(self, op: ir.Operation) -> list[str]:
        if op.name == "stablehlo.constant":
            return [self.constant(op)]
        found = sorted((name, self.text(value)) for name, value in op.attributes.items())
        if op.name == "stablehlo.composite":
            found = [
                (name, self.function(op, text) if name == "decomposition" else text) for name, text in found
            ]
        if has_custom_derivative(op):
            found = [entry for entry in found if entry[0] != "composite_attributes"] + self.derivative(op)
        return [f"{name}={text}" for name, text in found if text not in _DEFAULTS.get(name, ())]

    def derivative(self, op: ir.Operation) -> list[tuple[str, str]]:
        """The digests of the functions that are the derivative of a composite."""
        entries = ir.DictAttr(op.attributes["composite_attributes"])
        named = [entries[i] for i in range(len(entries))]
        return [
            (e.name, self.function(op, str(e.attr)))
            for e in named
            if isinstance(e.attr, ir.FlatSymbolRefAttr)
        ]

    def function(self, op: ir.Operation, symbol: str) -> str:
        """The digest of a function that a composite names."""
        if symbol not in self.functions:
            module = op
            while module.parent is not None:
                module = module.parent.operation
            entries = (entry.operation for entry in module.regions[0].blocks[0].operations)
            found = next(entry for entry in entries if f"@{symbol_name(entry)}" == symbol.replace('"', ""))
            self.functions[symbol] = block_digest(found.regions[0].blocks[0])
        return self.functions[symbol]

    def constant(self, op: ir.Operation) -> str:
        try:
            return self.text(op.attributes["value"])
        except TypeError:
            return complex_constant(op)

    def text(self, attribute: ir.Attribute) -> str:
        known = self.texts.get(attribute)
        if known is None:
            known = self.texts[attribute] = str(attribute)
        return known


def complex_constant(op: ir.Operation) -> str:
    """The text of a constant that cannot be read through the bindings, as those of complex numbers, without its name."""
    return str(op.get_asm(use_local_scope=True)).partition(" = ")[2]


def has_effect(op: ir.Operation) -> bool:
    """Whether an operation does something besides computing its results."""
    if op.name in _EFFECTS:
        return True
    return (
        op.name == "stablehlo.custom_call"
        and "has_side_effect" in op.attributes
        and flag_of(op.attributes["has_side_effect"])
    )


def _hash(name: str, texts: Iterable[str], parts: Iterable[bytes]) -> bytes:
    made = hashlib.sha256(name.encode())
    for text in texts:
        made.update(b"\0" + text.encode())
    for part in parts:
        made.update(b"\1" + part)
    return made.digest()
