"""Gradients that are zero in exact arithmetic are written as zero.

A bias of all keys of attention shifts every score of a query alike, which softmax does not see; a bias before a normalisation
of batches is taken off with their mean. The gradients of such parameters are sums whose terms cancel, so what is computed is
rounding alone, and an optimizer that divides by the size of gradients makes an update of it that is as large as any other.

`sums` says which sums of a program's values vanish, `polynomials` which of elementwise expressions do.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ops.movement import concatenate, reshape, zeros
from pcp.ops.movement.joining import narrow
from pcp.rewrite.vanishing.sums import Places, Sums, is_sum
from pcp.tensor import Tensor, building

_LINEAR = tuple(
    f"stablehlo.{name}"
    for name in (
        *(
            "add",
            "subtract",
            "negate",
            "convert",
            "multiply",
            "divide",
            "reshape",
            "transpose",
            "broadcast_in_dim",
        ),
        *("concatenate", "pad", "slice", "dynamic_update_slice", "optimization_barrier"),
    )
)
"""What may stand between a sum and the gradient that it is, or is a part of."""


def without_vanishing_sums(program: Program, first: int = 0, *, everywhere: bool = False) -> Program:
    """The program with zeros for sums, and parts of sums, that are zero in exact arithmetic, where gradients are made of them.

    Arguments:
        program: any Program; it stays as it is.
        first: the first result that is a gradient.
        everywhere: whether all sums of the program are looked at, as gradients may be anywhere in it; otherwise those that the
            gradients are made of by linear operations.

    Returns:
        A Program with the same arguments and results; the given one if no such sum is found.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    sums = Sums()
    # All are found before one is replaced: what is known of values holds while the program does not change.
    looked_at = (
        filter(is_sum, block_operations(block)) if everywhere else _sums_behind(returned_by(block)[first:])
    )
    vanishing = [(op, places) for op in looked_at if (places := _zeros(sums, op)).any()]
    if not vanishing:
        return program
    with context(), building(Builder(module, block)) as builder:
        for op, places in vanishing:
            with builder.before(op):
                builder.pinned = op.location
                total = Tensor(op.clone(ip=builder.insertion).results[0], builder)
                op.results[0].replace_all_uses_with(_with_zeros(total, places).value)
        builder.pinned = None
    del op, sums, vanishing  # no Python object may stand for what is erased now
    erase_dead(block)
    return Program.from_module(module)


def _sums_behind(values: list[Value]) -> Iterator[ir.Operation]:
    """The sums that values are made of by linear operations, each once, also in the bodies of loops."""
    waiting, seen = list(values), set(values)
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None:
            continue
        if is_sum(op):
            yield op
        before: list[Value] = list(op.operands) if op.name in _LINEAR or is_sum(op) else []
        if op.name == "stablehlo.while":
            place = ir.OpResult(value).result_number
            before = [op.operands[place], returned_by(op.regions[1].blocks[0])[place]]
        new = [each for each in before if each not in seen]
        seen.update(new)
        waiting += new


def _zeros(sums: Sums, op: ir.Operation) -> Places:
    return sums.zeros(op.operands[0], frozenset(integers_of(op.attributes["dimensions"])))


def _with_zeros(total: Tensor, places: Places) -> Tensor:
    """A tensor with zeros in places, which repeat as the layout of heads does."""
    flat = places.reshape(-1)
    if flat.all():
        return zeros(total.shape, total.dtype)
    lengths = (length for length in range(1, flat.size + 1) if flat.size % length == 0)
    length = next(each for each in lengths if (flat.reshape(-1, each) == flat[:each]).all())
    rows = reshape(total, (flat.size // length, length))
    ends = [0, *(np.flatnonzero(np.diff(flat[:length])) + 1).tolist(), length]
    parts = [
        zeros((rows.shape[0], stop - start), total.dtype) if flat[start] else narrow(rows, 1, start, stop)
        for start, stop in itertools.pairwise(ends)
    ]
    return reshape(concatenate(parts, 1), total.shape)
