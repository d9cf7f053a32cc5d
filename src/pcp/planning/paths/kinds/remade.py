"""The program with its kernels makes values again where they are read, so that they need not be kept: a `Recomputation`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import PathMismatch, are_numbers, is_digest, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.memory.recomputation import Recomputation, recomputed


def _applied(program: Program, moves: Moves) -> Program:
    recomputation = moves[0].value
    remade = recomputed(program, recomputation)
    if remade.digest != recomputation.makes:
        raise PathMismatch(
            f"the path makes values again by their numbers, which gave program {recomputation.makes[:12]} and here give "
            f"{remade.digest[:12]}; plan again with the same memory"
        )
    return remade


def _read(value: Any) -> Iterator[Move]:
    fields = value if isinstance(value, dict) else {}
    parts, begin, kept, makes = (fields.get(name) for name in ("parts", "begin", "kept", "makes"))
    numbers = [parts, begin, *kept] if isinstance(kept, list) else [-1]
    if not are_numbers(numbers) or not numbers[0] or not is_digest(makes):
        raise refused(
            "recomputation", value, "parts, begin and kept, numbers from 0, and makes, 64 hexadecimal digits"
        )
    return iter([REMADE.move(Recomputation(numbers[0], numbers[1], tuple(sorted(numbers[2:])), str(makes)))])


REMADE = Kind(
    "remade",
    "recomputation",
    Stage.whole,
    written=lambda moves: asdict(moves[0].value),
    read=_read,
    applied=_applied,
    words=lambda _: "in less memory",
)
