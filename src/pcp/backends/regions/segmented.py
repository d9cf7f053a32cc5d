"""Deep programs compiled in segments, each kind once: more layers hardly take longer to compile."""

import functools
from collections.abc import Callable

from pcp.backends.base import Executable
from pcp.backends.processors import core_count
from pcp.backends.regions.executable import RegionsExecutable
from pcp.backends.switches import is_switched_off
from pcp.backends.target import Target
from pcp.interruption import all_of
from pcp.ir import Program
from pcp.rewrite.regions import HOME, Regions
from pcp.rewrite.segments import segments

VARIABLE = "PCP_COMPILE_IN_SEGMENTS"
"""`0` has every program compiled as a whole."""


def compiled_in_segments(
    program: Program,
    target: Target,
    compile_one: Callable[[Program], Executable],
    is_called_often: bool = True,
) -> RegionsExecutable | None:
    """A program compiled in segments, as many at once as there are cores; None if it is better compiled as a whole.

    Arguments:
        is_called_often: as in `segments`.
    """
    if is_switched_off(VARIABLE, "deep programs are compiled in segments"):
        return None
    cut = segments(program, is_called_often)
    if cut is None:
        return None
    executables = all_of([functools.partial(compile_one, kind) for kind in cut.kinds], core_count())
    kinds = dict(zip(cut.kinds, executables, strict=True))
    places = (HOME,) * len(cut.sequence)
    return RegionsExecutable(program, Regions(cut, places), (target,), lambda kind, _: kinds[kind])
