"""A program larger than its device: it runs there piece by piece, and what a piece does not need lies at home meanwhile.

What is copied when is known before the first call (`schedule`). A piece runs in a thread of its own, so that copies go
on beside it: of what the next one reads, and of what the last one made.
"""

from concurrent.futures import Future, ThreadPoolExecutor

from pcp.backends.base import Buffer, OutOfMemory
from pcp.backends.regions.executable import Copy, Drop, RegionsExecutable, Run, Step, Values
from pcp.backends.regions.schedule import AWAY, Schedule
from pcp.backends.target import Target
from pcp.ir import Program
from pcp.rewrite.portions import portions
from pcp.rewrite.regions import HOME, Regions

PIECES = 4
"""A piece may touch this part of the memory, at first: then a compiler's own arrays have room, and the next values."""
ATTEMPTS = 4
"""How often pieces are halved where one does not fit with what the compiler adds."""


class StreamedExecutable(RegionsExecutable):
    """A program in pieces on one device, compiled.

    Arguments:
        program: the whole.
        home: where arguments and results lie.
        away: where the operations run.
        limit: bytes that a call may take there.
        cache: as of `Target.compile`.

    Raises:
        NotDivisible: as `pcp.rewrite.regions`.
        OutOfMemory: an operation needs more at once.
    """

    def __init__(self, program: Program, home: Target, away: Target, limit: int, *, cache: bool) -> None:
        self._limit = limit
        for attempt in range(ATTEMPTS):
            cut = portions(program, limit // (PIECES << attempt))
            places = (AWAY,) * len(cut.sequence)
            try:
                super().__init__(
                    program,
                    Regions(cut, places),
                    (home, away),
                    lambda piece, _: away.compile(piece, cache=cache),
                )
            except OutOfMemory:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _memory_of(self, place: int) -> int:
        """Each place has its own memory here: what lies at home does not count."""
        return place

    def _scheduled(self) -> list[Step]:
        schedule = Schedule(self._program, self._cut.cut, self._executables, self._limit)
        for index in range(len(self._executables)):
            least = schedule.add(index)
            if least > self._limit:
                raise OutOfMemory(
                    f"piece {index} of program {self._program.digest[:12]} needs {least} bytes at once on "
                    f"{self._targets[AWAY]}; {self._limit} were given: give it more, or a smaller batch"
                )
        schedule.end()
        self._kept = frozenset(self._cut.cut.results)
        return schedule.steps

    def described(self) -> str:
        """What a call does, in one line for people."""
        kinds, total = len(self._cut.cut.kinds), sum(each.spec.bytes for each in self.copies)
        share = self._bytes_beside() / total if total else 1.0
        return f"{super().described()}, {share:.0%} of the bytes beside pieces; {kinds} different pieces are compiled"

    def _bytes_beside(self) -> int:
        """Bytes that a call copies while a piece runs."""
        running, total = None, 0
        for step in self.steps:
            if running is not None and not self._is_beside(step, running):
                running = None
            if isinstance(step, Run):
                running = step
            elif isinstance(step, Copy) and running is not None:
                total += step.spec.bytes
        return total

    def _is_beside(self, step: Step, run: Run) -> bool:
        return not isinstance(step, Run) and step.number not in (*run.takes, *run.makes)

    def _take_steps(self, values: Values) -> None:
        running: tuple[Run, Future[list[Buffer]]] | None = None
        with ThreadPoolExecutor(1, "pieces") as thread:
            for step in (*self.steps, None):
                if running is not None and (step is None or not self._is_beside(step, running[0])):
                    self._hold(running[0], running[1].result(), values)
                    running = None
                if isinstance(step, Run):
                    running = step, thread.submit(self._finished, step, values)
                elif step is not None:
                    self._move(step, values)
                    if isinstance(step, Copy) and step.place == HOME:  # what it is a copy of makes room
                        self._targets[HOME].runner.wait([values[step.number, HOME]])

    def _move(self, step: Copy | Drop, values: Values) -> None:
        """As of all regions; what only makes room lies where the device copies it to and from without the processor."""
        if isinstance(step, Copy) and step.place == HOME and step.number not in self._kept:
            aside = self._targets[AWAY].runner.aside(values[step.number, AWAY])
            if aside is not None:
                values[step.number, HOME] = aside
                return
        super()._move(step, values)

    def _finished(self, run: Run, values: Values) -> list[Buffer]:
        """What a piece makes, when it is there."""
        results = self._made(run, values)
        self._targets[run.place].runner.wait(results)
        return results
