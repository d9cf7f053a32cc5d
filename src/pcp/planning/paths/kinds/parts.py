"""The prepared program computes its batch in so many parts; what is chosen after that is for one of them."""

import functools
from collections.abc import Iterator
from typing import Any

from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.paths.checks import is_integer, refused
from pcp.planning.paths.move import Kind, Move, Stage
from pcp.rewrite.memory.parts import in_parts


class NotInParts(PCPError):
    """A number of parts in which a program does not compute its batch."""


@functools.lru_cache(maxsize=8)
def _divided(program: Program, parts: int) -> Program:
    divided = in_parts(program, parts, named=True)
    if divided is None:
        raise NotInParts(f"the batch of program {program.digest[:12]} cannot be computed in {parts} parts")
    return divided


def _read(value: Any) -> Iterator[Move]:
    if not is_integer(value) or value < 2:
        raise refused("parts", value, "a number from 2, or no such entry")
    return iter([PARTS.move(value)])


PARTS = Kind(
    "parts",
    "parts",
    Stage.prepared,
    written=lambda moves: moves[0].value,
    read=_read,
    applied=lambda program, moves: _divided(program, moves[0].value),
    moved=lambda moves, _: moves,
    words=lambda moves: f"the batch in {moves[0].value} parts",
)
