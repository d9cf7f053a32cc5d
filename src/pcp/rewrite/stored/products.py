"""Values of a program that are kept in fewer bits: rounded where they are made, widened where they are read.

What a compiler writes to memory is, above all, what products read and what they make. A product whose operands are kept in
fewer bits multiplies these, and adds up in the element type that it had.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, DType, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.dataflow import defining_op, has_single_use, result_owner
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import mlir_type, spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ir.types import TensorSpec
from pcp.ops.elementwise import convert
from pcp.ops.record import is_bilinear
from pcp.tensor import Tensor, building

FACTORS, RESULTS = "factors", "results"
"""What products read, and what they make that no other product reads."""

LEAST = 1 << 14
"""Elements of the largest tensor of a product whose values count: of smaller ones nothing is gained."""
MOVES = ("stablehlo.transpose", "stablehlo.reshape")
"""Operations behind which a value is the same."""


@dataclass(frozen=True, slots=True)
class ProductClass:
    """Products of a program that read and make values of the same classes.

    Arguments:
        factors: names of the classes that they read: `factors 64x32`.
        result: that of what they make; empty where another product reads it.
        count: how many there are.
        bytes: of what they read and make, in float32.
    """

    factors: tuple[str, ...]
    result: str
    count: int
    bytes: int


def products_in(program: Program) -> list[ProductClass]:
    """The classes of a program's products of float32 whose values may be kept in fewer bits, the largest first."""
    _module, block = opened(program)  # operations do not outlive it
    classes: dict[tuple[tuple[str, ...], str], list[int]] = {}
    roles = _roles(products := _products(block))
    for op in products:
        factors = tuple(dict.fromkeys(_name(FACTORS, _origin(value)) for value in op.operands))
        (result,) = op.results
        made = _name(RESULTS, result) if roles[result] is RESULTS else ""
        size = sum(spec_of(value.type).size * 4 for value in (*op.operands, result))
        classes.setdefault((factors, made), []).append(size)
    found = [ProductClass(*names, len(sizes), sum(sizes)) for names, sizes in classes.items()]
    return sorted(found, key=lambda each: (-each.bytes, each.factors))


def stored(program: Program, storages: Mapping[str, DType]) -> Program:
    """The program that keeps values in other element types.

    A value that the program is given is not written again: products alone read it in fewer bits.

    Arguments:
        storages: the element type for classes of values, by their names, or for all classes of a role that are not named. What
            the program does not have is left out.
    """
    module, block = opened(program)
    named = [(value, role, _name(role, value)) for value, role in _roles(_products(block)).items()]
    chosen = [
        (value, storages[key])
        for value, role, name in named
        if (key := name if name in storages else role) in storages
    ]
    with context(), ir.Location.unknown(), building(Builder(module, block)) as builder:
        for value, dtype in chosen:
            _round(value, dtype, builder)
        for op in _products(block):
            _narrow(op, builder)
    erase_dead(block)
    return Program.from_module(module)


def is_constrained(op: ir.Operation) -> bool:
    """Whether the program itself says how precise a product has to be."""
    precision = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
    return "algorithm" in op.attributes or "HIGH" in precision


def opened(program: Program) -> tuple[ir.Module, ir.Block]:
    """The module of a program without calls, which its operations do not outlive, and the block of its `main`."""
    module = program.module()
    inline_calls(module)
    return module, entry_block(module)


def _products(block: ir.Block) -> list[ir.Operation]:
    """The products of float32 that are large enough, and whose precision the program leaves open."""
    return [
        op
        for op in walk_block(block)
        if is_bilinear(op.name)
        and not is_constrained(op)
        and all(is_f32(value) for value in (*op.operands, *op.results))
        and max(spec_of(value.type).size for value in (*op.operands, *op.results)) >= LEAST
    ]


def is_f32(value: Value) -> bool:
    """Whether it is a tensor of float32."""
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.dtype is DType.f32


def _roles(products: Sequence[ir.Operation]) -> dict[Value, str]:
    """What products do with the values that they read and make."""
    roles = {_origin(value): FACTORS for op in products for value in op.operands}
    return roles | {value: RESULTS for op in products for value in op.results if value not in roles}


def _name(role: str, value: Value) -> str:
    """Of the class of a value."""
    return f"{role} {'x'.join(map(str, spec_of(value.type).shape))}"


def _origin(value: Value) -> Value:
    """What a value is that was moved."""
    op = defining_op(value)
    while op is not None and op.name in MOVES:
        value = op.operands[0]
        op = defining_op(value)
    return value


def _round(value: Value, dtype: DType, builder: Builder) -> None:
    """Let what reads a value read it rounded; of an argument, products alone."""
    maker = defining_op(value)
    readers = list(_readers_in_products(value) if maker is None else _readers(value))
    with builder.before(first_of(value.owner) if maker is None else maker):
        narrow = convert(Tensor(value, builder), dtype)
        wide = convert(narrow, DType.f32).value
    if maker is not None:
        for value_of in (wide, narrow.value):
            result_owner(value_of).move_after(maker)
    for reader, place in readers:
        reader.operands[place] = wide


def first_of(block: object) -> ir.Operation:
    """The operation that stands first in a block."""
    assert isinstance(block, ir.Block)
    return next(iter(block.operations)).operation


def _readers(value: Value) -> Iterator[tuple[ir.Operation, int]]:
    for use in value.uses:
        yield use.owner.operation, use.operand_number


def _readers_in_products(value: Value) -> Iterator[tuple[ir.Operation, int]]:
    """The readers from which products have it, perhaps moved."""
    for reader, place in _readers(value):
        if is_bilinear(reader.name) or (
            reader.name in MOVES and any(_readers_in_products(reader.results[0]))
        ):
            yield reader, place


def _narrow(op: ir.Operation, builder: Builder) -> None:
    """Let a product of widened numbers multiply what they were widened from."""
    with builder.before(op):
        operands = [each for value in op.operands if (each := _as_stored(value, builder)) is not None]
    dtypes = {spec_of(value.type).dtype for value in operands}
    if len(operands) < len(op.operands) or len(dtypes) > 1:
        return
    for place, value in enumerate(operands):
        op.operands[place] = value
    (result,) = op.results
    reader = next(iter(result.uses)).owner.operation if has_single_use(result) else None
    if reader is None or reader.name != "stablehlo.convert":
        return
    narrow = reader.results[0]
    if spec_of(narrow.type).dtype in dtypes:
        result.set_type(narrow.type)
        narrow.replace_all_uses_with(result)


def _as_stored(value: Value, builder: Builder) -> Value | None:
    """The numbers that a tensor was widened from, moved as it is; None if it was not."""
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "stablehlo.convert":
        source: Value = op.operands[0]
        return source if _is_narrow(source) else None
    if op.name not in MOVES:
        return None
    narrow = _as_stored(op.operands[0], builder)
    if narrow is None:
        return None
    copy = op.clone(ip=builder.insertion)
    copy.operands[0] = narrow
    moved: Value = copy.results[0]
    moved.set_type(mlir_type(TensorSpec(spec_of(moved.type).shape, spec_of(narrow.type).dtype)))
    return moved


def _is_narrow(value: Value) -> bool:
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.dtype.kind == "float" and spec.dtype.itemsize < DType.f32.itemsize
