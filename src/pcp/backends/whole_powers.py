"""Powers of integers, which XLA gets wrong: of an exponent it reads the lowest six bits, so that 0 ** 64 is 1 (jaxlib 0.10.2).

Written out they are products modulo 2^bits for every exponent. What XLA would make of a negative exponent depends on whether it
sees it while compiling; here it is what `pcp.power` says.
"""

from pcp.backends.rewritten import rewrite_each
from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import bitwise_and, bitwise_or, equal, less, multiply, not_equal, where
from pcp.ops.movement import full
from pcp.tensor import Tensor


def with_whole_powers(program: Program) -> Program:
    """The program with every power of integers written as products."""
    if b"power" not in program.bytecode:
        return program
    module = program.module()
    with context():
        has_powers = rewrite_each(module, is_whole_power, written)
    return Program.from_module(module) if has_powers else program


def is_whole_power(op: ir.Operation) -> bool:
    """Whether an operation is a power of integers."""
    return op.name == "stablehlo.power" and spec_of(op.results[0].type).dtype.is_integer


def written(op: ir.Operation, x: Tensor, y: Tensor) -> Tensor:
    """A power of integers as products, by squaring."""
    exponent, is_signed = splat_number(op.operands[1]), x.dtype.kind == "signed"
    known = exponent if isinstance(exponent, int) and exponent >= 0 else None
    product, square = full(x.shape, 1, x.dtype), x
    for bit in range(x.dtype.bits - is_signed if known is None else known.bit_length()):
        square = multiply(square, square) if bit else x
        if known is None:
            product = where(not_equal(bitwise_and(y, 1 << bit), 0), multiply(product, square), product)
        elif known >> bit & 1:
            product = multiply(product, square)
    if known is not None or not is_signed:
        return product
    odd, unit = not_equal(bitwise_and(y, 1), 0), bitwise_or(equal(x, 1), equal(x, -1))
    return where(less(y, 0), where(unit, where(odd, x, 1), 0), product)
