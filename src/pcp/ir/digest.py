"""The identity of a program: a Merkle digest over its dataflow.

A value is what computes it: the operation's name, its attributes, the digests of its operands and of its regions. So names,
locations, the order of independent operations, dead code and calls leave no trace, and neither does the version of a library,
because attributes that stand at their default are left out. A composite is what it decomposes into, an operation of CHLO what
it is made of in StableHLO, so a program that was saved and loaded is still the same. What an attribute names, as the
derivative of a composite or the body of a custom call, counts by what it computes, not by its name.
"""

import hashlib
import re
from collections.abc import Generator, Iterable
from typing import Any

from pcp.ir.bindings import Value, context, ir, parse_module
from pcp.ir.toolkit.attributes import flag_of, symbol_name
from pcp.ir.toolkit.inlining import inline_calls, inline_composites, names_functions
from pcp.ir.toolkit.legalisation import legalise_chlo

# Attributes that one form of a program has and another has not; each says nothing where the whole of it is this.
_DEFAULTS = {
    name: re.compile(pattern)
    for name, pattern in {
        "precision_config": r"\[(#stablehlo<precision DEFAULT>(, )?)*\]",
        "result_accuracy": r"#stablehlo\.result_accuracy<mode = #stablehlo\.result_accuracy_mode<DEFAULT>>",
        "indices_are_sorted": "false",
        "unique_indices": "false",
        "is_stable": "false",
        "is_host_transfer": "false",
        "has_side_effect": "false",
        "lower": "false",
        "backend_config": '""',
        "infeed_config": '""',
        "outfeed_config": '""',
        "called_computations": r"\[\]",
        "output_operand_aliases": r"\[\]",
        "composite_attributes": r"\{\}",
        "version": "0 : i32",
        "api_version": "1 : i32",
        "window_strides": "array<i64(: 1(, 1)*)?>",
        "base_dilations": "array<i64(: 1(, 1)*)?>",
        "window_dilations": "array<i64(: 1(, 1)*)?>",
        "lhs_dilation": "array<i64(: 1(, 1)*)?>",
        "rhs_dilation": "array<i64(: 1(, 1)*)?>",
        "window_reversal": "array<i1(: false(, false)*)?>",
        "padding": "dense<0?> : .*",
        # The element type of the operands says which of these it is.
        "compare_type": "#stablehlo<comparison_type (NOTYPE|FLOAT|SIGNED|UNSIGNED)>",
    }.items()
}
# The operation and `is_host_transfer` say from where to where a channel leads; portable artifacts do not say it again.
_CHANNEL = re.compile(r"(?<=#stablehlo\.channel_handle<handle = )(\d+), type = \d+")
_OUTSIDE = ("stablehlo.outfeed", "stablehlo.send", "stablehlo.infeed", "stablehlo.recv")
_DRAWS = ("stablehlo.rng",)


def digest_of(bytecode: bytes) -> str:
    """The digest, in hexadecimal, of the program in a module given as bytecode.

    Raises:
        InvalidProgram: a function calls itself, directly or not.
    """
    module = parse_module(bytecode)
    inline_composites(module, keep=names_functions)
    inline_calls(module)
    if b"chlo" in bytecode:
        legalise_chlo(module)
    main = _main(module)
    with context():
        return _Merkle().program(main.regions[0].blocks[0])


def operation_digests(module: ir.Module) -> dict[ir.Operation, str]:
    """The digest of every operation under `main`, from what it computes: equal for operations that compute the same.

    Calls must be inlined; a composite is known by its name and its function. Values in a region are known by the place of the
    region's arguments, so equal bodies of two loops have equal digests.
    """
    main = _main(module)
    merkle = _Merkle()
    with context():
        merkle.program(main.regions[0].blocks[0])
    return {op: digest.hex() for op, digest in merkle.operations.items()}


def block_digest(block: ir.Block) -> str:
    """The digest of the body of a function, in the current context."""
    return _Merkle().program(block)


def _main(module: ir.Module) -> ir.Operation:
    functions = (op.operation for op in module.body.operations if op.operation.name == "func.func")
    return next(function for function in functions if symbol_name(function) == "main")


Part = Generator[Any, Any, Any]
"""A step of the walk: it yields further steps and is sent what they return, so that depth takes no stack."""


def _walked(step: Part) -> Any:
    """What a step returns, by way of those that it yields."""
    open_steps, returned = [step], None
    while open_steps:
        try:
            open_steps.append(open_steps[-1].send(returned))
            returned = None
        except StopIteration as end:
            open_steps.pop()
            returned = end.value
    return returned


