"""Planning on a machine that does something else for seconds at a time: whatever is measured then says little."""

import functools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, add_family, counted, counted_in, use

import pcp
from pcp.backends import Target
from pcp.planning.chosen import searched
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.search.loop import answered

CALM = {"sine": 1e-3, "tanh": 6.1e-4, "logistic": 9e-4, "cosine": 1.2e-3}
WAITING = {"sine": 1.8e-3, "tanh": 1.8e-3, "logistic": 2.0e-3, "cosine": 2.4e-3}
"""What waits for a core takes about as long whatever it computes."""
EQUAL = {"sine": 1e-3, "tanh": 1e-3, "logistic": 1.1e-3, "cosine": 1.2e-3}
MISLEADING = {"sine": 1.8e-3, "tanh": 1.1e-3, "logistic": 1.9e-3, "cosine": 2.0e-3}
"""A kernel that is no faster than the operation, but suffers less from what disturbs the machine."""
STARTING, PREPARING, TIMING, CALLS = 2.0, 0.3, 0.3, 30


@dataclass
class BusyBench(FakeBench):
    """A machine that is calm and busy in turns, and a clock that passes while it measures.

    Arguments:
        seed: of when it is busy.
        calm, busy: seconds of each operation while it is calm or busy.
        calm_for, busy_for: mean seconds.
    """

    seed: int = 0
    calm: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    calm_for: float = 9.0
    busy_for: float = 3.0
    now: float = STARTING
    _ends: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        is_busy = self._rng.random() < self.busy_for / (self.calm_for + self.busy_for)
        self._ends = [0.0, 0.0] if is_busy else [0.0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def is_busy(self) -> bool:
        """Whether it is now; windows end at the times in the list, calm ones first."""
        while self._ends[-1] <= self.now:
            mean = self.busy_for if len(self._ends) % 2 == 0 else self.calm_for
            self._ends.append(self._ends[-1] + self._rng.expovariate(1 / mean))
        return len(self._ends) % 2 == 1

    def measure(self, request: Request) -> Measurement:
        """Take time, and make up a measurement of it."""
        row = super().measure(request)
        self.now += PREPARING
        samples = []
        for _ in range(CALLS):
            seconds = self.busy if self.is_busy() else self.calm
            samples.append(
                [self._total(counts, seconds) for counts in (counted_in(request), counted(request.subject))]
            )
            self.now += TIMING / CALLS
        mine, plain = zip(*samples, strict=True)
        return replace(row, seconds=mine, plain_seconds=plain, when=self.now)

    def _total(self, counts: dict[str, int], seconds: dict[str, float]) -> float:
        return sum(counts[name] * each * self._rng.uniform(1.0, 1.02) for name, each in seconds.items())


@dataclass(frozen=True)
class Plannings:
    """Many plannings that know nothing of each other.

    Arguments:
        chosen: how many chose each kernel; "" is the plain path.
        seconds: of a planning, in the mean.
    """

    chosen: Counter[str]
    seconds: float

    def share(self, kernel: str) -> float:
        return self.chosen[kernel] / self.chosen.total()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> Callable[..., Plannings]:
    """Plan a program of one operation on many machines, one after another."""
    add_family(monkeypatch)
    program = pcp.trace(pcp.sin, pcp.spec((4, 4), "f32"))
    target = Target.of()

    def function(
        count: int, seconds: dict[str, float], busy: dict[str, float], budget: float = 300.0
    ) -> Plannings:
        chosen: Counter[str] = Counter()
        total = 0.0
        for seed in range(count):
            bench = BusyBench(calm=seconds, busy=busy, seed=seed)
            use(bench, monkeypatch)
            monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda bench=bench: bench.now)
            monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", bench.sleep)
            database = tmp_path / f"{seed}.sqlite"
            conditions = Conditions(target, target.capacity, database, budget)
            with evidence_of(conditions) as evidence:
                search = functools.partial(searched, program, 1e-2, conditions, ())
                path = answered(search, evidence)[0].path
            database.unlink()
            chosen[", ".join(choice.kernel for choice in path.choices.values())] += 1
            total += bench.now
        print(f"{dict(chosen)} in {total / count:.2f} s each")
        return Plannings(chosen, total / count)

    return function


PLANNINGS = [25, pytest.param(200, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", PLANNINGS)
def test_the_fastest_path_is_found_on_a_machine_that_is_busy_for_seconds(
    planned: Callable[..., Plannings], count: int
) -> None:
    """When all calls made in one go counted as many, 70 % of 200 plannings found it."""
    assert planned(count, CALM, WAITING).share("sine.fast") >= 0.9


def test_a_kernel_that_only_suffers_less_from_what_disturbs_is_seldom_taken(
    planned: Callable[..., Plannings],
) -> None:
    """It is where the machine is busy from the first measurement to the last: what is calm was never seen then."""
    assert planned(25, EQUAL, MISLEADING).share("") >= 0.85


def test_a_calm_machine_is_not_waited_for(planned: Callable[..., Plannings]) -> None:
    """Three kernels, the whole twice, and a duel: nothing is measured once more, and pauses are short."""
    found = planned(5, CALM, CALM)
    assert found.share("sine.fast") == 1.0
    assert found.seconds < STARTING + 6.5 * (PREPARING + TIMING) + 0.5


def test_nobody_waits_beyond_the_budget(planned: Callable[..., Plannings]) -> None:
    """Without a budget, three kernels that are no faster are followed by pauses of six seconds."""
    patient, hasty = (planned(3, EQUAL, EQUAL, budget) for budget in (300.0, 4.0))
    assert patient.share("") == hasty.share("") == 1.0
    assert patient.seconds > STARTING + 3 * (PREPARING + TIMING) + 6.0
    assert hasty.seconds < STARTING + 4.0 + PREPARING + TIMING
