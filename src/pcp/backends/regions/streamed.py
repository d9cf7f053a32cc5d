"""A program larger than its device: it runs there piece by piece, and what a piece does not need lies at home meanwhile.

Arguments and results lie at home. Where a value has to make room, it is the one that is read last of all that are there
(Belady, "A study of replacement algorithms for a virtual-storage computer", 1966): what lies at home as well is dropped, what
does not is copied there first.
"""

from collections.abc import Sequence

from pcp.backends.base import Executable, OutOfMemory
from pcp.backends.regions.executable import Copy, Drop, RegionsExecutable, Run, Step
from pcp.backends.target import Target
from pcp.ir import Program
from pcp.rewrite.pieces import Segment, Segments
from pcp.rewrite.regions import HOME, Regions, portions

AWAY = HOME + 1
"""The place in which all operations run."""
PIECES = 4
"""A piece may touch this part of the memory, at first: then a compiler's own arrays have room, and the next values."""
ATTEMPTS = 4
"""How often pieces are halved where one does not fit with what the compiler adds."""
NEVER = 1 << 60


class StreamedExecutable(RegionsExecutable):
    """A program in pieces on one device, compiled.

    Arguments:
        program: the whole.
        targets: where arguments and results lie, and where the operations run.
        limit: bytes that a call may take there.
        cache: as of `Target.compile`.

    Raises:
        NotDivisible: as `pcp.rewrite.regions`.
        OutOfMemory: an operation needs more at once.
    """

    def __init__(self, program: Program, targets: Sequence[Target], limit: int, *, cache: bool) -> None:
        self._limit = limit
        for attempt in range(ATTEMPTS):
            cut = portions(program, limit // (PIECES << attempt))
            places = (AWAY,) * len(cut.sequence)
            try:
                super().__init__(program, Regions(cut, places), targets, cache=cache)
            except OutOfMemory:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _memory_of(self, place: int) -> int:
        """Each place has its own memory here: what lies at home does not count."""
        return place

    def _scheduled(self) -> list[Step]:
        schedule = _Schedule(self._program, self._cut.cut)
        for index, (each, executable) in enumerate(
            zip(self._cut.cut.sequence, self._executables, strict=True)
        ):
            least = schedule.run(index, each, executable, self._limit)
            if least > self._limit:
                raise OutOfMemory(
                    f"piece {index} of program {self._program.digest[:12]} needs {least} bytes at once on "
                    f"{self._targets[AWAY]}; {self._limit} were given: give it more, or a smaller batch"
                )
        return schedule.steps


class _Schedule:
    """What a call does, piece by piece, and where values lie meanwhile."""

    def __init__(self, program: Program, cut: Segments) -> None:
        self.steps: list[Step] = []
        self._results = set(cut.results)
        self._uses: dict[int, list[int]] = {}
        for index, each in enumerate(cut.sequence):
            for number in each.takes:
                self._uses.setdefault(number, []).append(index)
        self._specs = {number: entry.spec for number, entry in enumerate(program.arguments)}
        self._stays = self._specs.keys() | self._results  # at home, for the caller
        self._at_home = set(self._specs)
        self._away: dict[int, int] = {}
        """Bytes of the values that lie on the device."""

    def run(self, index: int, piece: Segment, executable: Executable, limit: int) -> int:
        """Add a piece; the bytes that it needs at once, of which the limit has to be no less."""
        made = {number: entry.spec for number, entry in zip(piece.makes, piece.program.results, strict=True)}
        self._specs |= made
        taken = {number: self._specs[number].bytes for number in piece.takes}
        further = sum(spec.bytes for spec in made.values()) + executable.memory.temporaries
        least = sum(taken.values()) + further
        if least > limit:
            return least
        others = sorted(self._away.keys() - taken.keys(), key=lambda number: self._next_use(number, index))
        while sum((self._away | taken).values()) + further > limit:
            self._leave(others.pop(), index)
        for number in piece.takes:
            if number not in self._away:
                self.steps.append(Copy(number, HOME, AWAY, self._specs[number]))
                self._away[number] = taken[number]
        self.steps.append(Run(index, AWAY, executable, piece.takes, piece.makes))
        self._away |= {number: spec.bytes for number, spec in made.items()}
        for number in (*piece.takes, *piece.makes):
            if self._next_use(number, index) == NEVER:
                self._leave(number, index)
        return least

    def _next_use(self, number: int, after: int) -> int:
        return next((index for index in self._uses.get(number, ()) if index > after), NEVER)

    def _leave(self, number: int, after: int) -> None:
        """Have a value leave the device; it lies at home then if anybody needs it."""
        is_read = self._next_use(number, after) < NEVER
        if number not in self._at_home and (is_read or number in self._results):
            self.steps.append(Copy(number, AWAY, HOME, self._specs[number]))
            self._at_home.add(number)
        self.steps.append(Drop(number, AWAY))
        del self._away[number]
        if not is_read and number in self._at_home - self._stays:
            self.steps.append(Drop(number, HOME))
            self._at_home.remove(number)
