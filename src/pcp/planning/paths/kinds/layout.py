"""Each of several devices computes a part of the program, by a rule of `pcp.rewrite.layout.rules`.

What is chosen after that is for one of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import is_integer, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.layout.rules import RULES, laid_out


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program is laid out over devices.

    Arguments:
        rule: one of `pcp.rewrite.layout.rules.RULES`.
        devices: how many.
    """

    rule: str
    devices: int


def layout_in(moves: Moves) -> Layout | None:
    """How a program with these moves lies over several devices; None where it runs on one."""
    return next((move.value for move in moves if move.kind == "layout"), None)


def _applied(program: Program, layout: Layout) -> Program:
    return laid_out(program, layout.rule, layout.devices).program


def _read(value: Any) -> Iterator[Move]:
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    rule: Any = fields.get("rule")
    devices: Any = fields.get("devices")
    if rule not in RULES or not is_integer(devices) or devices < 2:
        raise refused("layout", value, f"rule, one of {', '.join(RULES)}, and devices, a number from 2")
    return iter([LAYOUT.move(Layout(rule, devices))])


LAYOUT = Kind(
    "layout",
    "layout",
    Stage.written,
    written=lambda moves: {"rule": moves[0].value.rule, "devices": moves[0].value.devices},
    read=_read,
    applied=lambda program, moves: _applied(program, moves[0].value),
    moved=lambda moves, _: moves,
    words=lambda moves: f"{moves[0].value.rule} over {moves[0].value.devices} devices",
)
