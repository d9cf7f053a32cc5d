"""Values are kept in fewer bits, wherever they are made and read: a format for a class of values, or for an argument."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pcp.ir import Program
from pcp.ops.linear.stored import FORMATS
from pcp.planning.paths.checks import is_list_of, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.row import Effect
from pcp.rewrite.stored import FACTORS, RESULTS, stored, with_stored_arguments

ARGUMENT = "argument"
"""What stands before the flat place of an argument, whose matrices are kept in fewer bits."""
OF_CLASSES = tuple(each.name for each in FORMATS.values() if not each.largest)
"""What a class of values may be kept in, whose rows nobody knows: formats without scales."""

_CLASS = re.compile(rf"({FACTORS}|{RESULTS})( \d+(x\d+)*)?")
_ARGUMENT = re.compile(rf"{ARGUMENT} (0|[1-9]\d{{0,8}})")


def argument_in(number: int, form: str) -> Move:
    """The matrices of an argument kept in a format."""
    return STORED.move(form, f"{ARGUMENT} {number}")


def _moved(moves: Moves, _: object) -> Moves | None:
    """Those of whole roles and of arguments hold at every size; a shape is of one."""
    shaped = (" " in move.at and _ARGUMENT.fullmatch(move.at) is None for move in moves)
    return None if any(shaped) else moves


def _apart(moves: Moves) -> tuple[list[Move], list[Move]]:
    """Those of classes of values, and those of arguments."""
    arguments = [move for move in moves if _ARGUMENT.fullmatch(move.at)]
    return [move for move in moves if move not in arguments], arguments


def _words(moves: Moves) -> str:
    classes, arguments = _apart(moves)
    counts = Counter(str(move.value) for move in arguments)
    said = [
        f"{count} argument{'s' * (count > 1)} in {name}, {FORMATS[name].about}"
        for name, count in counts.items()
    ]
    return "; ".join([*([_words_of_classes(classes)] if classes else []), *said])


def _words_of_classes(moves: Moves) -> str:
    roles = [move.at for move in moves if " " not in move.at]
    shapes = [move.at.partition(" ")[2] for move in moves if " " in move.at]
    said = [f"all {role}" for role in roles] + [f"those of {', '.join(shapes)}"] * bool(shapes)
    return f"of products {' and '.join(said)} in {', '.join(sorted({move.value for move in moves}))}"


def _read(value: Any) -> Iterator[Move]:
    if not is_list_of(value, _is_stored):
        expected = (
            f"pairs of a class of values, as '{FACTORS}' or '{RESULTS} 64x32', and one of {', '.join(OF_CLASSES)}, or of an "
            f"argument, as '{ARGUMENT} 3', and one of {', '.join(FORMATS)}"
        )
        raise refused("stored", value, expected)
    return (STORED.move(storage, name) for name, storage in value)


def _is_stored(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(each, str) for each in entry)):
        return False
    name, form = entry
    known = FORMATS if _ARGUMENT.fullmatch(name) else OF_CLASSES if _CLASS.fullmatch(name) else ()
    return form in known


def _applied(program: Program, moves: Moves) -> Program:
    classes, arguments = _apart(moves)
    if arguments:
        formats = {int(move.at.partition(" ")[2]): FORMATS[move.value] for move in arguments}
        program = with_stored_arguments(program, formats)
    if classes:
        program = stored(program, {move.at: FORMATS[move.value].dtype for move in classes})
    return program


STORED = Kind(
    "stored",
    "stored",
    Stage.prepared,
    written=lambda moves: [[move.at, move.value] for move in moves],
    read=_read,
    applied=_applied,
    moved=_moved,
    words=_words,
    changes=lambda _: Effect.lowers_precision,
)
