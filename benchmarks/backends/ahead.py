"""Cells compiled by IREE before any of them runs, in as many processes as there are cores.

Nearly all of a cell's time is its compiler's. And a device of Vulkan on lavapipe keeps two threads of its process busy as long
as it lives, so that no compiler should run beside it.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from benchmarks.backends.operations import CASES
from pcp.backends.base import CompilationFailed
from pcp.ir import DType

_TOGETHER = 4
"""So many cells a process is given at once."""


def refusals(place: str, cells: Sequence[tuple[str, DType]]) -> dict[tuple[str, DType], str]:
    """What IREE's compiler says of the cells that it refuses. Code of the others lies in the cache then.

    Arguments:
        place: one of IREE's devices, as `iree:vulkan`.
    """
    processes = min(len(os.sched_getaffinity(0)), 1 + len(cells) // _TOGETHER)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        said = pool.map(_refusal, repeat(place), cells, chunksize=_TOGETHER)
        return {cell: refusal for cell, refusal in zip(cells, said, strict=True) if refusal}


def _refusal(place: str, cell: tuple[str, DType]) -> str:
    from pcp.backends.iree.chips import Chip
    from pcp.backends.iree.compiling import compiled_for

    program = CASES[cell[0]].program(cell[1])
    assert program is not None
    try:
        compiled_for(program, Chip.of(place.removeprefix("iree:")), {}, cache=True)
    except CompilationFailed as error:
        return str(error)
    return ""
