"""Whether a path computes in the user's process what it computed where it was measured.

The compiled form that the user will call is called once, and the plain program beside it. What differs by more than the
tolerance explains is no path here, whatever a child process measured of it.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp import backends
from pcp.backends import Device, ExecutionFailed, OutOfMemory
from pcp.backends.base import Buffer
from pcp.planning.distances import distance, scale_of
from pcp.planning.path import Path
from pcp.planning.random_inputs import Recipe, random_arguments
from pcp.planning.timing import Runnable, timed
from pcp.planning.whole import Whole

log = logging.getLogger("pcp.planning.search")

TIMES = 4.0
"""How many tolerances the results may lie apart from the plain ones: other rows are judged more closely, in float64."""
NUDGE = 2.0**-20
"""The relative change of the arguments by which is found out which results amplify it."""
FEWEST = 16
"""Elements of a result from which on its relative error says something."""

Array = np.ndarray[Any, Any]
_compared: set[tuple[str, str, str]] = set()


def difference_here(whole: Whole, path: Path, device: Device) -> str | None:
    """What is different in this process, if anything; a path is compared once.

    Arguments:
        whole: the program and its tolerance.
        path: one that was found for it.
        device: where it will run.
    """
    key = (path.digest, whole.subject, str(device))
    if path.is_plain or key in _compared:
        return None
    try:
        found = _difference(whole, path, device)
    except OutOfMemory as error:
        log.warning(
            "the path was not compared in this process, which has too little memory for that: %s", error
        )
        return None
    except ExecutionFailed as error:
        return f"it does not run: {error}"
    if found is None:
        _compared.add(key)
    return found


def _difference(whole: Whole, path: Path, device: Device) -> str | None:
    backend, program = backends.backend(), whole.program
    compiled = []
    for each in (program, path.applied(program)):
        executable = backend.compile(each, device, dict(path.options), cache=True)
        compiled.append(Runnable(executable, each.arguments))
    plain, mine = compiled

    def placed(arrays: Sequence[Array]) -> list[Buffer]:
        return [
            backend.place(array, entry.spec, device, alias=False)
            for array, entry in zip(arrays, program.arguments, strict=True)
        ]

    def called(runnable: Runnable, buffers: Sequence[Buffer]) -> list[Array]:
        return [np.asarray(result) for result in timed(runnable, buffers, backend, device)[0]]

    arrays = _arguments(whole)
    buffers = placed(arrays)
    expected, found = called(plain, buffers), called(mine, buffers)
    limit = TIMES * whole.tolerance
    errors = [_distance(y, right, whole.tolerance) for y, right in zip(found, expected, strict=True)]
    if all(error <= limit for error in errors):
        return None
    amplified = [0.0] * len(errors)
    if whole.tolerance:  # some results are nothing but roundings, and any two paths disagree on them
        nudged = called(plain, placed(_nudged(arrays)))
        amplified = [
            _distance(y, right, whole.tolerance) / NUDGE for y, right in zip(nudged, expected, strict=True)
        ]
    for place, (error, factor) in enumerate(zip(errors, amplified, strict=True)):
        if error > limit * max(1.0, factor):
            name = program.results[place].name or str(place)
            return f"result {name} differs by {error:.3g} from that of the plain program; the tolerance is {whole.tolerance:g}"
    return None


def _arguments(whole: Whole) -> list[Array]:
    inputs = whole.inputs
    if isinstance(inputs, Recipe):
        return random_arguments(whole.program.arguments, replace(inputs, warm_calls=0), 0)
    return [np.asarray(array) for array in inputs[0]]


def _nudged(arrays: Sequence[Array]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [
        (array * (1.0 + NUDGE * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype)
        if array.dtype.kind in "fcV" and array.dtype.itemsize >= 4
        else array
        for array in arrays
    ]


def _distance(y: Array, right: Array, tolerance: float) -> float:
    if not tolerance:
        return 0.0 if y.tobytes() == right.tobytes() else math.inf
    if y.dtype.kind not in "fcV" or y.size < FEWEST:
        return 0.0
    return distance(y, right, scale_of(right)).error
