"""Taps: values inside a program that a Plan can be asked to show."""

from pcp.ir.bindings import ir
from pcp.tensor import Tensor, TensorLike, as_tensor, emit, export_operations, operation

TAP = "pcp.tap"


@operation
def tap(label: str, x: TensorLike) -> Tensor:
    """x itself, marked, so that a plan made with `pcp.plan(program, taps=print)` shows it under `label` after every call.

    The mark is an attribute on a reshape to the same shape: it costs nothing in other plans, derivatives pass through, and it
    travels with the program. Use what it returns: a tap whose result nothing uses is dead code, and may be left out.
    Inside of a loop, a branch or a reducer a tap shows nothing.

    Arguments:
        label: any text.
        x: any tensor.
    """
    tensor = as_tensor(x)
    return emit("reshape", (tensor,), (tensor.spec,), {TAP: ir.StringAttr.get(label)})


export_operations(__name__)