class _Merkle:
    """One walk over a program; digests of values and texts of attributes are computed once."""

    def __init__(self) -> None:
        self.values: dict[Value, bytes] = {}
        self.operations: dict[ir.Operation, bytes] = {}
        self.texts: dict[ir.Attribute | ir.Type, str] = {}
        self.symbols: dict[str, ir.Operation] | None = None
        self.functions: dict[str, bytes] = {}
        self.open_functions: list[str] = []
        self.outermost = 0

    def program(self, block: ir.Block) -> str:
        digest: bytes = _walked(self.function_body(block))
        return digest.hex()

    def function_body(self, block: ir.Block) -> Part:
        types = [self.text(argument.type) for argument in block.arguments]
        body, _ = yield self.block(block, "in")
        return _hash("program", types, [body])

    def block(self, block: ir.Block, prefix: str) -> Part:
        """The digest of a block, and whether anything in it does something besides computing its results."""
        for index, argument in enumerate(block.arguments):
            self.values[argument] = f"{prefix}{index}:{self.text(argument.type)}".encode()
        effects: list[bytes] = []
        seen: dict[bytes, int] = {}
        operations = [op.operation for op in block.operations]
        for op in operations:
            parts, effect = [self.values[value] for value in op.operands], has_effect(op)
            regions: list[bytes] = []
            for region in op.regions:
                for inner in region.blocks:
                    digest, inside = yield self.block(inner, f"{prefix}.")
                    regions.append(digest)
                    effect = effect or inside
            attributes = yield self.attributes(op)
            own = _hash(op.name, attributes, [*parts, b"|", *regions])
            if effect or op.name in _DRAWS:  # twice is not the same as once
                seen[own] = seen.get(own, 0) + 1
                own = _hash("again", [str(seen[own])], [own])
            if effect:
                effects.append(own)
            self.operations[op] = own
            for index, result in enumerate(op.results):
                self.values[result] = _hash("result", [str(index), self.text(result.type)], [own])
        returned = [self.values[value] for value in operations[-1].operands] if operations else []
        return _hash("block", [], [*returned, b"|", *effects]), bool(effects)

    def attributes(self, op: ir.Operation) -> Part:
        if op.name == "stablehlo.constant":
            return [self.constant(op)]
        texts = []
        for name, attribute in op.attributes.items():
            text = self.text(attribute)
            default = _DEFAULTS.get(name)
            if default is None or not default.fullmatch(text):
                if "@" in text:
                    text = yield self.with_functions(op, attribute)
                elif name == "channel_handle":
                    text = _CHANNEL.sub(r"\1", text)
                texts.append(f"{name}={text}")
        return sorted(texts)

    def with_functions(self, op: ir.Operation, attribute: ir.Attribute) -> Part:
        """The text of an attribute in which functions stand for their names."""
        parts: list[str] = []
        if isinstance(attribute, ir.SymbolRefAttr | ir.FlatSymbolRefAttr):
            digest = yield self.symbol(op, self.text(attribute))
            return digest.hex()
        if isinstance(attribute, ir.ArrayAttr):
            for entry in attribute:
                parts.append((yield self.with_functions(op, entry)))
            return f"[{', '.join(parts)}]"
        if isinstance(attribute, ir.DictAttr):
            for index in range(len(attribute)):
                inner = yield self.with_functions(op, attribute[index].attr)
                parts.append(f"{attribute[index].name} = {inner}")
            return f"{{{', '.join(parts)}}}"
        return self.text(attribute)

    def symbol(self, op: ir.Operation, text: str) -> Part:
        """The digest of what a symbol names; its text where it names nothing that computes."""
        name = text.partition("::")[0].removeprefix("@").strip('"')
        if name in self.functions:
            return self.functions[name]
        if name in self.open_functions:  # a derivative that uses the function whose derivative it is
            place = self.open_functions.index(name)
            self.outermost = min(self.outermost, place)
            return _hash("open", [str(len(self.open_functions) - place)], [])
        definition = self.named(op, name)
        if definition is None or definition.name != "func.func" or not list(definition.regions[0].blocks):
            return _hash("symbol", [text, str(definition and definition.attributes.get("function_type"))], [])
        place, outer, self.outermost = len(self.open_functions), self.outermost, len(self.open_functions)
        self.open_functions.append(name)
        digest: bytes = yield self.function_body(definition.regions[0].blocks[0])
        self.open_functions.pop()
        if self.outermost >= place:  # it refers to none of those that are still open
            self.functions[name] = digest
        self.outermost = min(outer, self.outermost)
        return digest

    def named(self, op: ir.Operation, name: str) -> ir.Operation | None:
        if self.symbols is None:
            module = op
            while module.parent is not None:
                module = module.parent.operation
            entries = [entry.operation for entry in module.regions[0].blocks[0].operations]
            self.symbols = {symbol_name(entry): entry for entry in entries if "sym_name" in entry.attributes}
        return self.symbols.get(name)

    def constant(self, op: ir.Operation) -> str:
        try:
            return self.text(op.attributes["value"])
        except TypeError:
            return complex_constant(op)

    def text(self, entry: ir.Attribute | ir.Type) -> str:
        known = self.texts.get(entry)
        if known is None:
            known = self.texts[entry] = str(entry)
        return known


def complex_constant(op: ir.Operation) -> str:
    """The text of a constant that cannot be read through the bindings, as those of complex numbers, without its name."""
    return str(op.get_asm(use_local_scope=True)).partition(" = ")[2]


def has_effect(op: ir.Operation) -> bool:
    """Whether an operation does something besides computing its results."""
    if op.name in _OUTSIDE:
        return True
    return (
        op.name == "stablehlo.custom_call"
        and "has_side_effect" in op.attributes
        and flag_of(op.attributes["has_side_effect"])
    )


def _hash(name: str, texts: Iterable[str], parts: Iterable[bytes]) -> bytes:
    """Of a name, texts and digests, each with its length, so that no two lists of them read alike."""
    sha256 = hashlib.sha256()
    for mark, content in ((b"n", [name.encode()]), (b"t", [text.encode() for text in texts]), (b"p", parts)):
        for entry in content:
            sha256.update(mark + len(entry).to_bytes(8, "little") + entry)
    return sha256.digest()
