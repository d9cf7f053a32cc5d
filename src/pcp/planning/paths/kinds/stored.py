"""Values are kept in fewer bits, wherever they are made and read: an element type for a class of values, by its name."""

import re
from collections.abc import Iterator
from typing import Any

from pcp.kernels.storage import BF16
from pcp.planning.paths.checks import is_list_of, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.row import Effect
from pcp.rewrite.stored import FACTORS, RESULTS, stored

STORAGES = {each.name: each.dtype for each in (BF16,)}
"""What a value may be kept in, by name."""

_CLASS = re.compile(rf"({FACTORS}|{RESULTS})( \d+(x\d+)*)?")


def _moved(moves: Moves, _: object) -> Moves | None:
    """Those of whole roles hold at every size; a shape is of one."""
    return None if any(" " in move.at for move in moves) else moves


def _words(moves: Moves) -> str:
    roles = [move.at for move in moves if " " not in move.at]
    shapes = [move.at.partition(" ")[2] for move in moves if " " in move.at]
    said = [f"all {role}" for role in roles] + [f"those of {', '.join(shapes)}"] * bool(shapes)
    return f"of products {' and '.join(said)} in {', '.join(sorted({move.value for move in moves}))}"


def _read(value: Any) -> Iterator[Move]:
    if not is_list_of(value, _is_stored):
        expected = f"pairs of a class of values, as '{FACTORS}' or '{RESULTS} 64x32', and one of {', '.join(STORAGES)}"
        raise refused("stored", value, expected)
    return (STORED.move(storage, name) for name, storage in value)


def _is_stored(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and all(isinstance(each, str) for each in entry)
        and _CLASS.fullmatch(entry[0]) is not None
        and entry[1] in STORAGES
    )


STORED = Kind(
    "stored",
    "stored",
    Stage.prepared,
    written=lambda moves: [[move.at, move.value] for move in moves],
    read=_read,
    applied=lambda program, moves: stored(program, {move.at: STORAGES[move.value] for move in moves}),
    moved=_moved,
    words=_words,
    changes=lambda _: Effect.lowers_precision,
)
