"""Cutting a program into pieces that touch few bytes each, equal ones where it repeats, so that each kind is compiled once.

A deep program is cut between its layers first, and between the gradients of the layers, and the updates of their parameters.
Layers that touch little stand in one piece, as many as fit; one that touches much is cut inside, each in the same places.
"""

from collections.abc import Iterator
from itertools import pairwise

from pcp.ir import Program
from pcp.ir.bindings import context
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.pieces import Body, Cutter, Segments
from pcp.rewrite.regions import check_divisible, opened
from pcp.rewrite.repeats import Repeat, repeats
from pcp.rewrite.segments import SHORTEST, begin_of


def portions(program: Program, most: int) -> Segments:
    """A program in pieces that touch few bytes each; an operation that touches more is a piece of its own.

    Arguments:
        program: any.
        most: bytes of arrays that the operations of a piece read and make, all of them together.

    Raises:
        NotDivisible: as `pcp.rewrite.regions`.
    """
    module = opened(program)
    block = entry_block(module)
    check_divisible(module)
    body = Body(block, block_operations(block), returned_by(block))
    repeated = repeats([each.kind for each in body.sequence], SHORTEST)
    edges = {0, len(body.sequence)}.union(*(_edges(body, each, most) for each in repeated))
    ranges = [piece for start, stop in pairwise(sorted(edges)) for piece in _small(body, start, stop, most)]
    with context():
        return Cutter(program, body).segments(ranges, lambda _: False)


def _edges(body: Body, repeat: Repeat, most: int) -> range:
    """Where a stretch that repeats is cut: after as many periods as touch few bytes together, or after each."""
    start = begin_of(body, repeat)
    _, first = next(_small(body, start, repeat.stop, most))
    periods = max(1, (first - start) // repeat.period)
    return range(start, repeat.stop + 1, periods * repeat.period)


def _small(body: Body, start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """The pieces of a stretch, each as long as it touches few bytes."""
    touched: dict[int, int] = {}
    for place in range(start, stop):
        each = body.sequence[place]
        own = {number: spec_of(body.values[number].type).bytes for number in (*each.reads, *each.makes)}
        if touched and sum((touched | own).values()) > most:
            yield start, place
            start, touched = place, {}
        touched |= own
    if start < stop:
        yield start, stop
