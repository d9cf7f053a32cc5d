"""A program that is equal by algebra is computed in the place of the one that was written: a `Form`."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import are_numbers, is_digest, is_list_of, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.equality import Form, FormMismatch, PartForm, Step, equal_program, made_by

log = logging.getLogger("pcp.planning")


def _moved(moves: Moves, program: Program) -> Moves | None:
    try:
        return (EQUAL.move(made_by(program, moves[0].value)[0]),)
    except FormMismatch as error:
        log.info("the equal program of the path is none at these sizes: %s", error)
        return None


def _read(value: Any) -> Iterator[Move]:
    form = value if isinstance(value, dict) else {}
    parts, makes = form.get("parts"), form.get("makes")
    if not is_list_of(parts, _is_part) or not parts or not is_digest(makes):
        raise refused(
            "equal program",
            value,
            "parts, each with numbers of parts, steps and roots, and makes, 64 hexadecimal digits",
        )
    return iter([EQUAL.move(Form(tuple(map(_part, parts)), str(makes)))])


def _part(part: Mapping[str, Any]) -> PartForm:
    steps = (Step(step["op"], tuple(step["operands"]), tuple(step["numbers"])) for step in part["steps"])
    return PartForm(tuple(part["parts"]), tuple(steps), tuple(part["roots"]))


def _is_part(entry: Any) -> bool:
    if not isinstance(entry, dict) or not all(are_numbers(entry.get(name)) for name in ("parts", "roots")):
        return False
    return bool(entry["parts"]) and is_list_of(entry.get("steps"), _is_step)


def _is_step(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("op"), str)
        and all(are_numbers(entry.get(name)) for name in ("operands", "numbers"))
    )


EQUAL = Kind(
    "equal",
    "equal",
    Stage.written,
    written=lambda moves: asdict(moves[0].value),
    read=_read,
    applied=lambda program, moves: equal_program(program, moves[0].value),
    moved=_moved,
    words=lambda moves: f"products of matrices in another form: {moves[0].value}",
)
