"""What bound arguments alone decide is computed once, when they are bound. The value says how many, flat and from the first."""

from collections.abc import Iterator
from typing import Any

from pcp.ir import Program, Role
from pcp.kernels.products.kept import with_kept_panels
from pcp.planning.paths.checks import PathMismatch, is_integer, refused
from pcp.planning.paths.move import Kind, Move, Stage


def _read(value: Any) -> Iterator[Move]:
    if not is_integer(value) or value < 1:
        raise refused("bound", value, "a number of arguments from 1")
    return iter([BOUND.move(value)])


def check_bound(program: Program, count: int) -> None:
    """Look whether a program has so many arguments, from the first, that can be bound.

    Raises:
        PathMismatch: it has not.
    """
    entries = program.arguments
    if count > len(entries):
        raise PathMismatch(
            f"the path has {count} arguments bound, and the program takes {len(entries)}: plan again"
        )
    for entry in entries[:count]:
        if entry.alias is not None or entry.role is Role.state:
            raise PathMismatch(
                f"the path has argument {entry.name} bound, which is state: every call consumes it: plan again"
            )


BOUND = Kind(
    "bound",
    "bound",
    Stage.binding,
    written=lambda moves: moves[0].value,
    read=_read,
    applied=lambda program, moves: with_kept_panels(program, range(moves[0].value)),
    moved=lambda moves, _: moves,
    words=lambda moves: (
        f"what the first {moves[0].value} arguments alone decide computed once, when they are bound"
    ),
)
