"""Constants whose elements stand apart from the program, in a table of named blobs, as torch-mlir writes them.

XLA does not read them, and their names say nothing of what they hold. So they are written into the program when it is read.
"""

import re
from typing import Any

import numpy as np

from pcp.ir.bindings import InvalidProgram, context, ir
from pcp.ir.toolkit.walking import every_operation

_NAMES = 6  # the number of the section of MLIR bytecode that names blobs; with none, it is one byte long
_NAME = re.compile(r'dense_resource<("(?:[^"\\]|\\.)*"|[^>]*)> : (tensor<.*>)$', re.DOTALL)
_COMPLEX: dict[str, Any] = {"complex<f32>": np.complex64, "complex<f64>": np.complex128}
_AGAIN = "export the program again with all its constants, or with smaller ones in the text itself"


class MissingConstant(InvalidProgram):
    """A constant whose elements are not in the file, or not all of them."""


def has_resources(bytecode: bytes) -> bool:
    """Whether a module, given as bytecode that MLIR wrote here, names blobs for elements of constants."""
    place = bytecode.index(b"\0", 4) + 1  # behind the magic word, the version and the producer
    while place < len(bytecode):
        section, place = bytecode[place], place + 1
        length, place = _number(bytecode, place)
        if section & 0x80:
            alignment, place = _number(bytecode, place)
            place += -place % alignment
        if section & 0x7F == _NAMES and length > 1:
            return True
        place += length
    return False


def _number(raw: bytes, place: int) -> tuple[int, int]:
    """A number of variable length, in which zeros at the low end of the first byte count the bytes that follow; and its end."""
    first = raw[place]
    more = 8 if first == 0 else (first & -first).bit_length() - 1
    whole = int.from_bytes(raw[place : place + more + 1], "little")
    return (whole >> 8 if more == 8 else whole >> (more + 1)), place + more + 1


def inline_resources(module: ir.Module) -> None:
    """Write the elements of blobs into the constants that name them, in place.

    Raises:
        MissingConstant: a blob is absent, or has more or fewer bytes than its constant.
    """
    blobs: list[tuple[ir.Operation, str, ir.Attribute]] = []

    for op in every_operation(module.operation):
        for name in op.attributes:
            try:
                attribute = op.attributes[name]
            except TypeError:  # a constant of complex numbers, which the bindings do not read
                continue
            if not isinstance(attribute, ir.DenseElementsAttr) and str(attribute).startswith(
                "dense_resource<"
            ):
                blobs.append((op, name, attribute))
    inlined: dict[ir.Attribute, ir.Attribute] = {}
    for op, name, attribute in blobs:
        if attribute not in inlined:
            inlined[attribute] = _inlined(attribute)
        op.attributes[name] = inlined[attribute]


def _inlined(attribute: ir.Attribute) -> ir.Attribute:
    name, type_ = _named(attribute)
    elements = _elements(attribute, name, type_)
    with context():
        shaped = ir.ShapedType(ir.Type.parse(type_))
        count, size = _count(shaped), _element_bytes(str(shaped.element_type))
        if len(elements) != count * size:
            raise MissingConstant(
                f"the constant {name} of the program is {type_}, which takes {count * size} bytes; its data has "
                f"{len(elements)}; {_AGAIN}"
            )
        if str(shaped.element_type) == "i1":
            elements = bytes(map(bool, elements))
        if str(shaped.element_type) in _COMPLEX:  # the bindings do not parse these
            array: Any = np.frombuffer(elements, _COMPLEX[str(shaped.element_type)])
            sizes = [shaped.get_dim_size(axis) for axis in range(shaped.rank)]
            return ir.DenseElementsAttr.get(array, type=shaped.element_type, shape=sizes)
        text = f'"0x{elements.hex()}"' if elements else ""
        dense: ir.Attribute = ir.Attribute.parse(f"dense<{text}> : {type_}")
        return dense


def _named(attribute: ir.Attribute) -> tuple[str, str]:
    parts = _NAME.fullmatch(str(attribute))
    if parts is None:
        raise MissingConstant(
            f"a constant of the program is {str(attribute)[:200]}, which is no tensor; {_AGAIN}"
        )
    return parts[1], parts[2]


def _elements(attribute: ir.Attribute, name: str, type_: str) -> bytes:
    """What the blob holds, behind the four bytes that say how it is aligned; the bindings only print it."""
    with context(), ir.Location.unknown():
        holder = ir.Module.create()
        holder.operation.attributes["pcp.blob"] = attribute
        _, section, table = str(holder).rpartition("dialect_resources")
        _, printed, rest = table.rpartition(': "0x')
    if not section or not printed:
        raise MissingConstant(
            f"the constant {name} of the program, {type_}, has no data in the file: it was left out when the program was "
            f"written; {_AGAIN}"
        )
    return bytes.fromhex(rest.partition('"')[0])[4:]


def _count(shaped: ir.ShapedType) -> int:
    count = 1
    for axis in range(shaped.rank):
        count *= shaped.get_dim_size(axis)
    return count


def _element_bytes(element: str) -> int:
    """Bytes of an element in memory; those of less than eight bits take a whole one."""
    inner = element.removeprefix("complex<")
    bits = re.search(r"\d+", inner)
    each = -(-int(bits[0]) // 8) if bits else 8  # `index` has none
    return each * (2 if inner != element else 1)
