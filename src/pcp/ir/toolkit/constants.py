"""Constants whose elements are all one number."""

import functools

from pcp.ir.bindings import Value, ir


def splat_of(attribute: ir.Attribute) -> float | int | None:
    """The number that all elements of a constant are, from its attribute `value`; None if they differ or are complex."""
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    number = attribute.get_splat_value()
    return number.value if isinstance(number, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr) else None


def splat_number(value: Value) -> float | int | None:
    """The number that every element of a value is, if it is a constant or a broadcast of one; else None."""
    # Most values are no constants, and this is asked more often than anything else.
    owner = value.owner
    while not isinstance(owner, ir.Block):
        op = owner.operation
        if op.name == "stablehlo.constant":
            return None if _is_complex(op.results[0].type) else splat_of(op.attributes["value"])
        if op.name != "stablehlo.broadcast_in_dim":
            return None
        owner = op.operands[0].owner
    return None


@functools.cache
def _is_complex(type_: ir.Type) -> bool:
    """Whether a type is of complex numbers, whose constants the bindings cannot read."""
    return "complex" in str(type_)
