"""Operations that a compiler refuses, or gets wrong, written in other forms."""

from collections.abc import Callable

from pcp.ir import Builder
from pcp.ir.bindings import ir
from pcp.ir.toolkit.walking import every_operation
from pcp.tensor import Tensor, building

Applies = Callable[[ir.Operation], bool]
Form = Callable[..., Tensor]
"""From an operation and its operands to what stands for its result, which is built before it."""


def rewrite_each(module: ir.Module, applies: Applies, form: Form) -> bool:
    """Write, in place, every operation that a form is for in that form; returns whether there are any."""
    concerned = every_operation(module.operation, applies)
    for op in concerned:
        builder = Builder(module, ir.InsertionPoint(op).block)
        builder.pinned = op.location
        with building(builder), builder.before(op), op.location, ir.InsertionPoint(op):
            written = form(op, *(Tensor(value, builder) for value in op.operands))
        op.results[0].replace_all_uses_with(written.value)
        op.erase()
    return bool(concerned)
