"""Cutting a program into regions, each of which runs in one place: an operation is told where, by its key.

The key of an operation is the digest of what it computes, so operations that compute the same run in the same place. Regions
run one after another; as few are made as a greedy order finds, which takes all that can run in one place before it goes to
another.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.digest import has_effect, operation_digests
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.pieces import Body, Cutter, Member, Segments

HOME = 0
"""The place of every operation that is not told another: where arguments come from and results go to."""


class UnknownOperation(PCPError):
    """A key that no operation of a program has."""


class NotDivisible(PCPError):
    """A program that can only run as a whole."""


@dataclass(frozen=True, slots=True)
class Regions:
    """A program as a sequence of regions.

    Arguments:
        cut: the regions.
        places: where each runs, by number; `HOME` is 0.
    """

    cut: Segments
    places: tuple[int, ...]


def opened(program: Program) -> ir.Module:
    """A module of the program in which every operation of `main` can be told where to run: without calls and composites."""
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    erase_dead(entry_block(module))
    return module


def regions(program: Program, places: Mapping[str, int]) -> Regions:
    """A program cut into regions.

    Arguments:
        program: any.
        places: by the keys of operations, the numbers of their places; the others run at home.

    Raises:
        UnknownOperation: no operation has a key.
        NotDivisible: an operation speaks to the outside, draws numbers, names functions, or makes something else than arrays.
    """
    module = opened(program)
    block = entry_block(module)
    check_divisible(module)
    keys = operation_digests(module)
    operations, returned = block_operations(block), returned_by(block)
    missing = sorted(places.keys() - {keys[op] for op in operations})
    if missing:
        raise UnknownOperation(
            f"{len(missing)} of {len(places)} operations that are told where to run are not in program "
            f"{program.digest[:12]}, the first of them {missing[0][:12]}; expected keys of its operations: plan again"
        )
    body = Body(block, operations, returned, lambda op: keys[op] in places)
    order, ranges, where = _runs(body.sequence, [places.get(keys[each.op], HOME) for each in body.sequence])
    body.reorder(order)
    with context():
        cut = Cutter(program, body).segments(ranges, lambda which: where[which] == HOME)
    return Regions(cut, tuple(where))


def check_divisible(module: ir.Module) -> None:
    """Look whether the operations of a module that was `opened` can run in several places.

    Raises:
        NotDivisible: as `regions`.
    """
    block = entry_block(module)
    for op in walk_block(block):
        if op.name == "stablehlo.rng" or has_effect(op):
            raise NotDivisible(
                f"the program has {op.name}, which does more than to compute arrays from arrays; "
                "such a program runs in one place: leave the placement out"
            )
    if len(list(module.body.operations)) > 1:
        raise NotDivisible(
            "the program has operations that name functions; such a program runs in one place: leave the placement out"
        )
    for op in block_operations(block):
        for value in op.results:
            if spec_if_tensor(value.type) is None:
                raise NotDivisible(
                    f"{op.name} of the program makes a {value.type}, which is no array; such a program runs in one "
                    "place: leave the placement out"
                )


def _runs(
    sequence: Sequence[Member], places: Sequence[int]
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """An order of operations in which those of one place follow one another, the ranges that they make, and their places."""
    firsts = set(places)
    tried = [_greedy(sequence, places, first) for first in sorted(firsts)]
    order, ranges, where = min(tried, key=lambda each: len(each[1]), default=([], [], []))
    return order, ranges, where


def _greedy(
    sequence: Sequence[Member], places: Sequence[int], first: int
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """The order that begins in one place, if anything can run there, and leaves a place when nothing is left to run there."""
    maker = {number: index for index, each in enumerate(sequence) for number in each.makes}
    needs = [{maker[number] for number in each.reads if number in maker} for each in sequence]
    users: dict[int, list[int]] = {}
    for index, before in enumerate(needs):
        for one in before:
            users.setdefault(one, []).append(index)
    left = [len(before) for before in needs]
    ready: dict[int, list[int]] = {place: [] for place in places}
    for index, count in enumerate(left):
        if not count:
            heapq.heappush(ready[places[index]], index)
    order: list[int] = []
    ranges: list[tuple[int, int]] = []
    where: list[int] = []
    place = first
    while any(ready.values()):
        if not ready[place]:
            place = max(ready, key=lambda each: len(ready[each]))
        start = len(order)
        while ready[place]:
            index = heapq.heappop(ready[place])
            order.append(index)
            for user in users.get(index, ()):
                left[user] -= 1
                if not left[user]:
                    heapq.heappush(ready[places[user]], user)
        ranges.append((start, len(order)))
        where.append(place)
    return order, ranges, where
