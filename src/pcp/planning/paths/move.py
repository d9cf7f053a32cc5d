"""Move: one choice of a path, which is a program and the moves that make of it what is run. Kind: what all moves of one kind
have in common; a new dimension of a path is a file of `kinds/` with one, and a row in `KINDS` there."""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir import Program
from pcp.rewrite.row import Effect


@dataclass(frozen=True, slots=True)
class Move:
    """One choice.

    Arguments:
        kind: what is chosen, by its name in `pcp.planning.paths.kinds.KINDS`.
        at: where: the key of a site or an operation, the name of an option; empty where it holds for the whole program.
        value: what is taken; hashable, and equal where the choice is.
    """

    kind: str
    at: str
    value: Any


Moves = Sequence[Move]


class Stage(enum.IntEnum):
    """When moves are made, in order."""

    written = 0  # the program as the user wrote it becomes another one
    prepared = 1  # so does the program in which sites are looked for
    sites = 2  # something computes a site in the place of its operations
    whole = 3  # the program with these becomes another one
    binding = 4  # what bound arguments decide is computed apart
    places = 5  # its operations are told where to run
    compiler = 6  # the compiler is told how to compile it


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of moves.

    Arguments:
        name: of the kind.
        entry: under which its moves stand in a file.
        stage: when they are made.
        written: moves as values of JSON.
        read: the moves in values of JSON, whoever wrote them. Raises `NotAPath` where they are none.
        applied: the program that all moves of this kind make of one; None where they make no other. Raises some `PCPError`
            where they are not for it.
        moved: the moves for a program that is the same at other sizes; None where they hold for their sizes alone.
        words: what they are, for people; None where nobody needs to be told.
        changes: what they do to numbers. A compiler may add up in another order when it is given another program.
    """

    name: str
    entry: str
    stage: Stage
    written: Callable[[Moves], Any]
    read: Callable[[Any], Iterable[Move]]
    applied: Callable[[Program, Moves], Program] | None = None
    moved: Callable[[Moves, Program], Moves | None] | None = None
    words: Callable[[Moves], str] | None = None
    changes: Callable[[Moves], Effect] = lambda _: Effect.reassociating

    def move(self, value: Any, at: str = "") -> Move:
        """A move of this kind; where `at` is empty, for the whole program."""
        return Move(self.name, at, value)
