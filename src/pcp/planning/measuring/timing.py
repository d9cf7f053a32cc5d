"""Timing two ways to run a program in turn, so that what disturbs the machine disturbs both.

Every call is on arguments that were not seen before: what only remembers its last results gains nothing.
"""

import functools
import itertools
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends import Executable, Target
from pcp.backends.base import Buffer
from pcp.backends.regions.bound import Rebinding
from pcp.ir import Argument, DType, TensorSpec
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import convert
from pcp.planning.measuring.significance import upper_ratio
from pcp.tracing import spec, trace

SAMPLE_SECONDS = 5e-4
"""A sample is a call, or as many calls as take this long."""
MOST_CALLS = 200
MOST_SAMPLES = 60
"""Of a fast program; more are not worth keeping."""
MOST_RANKED = 100
"""Of one that is compared with others."""
PRECISE = 0.01
"""A confidence interval of the ratio that is narrower needs no further samples."""
DECIDED = 0.9
"""Nor does one that is beyond this, or its inverse."""
FEWEST_BEATEN = 8
"""Samples of a candidate before it is given up for a faster one: few are all disturbed at once."""
_CHECK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Runnable:
    """A way to run a program: the compiled form, and which arguments it consumes.

    Arguments:
        elsewhere: where it runs, if not on the target that arguments come from: they are placed there before the clock starts.
    """

    executable: Executable
    arguments: Sequence[Argument]
    elsewhere: Target | None = None


def timed(runnable: Runnable, buffers: Sequence[Buffer], target: Target) -> tuple[list[Buffer], float]:
    """The results of one call that leaves its arguments as they are, and its seconds."""
    arguments = _kept(runnable, buffers, target)
    wait = (runnable.elsewhere or target).runner.wait
    wait(arguments)
    began = time.perf_counter()
    results = runnable.executable.run(arguments)
    wait(results)
    took = time.perf_counter() - began
    if runnable.elsewhere is not None:
        results = [target.place(np.asarray(each), _spec(each)) for each in results]
    return results, took


