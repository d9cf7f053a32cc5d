"""Attributes of operations as Python values, and what locations and symbols say."""

import functools
import re
from typing import cast

from pcp.ir.bindings import ir


def string_of(attribute: ir.Attribute) -> str:
    """The text of a string attribute.

    Raises:
        ValueError: it is an attribute of another kind.
    """
    return ir.StringAttr(attribute).value


def integer_of(attribute: ir.Attribute) -> int:
    """The number in an integer attribute.

    Raises:
        ValueError: it is an attribute of another kind.
    """
    return ir.IntegerAttr(attribute).value


def flag_of(attribute: ir.Attribute) -> bool:
    """The truth value of a boolean attribute.

    Raises:
        ValueError: it is an attribute of another kind.
    """
    return ir.BoolAttr(attribute).value


def integers_of(attribute: ir.Attribute) -> tuple[int, ...]:
    """The numbers in an attribute `array<i64>`.

    Raises:
        ValueError: it is an attribute of another kind.
    """
    return tuple(ir.DenseI64ArrayAttr(attribute))


def integer_elements(attribute: ir.Attribute) -> tuple[int, ...]:
    """The numbers in an attribute `dense<...>` of integers, in row-major order.

    Raises:
        ValueError: it is an attribute of another kind.
    """
    elements = ir.DenseIntElementsAttr(attribute)
    return tuple(int(elements[place]) for place in range(len(elements)))


@functools.cache
def dimension_numbers(text: str) -> dict[str, tuple[int, ...]]:
    """The fields of an attribute such as `#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>`."""
    fields = re.findall(r"(\w+) = (\[[^]]*\]|\d+)", text)
    return {name: tuple(int(n) for n in re.findall(r"\d+", value)) for name, value in fields}


def comparison_direction(op: ir.Operation) -> str:
    """What a comparison asks: `EQ`, `NE`, `LT`, `LE`, `GT` or `GE`."""
    return str(op.attributes["comparison_direction"]).rpartition(" ")[2].rstrip(">")


def symbol_name(function: ir.Operation) -> str:
    """The name under which a function is called."""
    return string_of(function.attributes["sym_name"])


def describe_location(location: ir.Location) -> str:
    """Where in the user's files an operation was made, `model.py:12, in loss`; empty if that is unknown."""
    name = ""
    while not isinstance(location, ir.FileLineColLoc):
        if isinstance(location, ir.NameLoc):
            name = location.name_str
            location = location.child_loc
        elif isinstance(location, ir.CallSiteLoc):  # what a call inlined: its own place, or that of the call
            return describe_location(location.callee) or describe_location(location.caller)
        elif isinstance(location, ir.FusedLoc) and location.locations:
            location = cast(ir.Location, location.locations[0])
        else:
            return f"in {name}" if name else ""
    return f"{location.filename}:{location.start_line}" + (f", in {name}" if name else "")
