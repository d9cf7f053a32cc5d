"""Two programs are timed in turn on arguments that differ each time."""

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pcp.backends import ExecutionFailed, OutOfMemory, Target
from pcp.ir import Argument, Role, TensorSpec
from pcp.ir.types import DType
from pcp.planning.measuring import timing
from pcp.planning.measuring.timing import Runnable, Variations, times_in_turn

ARGUMENTS = (
    Argument("large", TensorSpec((64,), DType.f32), Role.input),
    Argument("small", TensorSpec((3,), DType.bf16), Role.input),
    Argument("index", TensorSpec((), DType.i32), Role.input),
)
TARGET = Target.of()


def placed() -> list[Any]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(64), rng.standard_normal(3), np.array(1)]
    return [
        TARGET.place(array.astype(entry.spec.dtype.numpy), entry.spec)
        for array, entry in zip(arrays, ARGUMENTS, strict=True)
    ]


class Clock:
    """Time that passes only when a program runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Program:
    """Takes the seconds that it is told, and notes what it was given."""

    def __init__(self, clock: Clock, seconds: Sequence[float], log: list[Any]) -> None:
        self.clock, self.seconds, self.log = clock, itertools.cycle(seconds), log

    def run(self, buffers: Sequence[Any]) -> list[Any]:
        self.clock.now += next(self.seconds)
        self.log.append((self, np.asarray(buffers[1]).tobytes()))
        return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "time", made)
    return made


def timed(
    clock: Clock,
    first: Sequence[float],
    second: Sequence[float],
    calls: int,
    seconds: float,
    rival: float | None = None,
) -> tuple[Any, Any]:
    log: list[Any] = []
    programs = [Program(clock, first, log), Program(clock, second, log)]
    runnables = [Runnable(program, ARGUMENTS) for program in programs]
    variations = Variations(ARGUMENTS, placed(), TARGET)
    found = times_in_turn(runnables, variations, TARGET, calls, seconds, rival=rival)
    return found, [("first" if program is programs[0] else "second", given) for program, given in log]


def test_they_run_in_alternating_order_on_arguments_not_seen_before(clock: Clock) -> None:
    found, log = timed(clock, [1.0], [2.0], 5, 100)
    assert found == [[1.0] * 5, [2.0] * 5]
    warm_up, order = log[:2], [name for name, _ in log[2:]]
    assert [name for name, _ in warm_up] == ["first", "second"]
    assert order[:8] == ["first", "second", "second", "first", "first", "second", "second", "first"]
    given = [arguments for _, arguments in log[2:]]
    assert given[0::2] == given[1::2]  # both get the same
    assert len(set(given)) == len(given) / 2


def test_a_short_program_is_called_often_for_a_sample(clock: Clock) -> None:
    found, log = timed(clock, [1e-4], [1e-4], 3, 1.0)
    assert len(log) == 2 + 2 * 5 * len(found[0])
    assert found[0] == pytest.approx([1e-4] * len(found[0]))


def test_it_ends_when_the_time_is_up_but_not_before_three(clock: Clock) -> None:
    assert [len(each) for each in timed(clock, [10.0], [10.0], 7, 1.0)[0]] == [3, 3]
    assert [len(each) for each in timed(clock, [10.0], [10.0], 1, 1.0)[0]] == [1, 1]


def test_noise_is_sampled_for_longer_up_to_a_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = [1.0, 1.4, 1.1, 1.3, 1.2, 1.0, 1.5]
    monkeypatch.setattr(timing, "MOST_SAMPLES", 20)
    assert len(timed(clock, noisy, list(reversed(noisy)), 5, 30.0)[0][0]) > 10
    assert len(timed(clock, noisy, list(reversed(noisy)), 5, 1e9)[0][0]) <= 20
    assert len(timed(clock, noisy, [5.0], 5, 1e9)[0][0]) == 5  # it is decided


def test_a_candidate_is_timed_closely_unless_its_rival_is_surely_faster(clock: Clock) -> None:
    noisy, plain = [1.0, 1.2, 1.1, 1.3, 1.05, 1.25], [2.0, 2.5, 2.2, 2.4, 2.1]  # about half the plain time

    def samples(rival: float | None) -> int:
        return len(timed(clock, noisy, plain, 5, 1e9, rival)[0][0])

    assert samples(None) == 5  # it is faster than the plain program
    assert samples(0.3) == timing.FEWEST_BEATEN
    assert samples(0.6) == samples(math.inf) > 3 * timing.FEWEST_BEATEN


def test_variations_change_the_smallest_floats_only() -> None:
    original = placed()
    variations = Variations(ARGUMENTS, original, TARGET)
    lists = [variations.next() for _ in range(4)]
    for each in lists:
        assert each[0] is original[0]
        assert each[2] is original[2]
    small = [np.asarray(each[1]).astype(np.float32) for each in lists]
    assert all(np.sum(a != b) == 1 for a, b in itertools.pairwise(small))
    integers = Variations(ARGUMENTS[2:], original[2:], TARGET)
    assert integers.next() == original[2:]


def test_what_is_consumed_is_a_copy() -> None:
    donated = [Argument("large", TensorSpec((64,), DType.f32), Role.state, alias=0), *ARGUMENTS[1:]]
    seen: list[Any] = []

    class Echo:
        def run(self, buffers: Sequence[Any]) -> list[Any]:
            seen.extend(buffers)
            return list(buffers)

    buffers = placed()
    results, _ = timing.timed(Runnable(Echo(), donated), buffers, TARGET)
    assert seen[0] is not buffers[0]
    assert seen[1:] == buffers[1:]
    np.testing.assert_array_equal(results[0], buffers[0])


@pytest.mark.parametrize(
    ("words", "kind"),
    [("RESOURCE_EXHAUSTED: no room", OutOfMemory), ("UNIMPLEMENTED: bf16", ExecutionFailed)],
)
def test_a_device_may_say_late_that_it_failed(words: str, kind: type[Exception]) -> None:
    class Late:
        def block_until_ready(self) -> None:
            raise RuntimeError(words)

    with pytest.raises(kind, match=f"the device stopped: {words}"):
        TARGET.runner.wait([Late()])


def test_real_time_passes() -> None:
    assert timing.time is time


def test_copies_of_what_a_call_consumes_are_made_before_it_is_timed(clock: Clock) -> None:
    donated = [Argument("large", TensorSpec((64,), DType.f32), Role.state, alias=0), *ARGUMENTS[1:]]

    class Copy:
        """Memory that is filled by the time it is waited for."""

        def __init__(self) -> None:
            self.is_there = False

        def block_until_ready(self) -> None:
            clock.now += 0.0 if self.is_there else 5.0
            self.is_there = True

    class Copying:
        """A device that copies while its caller goes on."""

        runner = TARGET.runner

        def place(self, array: Any, spec: TensorSpec) -> Any:
            return Copy() if spec.shape == (64,) else TARGET.place(array, spec)

    class Stepping:
        def run(self, buffers: Sequence[Any]) -> list[Any]:
            buffers[0].block_until_ready()
            clock.now += 1.0
            return []

    target: Any = Copying()
    runnables = [Runnable(Stepping(), donated)] * 2
    variations = Variations(donated, placed(), target)
    assert times_in_turn(runnables, variations, target, 3, 100.0) == [[1.0] * 3, [1.0] * 3]
