"""The kinds of moves that a path is made of."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from pcp.ir import Program
from pcp.planning.paths.kinds.bound import BOUND as BOUND
from pcp.planning.paths.kinds.equal import EQUAL as EQUAL
from pcp.planning.paths.kinds.kernels import KERNEL as KERNEL
from pcp.planning.paths.kinds.kind import Kind as Kind
from pcp.planning.paths.kinds.kind import Stage as Stage
from pcp.planning.paths.kinds.options import OPTION as OPTION
from pcp.planning.paths.kinds.parts import PARTS as PARTS
from pcp.planning.paths.kinds.places import PLACED as PLACED
from pcp.planning.paths.kinds.places import STREAMED as STREAMED
from pcp.planning.paths.kinds.remade import REMADE as REMADE
from pcp.planning.paths.kinds.stored import STORED as STORED
from pcp.planning.paths.move import Move
from pcp.rewrite.row import Effect, strongest

KINDS: tuple[Kind, ...] = (OPTION, KERNEL, REMADE, EQUAL, STORED, PARTS, STREAMED, PLACED, BOUND)
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
