"""Cutting a deep program into segments of which many are equal, so that a compiler sees each kind once.

Compiling takes as long as a program is long, though the layers of a deep one are the same operations on the same shapes. In its
sequence of operations every layer repeats the one before; there it is cut, and again where the gradients of the layers repeat,
and the updates of their parameters.
"""

import functools
from collections.abc import Iterable
from itertools import pairwise

from pcp.autodiff.flops import flops_of
from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.pieces import Body, Cutter, Segments
from pcp.rewrite.repeats import Repeat, repeats

WORTHWHILE = 1500
"""A program is cut if so many of its operations repeat others; each takes about a millisecond to compile."""
LEAST_FLOPS = 1e8
"""Floating-point operations of a segment, on average: calling one takes as long as a tenth of them."""
SHORTEST = 10
"""Operations of a period; what repeats sooner is not cut."""
LEAST_LENGTH = 60
"""Operations of a segment that repeats; where a period is shorter, several are one segment."""


@functools.lru_cache(maxsize=4)
def segments(program: Program, is_called_often: bool = True) -> Segments | None:
    """A program in segments; None if little of it repeats, or it does too little for being called piece by piece.

    Arguments:
        program: any; it stays as it is.
        is_called_often: whether what it does matters; else it is cut however little that is.
    """
    module = program.module()
    flatten(module)
    inline_calls(module)
    if len(list(module.body.operations)) > 1:  # functions that some operation names
        return None
    block = entry_block(module)
    operations, returned = block_operations(block), returned_by(block)
    if len(operations) < WORTHWHILE or not _can_be_cut(block, operations):
        return None
    body = Body(block, operations, returned)
    repeated = repeats([each.kind for each in body.sequence], SHORTEST)
    if sum(each.saved for each in repeated) < WORTHWHILE:
        return None
    ranges = list(pairwise(sorted({0, len(body.sequence)}.union(*(_cuts(body, each) for each in repeated)))))
    if is_called_often and sum(map(flops_of, operations)) < LEAST_FLOPS * len(ranges):
        return None
    with context():
        cut = Cutter(program, body).segments(ranges)
    different = {each.program: stop - start for each, (start, stop) in zip(cut.sequence, ranges, strict=True)}
    return cut if len(body.sequence) - sum(different.values()) >= WORTHWHILE else None


def _can_be_cut(block: ir.Block, operations: Iterable[ir.Operation]) -> bool:
    """Whether every operation does nothing but compute arrays from arrays.

    An `rng` draws other numbers wherever it stands; equal segments are one executable, of which that is not known.
    """
    return all(
        spec_if_tensor(value.type) is not None for op in operations for value in op.results
    ) and not any(op.name == "stablehlo.rng" or has_effect(op) for op in walk_block(block))


def _cuts(body: Body, repeat: Repeat) -> range:
    """The places at which a stretch that repeats is cut."""
    periods = -(-LEAST_LENGTH // repeat.period)
    return range(begin_of(body, repeat), repeat.stop + 1, periods * repeat.period)


def begin_of(body: Body, repeat: Repeat) -> int:
    """The first place at which a stretch that repeats is best cut: the fewest bytes pass there from one period to the next."""
    starts = range(repeat.start, repeat.start + repeat.period)
    return min(starts, key=lambda start: _passed(body, start, repeat.period))


def _passed(body: Body, start: int, period: int) -> int:
    """Bytes that are made in the period from a place on, and read in the next."""
    following = range(start + period, start + 2 * period)
    numbers = (number for op in body.sequence[start : start + period] for number in op.makes)
    read = (n for n in numbers if any(place in following for place in body.readers.get(n, ())))
    return sum(spec_of(body.values[number].type).bytes for number in read)
