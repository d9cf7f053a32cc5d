"""One simulated run: the coordinator and the workers under virtual time, with everything that goes wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from pcp.distributed.messages import Blob
from pcp.distributed.simulator.arrays.course import ArrayCourse
from pcp.distributed.simulator.clock import VirtualClock
from pcp.distributed.simulator.course import Course
from pcp.distributed.simulator.faults import Faults
from pcp.distributed.simulator.machines.machine import machine
from pcp.distributed.simulator.machines.memory_storage import MemoryStorage
from pcp.distributed.simulator.network import Network
from pcp.distributed.simulator.numbers.course import NumberCourse
from pcp.distributed.simulator.observer import Observer
from pcp.distributed.simulator.scenario import HORIZON_SECONDS, Scenario
from pcp.distributed.simulator.shepherd_process import ShepherdProcess
from pcp.distributed.simulator.stranger import Stranger
from pcp.distributed.simulator.witness import InvariantViolated
from pcp.distributed.simulator.worker_process import WorkerProcess
from pcp.errors import PCPError

Trace = Callable[[float, str, object], None]


class SimulationFailed(PCPError):
    """A simulated run broke an invariant, did not end, or raised an exception."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a simulated run that kept all invariants.

    Arguments:
        seconds: virtual time until it was complete.
        actions: things that happened.
        rounds: outer steps.
        epochs: Shepherd processes.
        retrained: batches trained more often than once, as a share of all batches of the plan.
        parameters: the final ones, by fragment.
    """

    seconds: float
    actions: int
    rounds: int
    epochs: int
    retrained: float
    parameters: tuple[Any, ...]


SPEAKING = 4
"""In one schedule of so many, control connections carry the bytes that they carry in production."""


class Simulation:
    """The simulated world.

    Arguments:
        scenario: decides everything.
        trace: called with every event and effect, by whom, when.
    """

    def __init__(self, scenario: Scenario, trace: Trace | None = None) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed)
        self.clock = VirtualClock()
        self.network = Network(
            self.clock,
            self.random,
            scenario.delay_seconds,
            scenario.jitter_seconds,
            speaks=scenario.seed % SPEAKING == 1,
        )
        self.course = course_of(scenario)
        self.witness = self.course.witness(scenario.config)
        self.observer = Observer(self.witness, self._value_of)
        self.faults = Faults(self)
        self.shepherd: ShepherdProcess | None = None
        self.shepherd_machine = machine(
            self.clock, self.random, self.course, partial(self.crash_shepherd, power_lost=True)
        )
        self.storage = MemoryStorage(self.shepherd_machine.disk)
        self.worker_machines = [
            machine(self.clock, self.random, self.course, partial(self.cut_worker_power, index, 3.0), rate)
            for index, rate in enumerate(scenario.clock_rates)
        ]
        self.stranger = Stranger(self)
        self._trace = trace
        self._incarnations = 0
        self._result: tuple[Blob, ...] | None = None
        self.workers = [self._new_worker(index) for index in range(len(scenario.step_seconds))]

    def run(self) -> Outcome:
        """Simulate until the run is complete.

        Raises:
            SimulationFailed: with the seed and what went wrong.
        """
        try:
            self._start_shepherd(power_lost=False)
            for worker in self.workers:
                self.clock.after(self.random.uniform(0.0, 2.0), worker.start)
            for fault in self.scenario.faults:
                self.clock.at(fault.time, partial(self.faults.due, fault))
            self.clock.at(HORIZON_SECONDS, self.faults.heal)
            self.clock.run(self.scenario.limit_seconds, lambda: self._result is not None)
            return self._outcome()
        except Exception as error:
            raise SimulationFailed(
                f"seed {self.scenario.seed}, {self.clock.now:.3f} s: {type(error).__name__}: {error}; replay it with "
                f"python -m pcp.distributed.simulator --first {self.scenario.seed} --trace"
            ) from error
        finally:
            for each in (self.shepherd_machine, *self.worker_machines):
                each.blobs.close()

    def _value_of(self, fragment: int, blob: Blob) -> Any:
        return self.course.value(self.shepherd_machine.blobs, fragment, blob)

    def _outcome(self) -> Outcome:
        shadow = self.observer.shadow
        if self._result is None or shadow is None:
            flight = "" if shadow is None else f", in flight {shadow.in_flight}"
            raise InvariantViolated(
                f"the run is not complete after {self.scenario.limit_seconds:.0f} s, but has "
                f"{0 if shadow is None else shadow.version} rounds behind it{flight}"
            )
        parameters = tuple(self._value_of(fragment, blob) for fragment, blob in enumerate(self._result))
        self.witness.ended(parameters)
        return Outcome(
            seconds=self.clock.now,
            actions=self.clock.performed,
            rounds=shadow.version,
            epochs=shadow.epoch,
            retrained=self.witness.trained_batches / self.scenario.config.batches - 1,
            parameters=parameters,
        )

    def trace(self, who: str, what: object) -> None:
        """Write down what happens, if somebody wants to know."""
        if self._trace is not None:
            self._trace(self.clock.now, who, what)

    def finished(self, failure: str, parameters: tuple[Blob, ...]) -> None:
        """Take note that the Shepherd says the run is over.

        Raises:
            InvariantViolated: the run failed.
        """
        if not failure:
            self._result = parameters
        else:
            raise InvariantViolated(f"the run failed: {failure}")

    def crash_shepherd(self, power_lost: bool) -> None:
        """Stop the Shepherd's process, and start another later."""
        process, self.shepherd = self.shepherd, None
        if process is None:
            return
        self.trace("shepherd", "power lost" if power_lost else "killed")
        process.alive = False
        self.network.shepherd = None
        self.network.vanish(process, silent=power_lost)
        if power_lost:
            self.storage.cut_power()
            self.shepherd_machine.blobs.cut_power()
        self.shepherd_machine.disk.tear_next = False
        self.clock.after(self.random.uniform(0.2, 12.0), partial(self._start_shepherd, power_lost))

    def _start_shepherd(self, power_lost: bool) -> None:
        self.shepherd_machine.disk.heal()
        self.shepherd = ShepherdProcess(self, power_lost)
        self.shepherd.start()

    def index_of(self, worker: str) -> int:
        """Return the index of the worker of a name."""
        return int(worker.removeprefix("worker-"))

    def _new_worker(self, index: int) -> WorkerProcess:
        self._incarnations += 1
        return WorkerProcess(self, index, self._incarnations)

    def replace_worker(self, index: int) -> None:
        """Start a new process of a worker."""
        self.workers[index] = self._new_worker(index)
        self.workers[index].start()

    def _restart_worker(self, index: int) -> None:
        if not self.workers[index].alive:  # two for ever would fence each other for ever
            self.replace_worker(index)

    def stop_worker(self, process: WorkerProcess, back_after: float | None) -> None:
        """Stop a worker's process; another one of it may start later."""
        if not process.alive:
            return
        process.alive = False
        self.network.vanish(process, silent=self.random.random() < 0.5)
        if back_after is not None:
            self.clock.after(back_after, partial(self._restart_worker, self.index_of(process.name)))

    def cut_worker_power(self, index: int, seconds: float) -> None:
        """Stop a worker's machine for some time."""
        self.worker_machines[index].blobs.cut_power()
        self.worker_machines[index].disk.heal()
        self.stop_worker(self.workers[index], back_after=seconds)


def course_of(scenario: Scenario) -> Course:
    """How the run of a scenario trains."""
    algorithm = scenario.config.algorithm
    return ArrayCourse(algorithm) if scenario.arrays else NumberCourse(algorithm)


def simulate(scenario: Scenario, trace: Trace | None = None) -> Outcome:
    """Return what comes of a schedule.

    Arguments:
        trace: called with every event and effect, by whom, when.

    Raises:
        SimulationFailed: with the seed and what went wrong.
    """
    return Simulation(scenario, trace).run()
