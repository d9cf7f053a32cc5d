"""Deep programs compiled in segments, each kind once: more layers hardly take longer to compile."""

import functools
from collections.abc import Callable, Sequence

from pcp.backends.base import Buffer, Executable, MemoryUse
from pcp.backends.processors import core_count
from pcp.backends.switches import is_switched_off
from pcp.interruption import all_of
from pcp.ir import Program
from pcp.rewrite.pieces import Segments
from pcp.rewrite.segments import segments

VARIABLE = "PCP_COMPILE_IN_SEGMENTS"
"""`0` has every program compiled as a whole."""


def compiled_in_segments(
    program: Program, compile_one: Callable[[Program], Executable]
) -> "SegmentedExecutable | None":
    """A program compiled in segments, as many at once as there are cores; None if it is better compiled as a whole."""
    if is_switched_off(VARIABLE, "deep programs are compiled in segments"):
        return None
    cut = segments(program)
    if cut is None:
        return None
    executables = all_of([functools.partial(compile_one, kind) for kind in cut.kinds], core_count())
    kinds = dict(zip(cut.kinds, executables, strict=True))
    return SegmentedExecutable(program, cut, [kinds[each.program] for each in cut.sequence])


class SegmentedExecutable:
    """A program of which the segments run one after another.

    Arguments:
        program: the whole.
    """

    def __init__(self, program: Program, cut: Segments, executables: Sequence[Executable]) -> None:
        self._program = program
        self._cut = cut
        self._steps = [
            (executable, each.takes, each.makes, each.ends)
            for executable, each in zip(executables, cut.sequence, strict=True)
        ]

    @functools.cached_property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes: as many as during the segment that takes the most."""
        arguments = sum(entry.spec.bytes for entry in self._program.arguments)
        results = sum(entry.spec.bytes for entry in self._program.results)
        aliased, most, exact = 0, 0, True
        taken: dict[int, int] = {}  # bytes of the values that live, which are in nobody's arguments
        for (executable, *_), each in zip(self._steps, self._cut.sequence, strict=True):
            use = executable.memory
            exact &= use.exact
            aliased += use.aliased
            heirs = {entry.alias for entry in each.program.arguments if entry.alias is not None}
            for place, (number, entry) in enumerate(zip(each.makes, each.program.results, strict=True)):
                taken[number] = 0 if place in heirs else entry.spec.bytes
            most = max(most, sum(taken.values()) + use.temporaries)
            for number in each.ends:
                taken.pop(number, None)
        return MemoryUse(arguments, results, aliased, max(0, most - (results - aliased)), exact)

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked."""
        values: dict[int, Buffer] = dict(enumerate(buffers))
        for executable, takes, makes, ends in self._steps:
            results = executable.run([values[number] for number in takes])
            values.update(zip(makes, results, strict=True))
            for number in ends:
                del values[number]
        for number in self._cut.left:
            buffers[number].delete()
        return [values[number] for number in self._cut.results]
