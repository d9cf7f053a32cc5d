"""The compiler is told how to compile: a value for an option, by its name."""

from collections.abc import Iterator
from typing import Any

from pcp.planning.paths.checks import is_list_of, is_scalar, refused
from pcp.planning.paths.move import Kind, Move, Stage


def _read(value: Any) -> Iterator[Move]:
    if not is_list_of(value, _is_option):  # which there are is known to the backend alone
        raise refused("options", value, "pairs of a name, and a text, number or boolean")
    return (OPTION.move(scalar, name) for name, scalar in value)


def _is_option(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and is_scalar(entry[1])


OPTION = Kind(
    "option",
    "options",
    Stage.compiler,
    written=lambda moves: [[move.at, move.value] for move in moves],
    read=_read,
    moved=lambda moves, _: moves,
    words=lambda moves: ", ".join(f"{move.at}={move.value}" for move in moves),
)
