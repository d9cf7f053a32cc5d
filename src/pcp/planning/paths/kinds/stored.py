"""Values are kept in fewer bits, wherever they are made and read: a format for a class of values, for an argument, or for state
from call to call."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pcp.ir import DType, Program
from pcp.ops.linear.stored import FORMATS
from pcp.planning.paths.checks import is_list_of, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.row import Effect
from pcp.rewrite.stored import FACTORS, RESULTS, stored, with_narrow_state, with_stored_arguments

ARGUMENT, STATE = "argument", "state"
"""What stands before the flat place of an argument whose matrices are kept in fewer bits, and of one that is a moment."""
OF_CLASSES = tuple(each.name for each in FORMATS.values() if not each.largest)
"""What a class of values may be kept in, whose rows nobody knows: formats without scales."""
BF16 = FORMATS["bf16"].name

_CLASS = re.compile(rf"({FACTORS}|{RESULTS})( \d+(x\d+)*)?")
_PLACE = re.compile(rf"({ARGUMENT}|{STATE}) (0|[1-9]\d{{0,8}})")


def argument_in(number: int, form: str) -> Move:
    """The matrices of an argument kept in a format."""
    return STORED.move(form, f"{ARGUMENT} {number}")


def narrow_state(number: int) -> Move:
    """A moment kept in bfloat16."""
    return STORED.move(BF16, f"{STATE} {number}")


def narrowed_by(moves: Moves) -> tuple[int, ...]:
    """The flat places of the arguments that are taken and returned in bfloat16."""
    return tuple(_by_place([move for move in moves if move.kind == STORED.name], STATE))


def retyped(before: Moves, after: Moves) -> dict[int, DType]:
    """By their flat places, the element types of the arguments that moves have taken in others than moves before."""
    narrow, were = set(narrowed_by(after)), set(narrowed_by(before))
    return dict.fromkeys(narrow - were, DType.bf16) | dict.fromkeys(were - narrow, DType.f32)


def _by_place(moves: Moves, what: str) -> dict[int, str]:
    """The formats of arguments, or of state, by their flat places."""
    places = [(_PLACE.fullmatch(move.at), move.value) for move in moves]
    return {int(place[2]): value for place, value in places if place is not None and place[1] == what}


def _moved(moves: Moves, _: object) -> Moves | None:
    """Those of whole roles and of arguments hold at every size; a shape is of one."""
    shaped = (" " in move.at and _PLACE.fullmatch(move.at) is None for move in moves)
    return None if any(shaped) else moves


def _of_classes(moves: Moves) -> list[Move]:
    """Those of classes of values."""
    return [move for move in moves if not _PLACE.fullmatch(move.at)]


def _words(moves: Moves) -> str:
    classes, counts = _of_classes(moves), Counter(_by_place(moves, ARGUMENT).values())
    said = [
        f"{count} argument{'s' * (count > 1)} in {name}, {FORMATS[name].about}"
        for name, count in counts.items()
    ]
    if moments := len(_by_place(moves, STATE)):
        said.append(f"{moments} moments from step to step in bfloat16, rounded by chance")
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
            f"argument, as '{ARGUMENT} 3', and one of {', '.join(FORMATS)}, or of a moment, as '{STATE} 3', and {BF16}"
        )
        raise refused("stored", value, expected)
    return (STORED.move(storage, name) for name, storage in value)


def _is_stored(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(each, str) for each in entry)):
        return False
    name, form = entry
    place = _PLACE.fullmatch(name)
    if place is not None:
        return form in (FORMATS if place[1] == ARGUMENT else (BF16,))
    return form in (OF_CLASSES if _CLASS.fullmatch(name) else ())


def _applied(program: Program, moves: Moves) -> Program:
    formats = {number: FORMATS[name] for number, name in _by_place(moves, ARGUMENT).items()}
    if formats:
        program = with_stored_arguments(program, formats)
    if classes := _of_classes(moves):
        program = stored(program, {move.at: FORMATS[move.value].dtype for move in classes})
    narrow = narrowed_by(moves)
    return with_narrow_state(program, narrow) if narrow else program


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
