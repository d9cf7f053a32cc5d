"""Sums of columns: what a program makes of a tensor's rows where it differentiates a bias.

A kernel that has the rows at hand adds them up on the way. Else they are read once more for that.
"""

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import result_owner, users_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.view import View
from pcp.tensor import Tensor


def column_sums(x: Value) -> list[ir.Operation]:
    """The operations that add up a tensor along all axes but the last."""
    rank = len(spec_of(x.type).shape)
    sums = []
    for user in users_of(result_owner(x)):
        if user.name != "stablehlo.reduce" or user.operands[0] != x:
            continue
        is_of_rows = integers_of(user.attributes["dimensions"]) == tuple(range(rank - 1))
        if is_of_rows and View(user.results[0], (rank - 1,)).reduced("add", rank) is not None:
            sums.append(user)
    return sums


def replace_column_sums(sums: list[ir.Operation], total: Tensor) -> None:
    """Put a tensor in the place of these sums."""
    for op in sums:
        op.results[0].replace_all_uses_with(total.value)
