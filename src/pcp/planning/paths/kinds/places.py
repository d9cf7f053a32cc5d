"""Operations run elsewhere than where arguments and results lie: some, each in its place, or all of them piece by piece.

A path has moves of one of these kinds at most, and they share an entry.
"""

from collections.abc import Iterator
from typing import Any

from pcp.backends.regions import Placement
from pcp.planning.paths.checks import is_digest, is_integer, is_list_of, is_place, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage


def placement_of(moves: Moves) -> Placement | None:
    """What moves say of where operations run; None where all run in one place."""
    for move in moves:
        if move.kind == STREAMED.name:
            return Placement((), move.value)
    return Placement.of({move.at: move.value for move in moves if move.kind == PLACED.name})


def moves_of(placement: Placement | None) -> list[Move]:
    """The moves that say the same."""
    if placement is None:
        return []
    if placement.streamed is not None:
        return [STREAMED.move(placement.streamed)]
    return [PLACED.move(place, key) for key, place in placement.operations]


def _read(value: Any) -> Iterator[Move]:
    if isinstance(value, dict):
        return iter(())
    if not is_list_of(value, _is_pair) or not value or len({key for key, _ in value}) < len(value):
        expected = "pairs of an operation of 64 hexadecimal digits, each once, and its place, as arena:cpu:0"
        raise refused("placement", value, expected)
    return (PLACED.move(place, key) for key, place in value)


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and is_digest(entry[0]) and is_place(entry[1])


def _read_streamed(value: Any) -> Iterator[Move]:
    if not isinstance(value, dict):
        return iter(())
    place, most = value.get("streamed"), value.get("bytes", 0)
    if not is_place(place) or not is_integer(most) or most <= 0:
        raise refused("placement", value, "a place, as xla:cuda:0, and bytes above 0")
    return iter([STREAMED.move((place, int(most)))])


def _words(moves: Moves) -> str:
    return f"operations elsewhere: {placement_of(moves)}"


PLACED = Kind(
    "placed",
    "placement",
    Stage.places,
    written=lambda moves: [[move.at, move.value] for move in moves],
    read=_read,
    words=_words,
)
STREAMED = Kind(
    "streamed",
    "placement",
    Stage.places,
    written=lambda moves: dict(zip(("streamed", "bytes"), moves[0].value, strict=True)),
    read=_read_streamed,
    words=_words,
)