class Variations:
    """Endless arguments that differ in one element of the smallest array of floats.

    Arguments:
        buffers: one list of arguments on the device.
        fixed: the places of those that stay as they are.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        buffers: Sequence[Buffer],
        target: Target,
        fixed: Collection[int] = (),
    ) -> None:
        self._buffers = list(buffers)
        self._target = target
        floats = [
            (entry.spec.size, index)
            for index, entry in enumerate(arguments)
            if entry.spec.dtype.is_differentiable and entry.spec.size and index not in fixed
        ]
        self._index = min(floats)[1] if floats else None
        self._count = itertools.count()
        if self._index is not None:
            self._spec = arguments[self._index].spec
            self._values = np.array(buffers[self._index]).reshape(-1)
            self._rng = np.random.default_rng(0)

    def next(self) -> list[Buffer]:
        """The next list of arguments."""
        if self._index is None:
            return self._buffers
        place = next(self._count) % self._spec.size
        factor = self._rng.uniform(0.5, 1.5)
        self._values[place] = (self._values[place] or 1e-3) * self._values.dtype.type(factor)
        changed = self._target.place(self._values.reshape(self._spec.shape), self._spec)
        arguments = list(self._buffers)
        arguments[self._index] = changed
        return arguments


def times_in_turn(
    runnables: Sequence[Runnable],
    variations: Variations,
    target: Target,
    calls: int,
    seconds: float,
    known: Sequence[Sequence[float]] = ((), ()),
    spare: Sequence[float] = (),
    rival: float | None = None,
) -> list[list[float]]:
    """Seconds of a call of each of two, sample by sample in turn, in alternating order.

    It ends when the ratio of the two is known well enough, or the time is up; there are always three samples or `calls`,
    whichever is less.

    Arguments:
        calls: samples of each, unless the time is up.
        seconds: to spend on all.
        known: samples that were taken in turn already, of one call each; where there are some, both are warm.
        spare: samples of the second that were taken before, which stand for calls of it.
        rival: as in `Request`; the first of the two is the candidate.
    """
    most = MOST_SAMPLES if rival is None else MOST_RANKED
    began = time.perf_counter()
    per_sample = 1 if known[0] else _calls_per_sample(runnables, variations, target)
    samples = [list(each) for each in known]
    left = list(spare)
    order = list(range(len(runnables)))
    checked = began
    while True:
        arguments = [variations.next() for _ in range(per_sample)]
        for which in order:
            if which and left:
                samples[which].append(left.pop())
                continue
            prepared = [_kept(runnables[which], buffers, target) for buffers in arguments]
            samples[which].append(_seconds(runnables[which], prepared, target))
            del prepared
        order.reverse()
        now = time.perf_counter()
        count = len(samples[0])
        if count >= most or (now - began > seconds and count >= min(3, calls)):
            return samples
        if count >= calls and now - checked > _CHECK_SECONDS:  # deciding takes time of its own
            if _is_known(samples, rival):
                return samples
            checked = time.perf_counter()


def _calls_per_sample(runnables: Sequence[Runnable], variations: Variations, target: Target) -> int:
    """Also warms up. A call that consumes arguments needs copies of them, so there is one in a sample."""
    fastest = math.inf
    for runnable in runnables:
        buffers = _kept(runnable, variations.next(), target)
        fastest = min(fastest, _seconds(runnable, [buffers], target))
    if any(entry.alias is not None for runnable in runnables for entry in runnable.arguments):
        return 1
    return max(1, min(MOST_CALLS, math.ceil(SAMPLE_SECONDS / max(fastest, 1e-7))))


def _seconds(runnable: Runnable, prepared: Sequence[Sequence[Buffer]], target: Target) -> float:
    run, wait = runnable.executable.run, (runnable.elsewhere or target).runner.wait
    for buffers in prepared:  # copies of what a call consumes are made meanwhile, and are no part of its time
        wait(buffers)
    began = time.perf_counter()
    for buffers in prepared:
        wait(run(buffers))
    return (time.perf_counter() - began) / len(prepared)


def _is_known(samples: Sequence[Sequence[float]], rival: float | None) -> bool:
    """Whether further samples would change no decision."""
    first, second = samples
    above, below = upper_ratio(first, second), 1 / upper_ratio(second, first)
    if above / below < 1 + PRECISE:
        return True
    if rival is None:
        return above < DECIDED or below > 1 / DECIDED
    return below > rival and len(first) >= FEWEST_BEATEN


def _kept(runnable: Runnable, buffers: Sequence[Buffer], target: Target) -> list[Any]:
    """The buffers of one call, those that it consumes as copies; of one elsewhere all. What it computes once is computed."""
    if runnable.elsewhere is not None:
        pairs = zip(buffers, runnable.arguments, strict=True)
        return [runnable.elsewhere.place(np.asarray(buffer), entry.spec) for buffer, entry in pairs]
    kept = [
        buffer if entry.alias is None else target.place(as_taken(buffer, entry.spec, target), entry.spec)
        for entry, buffer in zip(runnable.arguments, buffers, strict=True)
    ]
    if isinstance(runnable.executable, Rebinding):
        runnable.executable.rebind(kept)
    return kept


def as_taken(buffer: Buffer, expected: TensorSpec, target: Target) -> Buffer:
    """A buffer in the element type of what is taken, rounded to the nearest where that has fewer bits."""
    if dtype_of(buffer.dtype) is expected.dtype:
        return buffer
    return _converting(_spec(buffer), expected.dtype, target).run([buffer])[0]


@functools.lru_cache(maxsize=64)
def _converting(given: TensorSpec, dtype: DType, target: Target) -> Executable:
    return target.compile(trace(lambda x: convert(x, dtype), spec(given.shape, given.dtype)))


def _spec(buffer: Buffer) -> TensorSpec:
    return TensorSpec(tuple(buffer.shape), dtype_of(buffer.dtype))
