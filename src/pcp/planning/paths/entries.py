"""The entries of a Path in a file of JSON, checked: whoever wrote the file, what comes out of it is a path."""

import json
from collections.abc import Callable
from typing import Any

from pcp.planning.paths.kinds import BOUND, KINDS, PLACED, STREAMED, Stage, in_order
from pcp.planning.paths.kinds.checks import NotAPath as NotAPath
from pcp.planning.paths.kinds.checks import is_digest, refused
from pcp.planning.paths.move import Move

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
