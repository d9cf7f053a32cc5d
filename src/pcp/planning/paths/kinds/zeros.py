"""Sums of the program that are zero in exact arithmetic are written as zero, as gradients of biases of keys are."""

from collections.abc import Iterator
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import PathMismatch, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.vanishing.whole import with_zeros


def _applied(program: Program, _: Moves) -> Program:
    zeroed = with_zeros(program)
    if zeroed is None:
        raise PathMismatch(
            f"the path writes sums as zero that cancel, and program {program.digest[:12]} has none: plan again"
        )
    return zeroed


def _read(value: Any) -> Iterator[Move]:
    if value is not True:
        raise refused("zeros", value, "true, or no such entry")
    return iter([ZEROS.move(True)])


ZEROS = Kind(
    "zeros",
    "zeros",
    Stage.written,
    written=lambda _: True,
    read=_read,
    applied=_applied,
    moved=lambda moves, _: moves,
    words=lambda _: "sums that are zero in exact arithmetic are written as zero",
)
