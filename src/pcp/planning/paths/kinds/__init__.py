"""The kinds of moves that a path is made of, and the entries of a path in a file of JSON, checked: whoever wrote the file, what
comes out of it is a path."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import NotAPath, is_digest, refused
from pcp.planning.paths.kinds.blocks import BLOCKS as BLOCKS
from pcp.planning.paths.kinds.bound import BOUND as BOUND
from pcp.planning.paths.kinds.equal import EQUAL as EQUAL
from pcp.planning.paths.kinds.kernels import KERNEL as KERNEL
from pcp.planning.paths.kinds.layout import LAYOUT as LAYOUT
from pcp.planning.paths.kinds.layout import Layout as Layout
from pcp.planning.paths.kinds.layout import layout_in as layout_in
from pcp.planning.paths.kinds.options import OPTION as OPTION
from pcp.planning.paths.kinds.parts import PARTS as PARTS
from pcp.planning.paths.kinds.places import PLACED as PLACED
from pcp.planning.paths.kinds.places import STREAMED as STREAMED
from pcp.planning.paths.kinds.remade import REMADE as REMADE
from pcp.planning.paths.kinds.stored import STORED as STORED
from pcp.planning.paths.kinds.zeros import ZEROS as ZEROS
from pcp.planning.paths.move import Kind as Kind
from pcp.planning.paths.move import Move
from pcp.planning.paths.move import Stage as Stage
from pcp.rewrite.row import Effect, strongest

KINDS: tuple[Kind, ...] = (
    OPTION,
    KERNEL,
    REMADE,
    EQUAL,
    ZEROS,
    LAYOUT,
    STORED,
    BLOCKS,
    PARTS,
    STREAMED,
    PLACED,
    BOUND,
)
"""In the order in which they stand in a file, and in which moves of one stage are made."""

LOWERING = (Stage.sites, Stage.whole, Stage.binding)
"""The stages that make of the prepared program what is compiled."""

_RANKS = {kind.name: rank for rank, kind in enumerate(KINDS)}


def in_order(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Moves in the order of a file: by their kinds, then by where they are."""
    return tuple(sorted(moves, key=lambda move: (_RANKS[move.kind], move.at)))


def by_kind(moves: Sequence[Move]) -> list[tuple[Kind, tuple[Move, ...]]]:
    """Moves that are in order, by their kinds."""
    return [(KINDS[rank], tuple(some)) for rank, some in groupby(moves, lambda move: _RANKS[move.kind])]


def at_stages(moves: Sequence[Move], *stages: Stage) -> tuple[Move, ...]:
    """Those of the moves that are made at some stages."""
    return tuple(move for move in moves if KINDS[_RANKS[move.kind]].stage in stages)


def words_of(moves: Sequence[Move]) -> list[str]:
    """What moves that are in order are, for people, kind by kind."""
    return [kind.words(some) for kind, some in by_kind(moves) if kind.words is not None]


def changes_of(moves: Sequence[Move]) -> Effect:
    """What moves that are in order do to numbers, at most.

    Raises:
        UnknownKernel: a kernel is not registered here.
    """
    return strongest(kind.changes(some) for kind, some in by_kind(moves))


def applied(program: Program, moves: Sequence[Move], *stages: Stage) -> Program:
    """The program that moves which are in order make of one at some stages, one stage after another.

    Raises:
        PCPError: a move is not for this program.
    """
    for stage in stages:
        for kind, some in by_kind(at_stages(moves, stage)):
            if kind.applied is not None:
                program = kind.applied(program, some)
    return program


FORMAT = 1
ALWAYS = ("options", "choices")
"""Entries of moves that stand in a file of a path that has none, too."""

_FIELDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("program", is_digest, "64 hexadecimal digits"),
    ("prepared", lambda v: v == "" or is_digest(v), "64 hexadecimal digits, or nothing"),
    ("backend", lambda v: isinstance(v, str) and v != "", "the name of a backend, as xla"),
    ("hardware", lambda v: isinstance(v, str), "a text"),
    ("versions", lambda v: isinstance(v, str), "a text"),
)
"""Of what is no move, all of which a file must have: whether a value is one, and what is expected."""
_KNOWN = {"format", *(name for name, _, _ in _FIELDS), *(kind.entry for kind in KINDS)}


def written(own: dict[str, Any], moves: Sequence[Move]) -> dict[str, Any]:
    """The entries of a path: its own, and those of moves that are in order."""
    of_moves = {kind.entry: kind.written(some) for kind, some in by_kind(moves)}
    return {"format": FORMAT} | own | {name: [] for name in ALWAYS} | of_moves


def entries_of(text: str) -> dict[str, Any]:
    """The entries of a path in a JSON text, all there and each of its kind, but for the moves.

    Raises:
        NotAPath: there is no path in it.
    """
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAPath(
            f"this is not a path: {text[:40]!r} is not JSON ({error}); expected what Path.save writes"
        ) from None
    if not isinstance(entries, dict) or "format" not in entries:
        raise NotAPath(f"this is not a path: {text[:40]!r}; expected JSON as Path.save writes it")
    if entries["format"] != FORMAT:
        raise NotAPath(
            f"the path has format {entries['format']!r:.40}; this version of PCP reads format {FORMAT}"
        )
    for name in (*(name for name, _, _ in _FIELDS), *ALWAYS):
        if name not in entries:
            raise NotAPath(
                f"the path has no {name}; expected JSON as Path.save writes it: plan again and save that"
            )
    for name, is_right, expected in _FIELDS:
        if not is_right(entries[name]):
            raise refused(name, entries[name], expected)
    if unknown := sorted(entries.keys() - _KNOWN):
        raise NotAPath(
            f"the path has {unknown[0]!r:.40}, which this version of PCP does not know; expected only "
            f"{', '.join(sorted(_KNOWN))}: plan again, or install the version of PCP that made the path"
        )
    return entries


def moves_in(entries: dict[str, Any]) -> tuple[Move, ...]:
    """The moves among the entries of a path.

    Raises:
        NotAPath: an entry holds something else.
    """
    moves: list[Move] = []
    for kind in KINDS:
        if entries.get(kind.entry) is not None:
            some = list(kind.read(entries[kind.entry]))
            if some and kind.stage is Stage.prepared and not entries["prepared"]:
                raise refused(
                    kind.entry,
                    entries[kind.entry],
                    "none, as the path says nothing of how its program is prepared",
                )
            moves += some
    kinds = {move.kind for move in moves}
    if BOUND.name in kinds and kinds & {PLACED.name, STREAMED.name}:
        raise NotAPath(
            "the path has operations run elsewhere and computes something when arguments are bound; expected one of the two: "
            "plan again"
        )
    if len({(move.kind, move.at) for move in moves}) < len(moves):
        raise NotAPath(
            "the path chooses twice for one site or option; expected one choice for each: plan again"
        )
    return in_order(moves)
