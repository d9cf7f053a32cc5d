"""The bind stage: what a program computes from bound arguments alone is split off, to be computed once and not in every call.

A view of an argument is not worth being kept, and neither is what takes more bytes than the arguments that it is made of, as
the floats of stored integers do. What stands behind a barrier is kept as it is, and nothing that is made of it. What no
argument decides is left to the compiler, which folds constants, but where something that is kept is made of it: so programs
that differ in their sizes alone have one bind stage.
"""

import functools
from collections.abc import Iterable

from pcp.ir import Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.pieces import Body, Cutter, Segments
from pcp.rewrite.regions import NotDivisible, check_divisible, opened

_VIEWS = {f"stablehlo.{name}" for name in ("reshape", "slice", "transpose", "reverse")}
"""A compiler reads these where they are used, at no cost."""
GROWTH = 1.25
"""How many times as many bytes what is kept may take as the arguments that it is made of."""
SMALL_BYTES = 1 << 20
"""What takes no more is kept however little it is made of."""
_BARRIER = "stablehlo.optimization_barrier"


@functools.lru_cache(maxsize=8)
def bind_stage(program: Program, bound: tuple[int, ...]) -> Segments | None:
    """A program as two segments: what some of its arguments alone decide, and the rest.

    Arguments:
        program: any.
        bound: the places of the arguments, flat.

    Returns:
        None where nothing is split off: nothing is worth it, or the program runs as a whole only.
    """
    module = opened(program)
    try:
        check_divisible(module)
    except NotDivisible:
        return None
    block = entry_block(module)
    body = Body(block, block_operations(block), returned_by(block))
    if len(set(body.returned) - set(range(len(program.arguments)))) < len(body.returned):
        return None  # a result that is an argument, or another result, is a copy, which only the whole makes
    first = _first(body, bound)
    if not first:
        return None
    rest = [place for place in range(len(body.sequence)) if place not in first]
    body.reorder([*sorted(first), *rest])
    with context():
        ranges = [(0, len(first)), (len(first), len(body.sequence))]
        return Cutter(program, body).segments(ranges, lambda which: which > 0)


def decided_values(block: ir.Block, bound: Iterable[int]) -> set[Value]:
    """The values of a program that some of its arguments alone decide.

    Arguments:
        block: of its `main`.
        bound: the places of the arguments, flat.
    """
    decided: set[Value] = {block.arguments[place] for place in bound}
    for op in block_operations(block):
        if (
            op.name != "stablehlo.rng"
            and not has_effect(op)
            and decided.issuperset([*op.operands, *values_from_outside(op)])
        ):
            decided.update(op.results)
    return decided


def _first(body: Body, bound: tuple[int, ...]) -> set[int]:
    """The places in the sequence of what the bind stage computes."""
    sources: dict[int, frozenset[int]] = {number: frozenset([number]) for number in bound}
    makers: dict[int, int] = {}
    worthwhile: list[int] = []
    for place, each in enumerate(body.sequence):
        if not sources.keys() >= set(each.reads) or not set(each.makes).isdisjoint(body.returned):
            continue
        of = frozenset[int]().union(*(sources[number] for number in each.reads))
        if _bytes(body, each.makes) > max(GROWTH * _bytes(body, of), SMALL_BYTES):
            continue
        if each.op.name != _BARRIER:
            sources |= dict.fromkeys(each.makes, of)
        makers |= dict.fromkeys(each.makes, place)
        if of and each.op.name not in _VIEWS:
            worthwhile.append(place)
    taken: set[int] = set()
    while worthwhile:
        place = worthwhile.pop()
        if place not in taken:
            taken.add(place)
            worthwhile += [makers[number] for number in body.sequence[place].reads if number in makers]
    return taken


def _bytes(body: Body, numbers: frozenset[int] | tuple[int, ...]) -> int:
    return sum(spec_of(body.values[number].type).bytes for number in numbers)
