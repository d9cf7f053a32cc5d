"""What a call of a program larger than its device copies, and when.

Arguments and results lie at home. Where a value has to make room, it is the one that is read last of all that are there
(Belady, "A study of replacement algorithms for a virtual-storage computer", 1966): what lies at home as well is dropped, what
does not is copied there first. While a piece runs, what the last one made goes home, and what the next one reads is fetched, as
far as there is room beside the piece.
"""

import bisect
from collections.abc import Collection, Sequence

from pcp.backends.base import Executable
from pcp.backends.regions.executable import Copy, Drop, Run, Step
from pcp.ir import Program
from pcp.rewrite.pieces import Segments
from pcp.rewrite.regions import HOME

AWAY = HOME + 1
"""The place in which all operations run."""
NEVER = 1 << 60


class Schedule:
    """What a call does, piece by piece, and where values lie meanwhile.

    Arguments:
        program: the whole.
        cut: its pieces.
        executables: the pieces, compiled.
        limit: bytes that may lie on the device, with those between, at any time.

    Attributes:
        steps: what follows the start of a piece runs beside it, until a step needs what it reads or makes.
    """

    def __init__(
        self, program: Program, cut: Segments, executables: Sequence[Executable], limit: int
    ) -> None:
        self.steps: list[Step] = []
        self._cut, self._executables, self._limit = cut, executables, limit
        self._uses: dict[int, list[int]] = {}
        self._specs = {number: entry.spec for number, entry in enumerate(program.arguments)}
        self._at_home = set(self._specs)
        self._stays = self._specs.keys() | set(cut.results)  # at home, for the caller
        for index, each in enumerate(cut.sequence):
            self._specs |= {n: e.spec for n, e in zip(each.makes, each.program.results, strict=True)}
            for number in each.takes:
                self._uses.setdefault(number, []).append(index)
        self._away: dict[int, int] = {}
        """Bytes of the values that lie on the device."""

    def add(self, index: int) -> int:
        """Add the next piece; the bytes that it needs at once, which have to be within the limit."""
        piece, executable = self._cut.sequence[index], self._executables[index]
        results = self._sizes(piece.makes)
        further = sum(results.values()) + executable.memory.temporaries
        least = sum(self._sizes(piece.takes).values()) + further
        if least > self._limit:
            return least
        self._make_room(self._sizes(piece.takes), self._limit - further, index, kept=piece.takes)
        for number in piece.takes:
            self._fetch(number)
        self.steps.append(Run(index, AWAY, executable, piece.takes, piece.makes))
        self._away |= results
        self._beside(index, self._limit - executable.memory.temporaries)
        for number in (*piece.takes, *piece.makes):
            is_result = number in self._stays and number not in self._at_home
            if self._next_use(number, index) == NEVER and not is_result:
                self._leave(number, index)
        return least

    def end(self) -> None:
        """Have all that is left leave the device."""
        for number in list(self._away):
            self._leave(number, len(self._cut.sequence))

    def _beside(self, index: int, limit: int) -> None:
        """What is done while a piece runs, whose own values stay.

        Arguments:
            limit: bytes that values may take meanwhile.
        """
        piece = self._cut.sequence[index]
        busy = {*piece.takes, *piece.makes}
        for number in [n for n in self._away if self._next_use(n, index) == NEVER and n not in busy]:
            self._leave(number, index)
        if index + 1 == len(self._cut.sequence):
            return
        following = self._cut.sequence[index + 1]
        kept = {*busy, *following.takes}
        for number in following.takes:
            there = self._sizes({number, *self._away.keys() & kept})
            if number not in self._away and sum(there.values()) <= limit:
                self._make_room(self._sizes([number]), limit, index, kept)
                self._fetch(number)

    def _sizes(self, numbers: Collection[int]) -> dict[int, int]:
        return {number: self._specs[number].bytes for number in numbers}

    def _make_room(self, wanted: dict[int, int], limit: int, index: int, kept: Collection[int]) -> None:
        """Have values leave, those that are read last first, until the wanted ones fit or only what is kept is left."""
        others = sorted(self._away.keys() - set(kept), key=lambda number: self._next_use(number, index))
        while others and sum((self._away | wanted).values()) > limit:
            self._leave(others.pop(), index)

    def _fetch(self, number: int) -> None:
        if number not in self._away:
            self.steps.append(Copy(number, HOME, AWAY, self._specs[number]))
            self._away |= self._sizes([number])

    def _next_use(self, number: int, after: int) -> int:
        uses = self._uses.get(number, [])
        place = bisect.bisect_right(uses, after)
        return uses[place] if place < len(uses) else NEVER

    def _leave(self, number: int, after: int) -> None:
        """Have a value leave the device; it lies at home then if anybody needs it."""
        is_read = self._next_use(number, after) < NEVER
        if number not in self._at_home and (is_read or number in self._stays):
            self.steps.append(Copy(number, AWAY, HOME, self._specs[number]))
            self._at_home.add(number)
        self.steps.append(Drop(number, AWAY))
        del self._away[number]
        if not is_read and number in self._at_home - self._stays:
            self.steps.append(Drop(number, HOME))
            self._at_home.remove(number)
