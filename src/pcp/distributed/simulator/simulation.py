"""One simulated run: the coordinator and the workers under virtual time, with everything that goes wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from pcp.distributed.coordinator.events import BlobStored
from pcp.distributed.messages import Blob, Hello
from pcp.distributed.simulator import training
from pcp.distributed.simulator.clock import VirtualClock
from pcp.distributed.simulator.memory_storage import MemoryStorage
from pcp.distributed.simulator.network import SHEPHERD, WORKER, Network
from pcp.distributed.simulator.observer import InvariantViolated, Observer
from pcp.distributed.simulator.scenario import Fault, Scenario
from pcp.distributed.simulator.shepherd_process import ShepherdProcess
from pcp.distributed.simulator.worker_process import WorkerProcess
from pcp.errors import PCPError


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
        parameters: the final ones.
    """

    seconds: float
    actions: int
    rounds: int
    epochs: int
    parameters: bytes


class Simulation:
    """The simulated world.

    Arguments:
        scenario: decides everything.
        trace: called with a line for every event and effect.
    """

    def __init__(self, scenario: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed)
        self.clock = VirtualClock()
        self.network = Network(self.clock, self.random, scenario.delay_seconds, scenario.jitter_seconds)
        self.storage = MemoryStorage(self.random)
        self.observer = Observer()
        self.blobs: dict[Blob, bytes] = {}
        self._trace = trace
        self._incarnations = 0
        self._shepherd: ShepherdProcess | None = None
        self._transfers_fail_until = 0.0
        self._result: tuple[str, Blob] | None = None
        self._workers = [self._new_worker(index) for index in range(len(scenario.step_seconds))]

    def run(self) -> Outcome:
        """Simulate until the run is complete.

        Raises:
            SimulationFailed: with the seed and what went wrong.
        """
        try:
            self._start_shepherd(power_lost=False)
            for worker in self._workers:
                self.clock.after(self.random.uniform(0.0, 2.0), worker.start)
            for fault in self.scenario.faults:
                self.clock.at(fault.time, partial(self._strike, fault))
            self.clock.run(self.scenario.limit_seconds, lambda: self._result is not None)
            return self._outcome()
        except Exception as error:
            raise SimulationFailed(
                f"seed {self.scenario.seed}, {self.clock.now:.3f} s: {type(error).__name__}: {error}; replay it with "
                f"python -m pcp.distributed.simulator --first {self.scenario.seed} --trace"
            ) from error

    def _outcome(self) -> Outcome:
        shadow = self.observer.shadow
        if self._result is None or shadow is None:
            raise InvariantViolated(
                f"the run is not complete after {self.scenario.limit_seconds:.0f} s, but in "
                f"{'no round' if shadow is None else f'round {shadow.round} ({shadow.phase})'}"
            )
        failure, parameters = self._result
        if failure:
            raise InvariantViolated(f"the run failed: {failure}")
        self.observer.ended(self.blobs[parameters], self.scenario.config)
        return Outcome(
            self.clock.now, self.clock.performed, shadow.version, shadow.epoch, self.blobs[parameters]
        )

    def trace(self, who: str, what: object) -> None:
        """Write down what happens, if somebody wants to know."""
        if self._trace is not None:
            self._trace(f"{self.clock.now:10.3f} {who:10} {what}")

    def store(self, content: bytes) -> Blob:
        """Store a blob, durably."""
        blob = training.blob_of(content)
        self.blobs[blob] = content
        return blob

    def keep_only(self, needed: frozenset[Blob]) -> None:
        """Delete the blobs that a restarted Shepherd does not need."""
        self.blobs = {blob: content for blob, content in self.blobs.items() if blob in needed}

    def upload(self, content: bytes) -> None:
        """Store what a worker uploads, and tell the Shepherd."""
        blob = self.store(content)
        if self._shepherd is not None:
            self._shepherd.post(lambda now: BlobStored(now, blob))

    def failing_transfers(self) -> bool:
        """Return whether transfers and training are unreliable now."""
        return self.clock.now < self._transfers_fail_until

    def transfer_fails(self, worker: str) -> bool:
        """Return whether a transfer between a worker and the Shepherd fails now."""
        unreliable = self.failing_transfers() and self.random.random() < 0.5
        return self._shepherd is None or self.network.blocked(worker) or unreliable

    def finished(self, failure: str, parameters: Blob) -> None:
        """Take note that the Shepherd says the run is over."""
        self._result = failure, parameters

    def crash_shepherd(self, power_lost: bool) -> None:
        """Stop the Shepherd's process, and start another later."""
        process, self._shepherd = self._shepherd, None
        if process is None:
            return
        self.trace("shepherd", "power lost" if power_lost else "killed")
        process.alive = False
        self.network.shepherd = None
        self.network.vanish(process, silent=power_lost)
        if power_lost:
            self.storage.cut_power()
        self.storage.tear_next = False
        self.clock.after(self.random.uniform(0.2, 12.0), lambda: self._start_shepherd(power_lost))

    def _start_shepherd(self, power_lost: bool) -> None:
        self._free_disk()
        self._shepherd = ShepherdProcess(self, power_lost)
        self._shepherd.start()

    def _free_disk(self) -> None:
        self.storage.full = False

    def _new_worker(self, index: int) -> WorkerProcess:
        self._incarnations += 1
        return WorkerProcess(self, index, self._incarnations)

    def _replace_worker(self, index: int) -> None:
        self._workers[index] = self._new_worker(index)
        self._workers[index].start()

    def _stop(self, process: WorkerProcess) -> None:
        process.alive = False
        self.network.vanish(process, silent=self.random.random() < 0.5)

    def _strike(self, fault: Fault) -> None:
        self.trace("fault", fault)
        worker = self._workers[fault.worker]
        match fault.kind:
            case "crash worker":
                if worker.alive:
                    self._stop(worker)
                    self.clock.after(fault.seconds, lambda: self._replace_worker(fault.worker))
            case "lose worker" if fault.worker > 0:  # one stays, or the run could never end
                if worker.alive:
                    self._stop(worker)
            case "pause worker":
                worker.pause(fault.seconds)
            case "slow worker":
                worker.slow_down(fault.seconds)
            case "hostile update":
                worker.turn_hostile(fault.seconds)
            case "zombie worker":
                self.clock.after(fault.seconds, lambda: self._stop(worker))
                worker.pause(fault.seconds / 2)
                self._replace_worker(fault.worker)
            case _:
                self._strike_network(fault, worker)
                self._strike_shepherd(fault)

    def _strike_network(self, fault: Fault, worker: WorkerProcess) -> None:
        name = worker.name
        match fault.kind:
            case "cut connection":
                for number in self.network.connections_of(name):
                    self.network.cut(number, late_seconds=fault.seconds * (fault.count % 2))
            case "partition":
                self.network.block(name, SHEPHERD, fault.seconds)
                self.network.block(name, WORKER, fault.seconds)
            case "one-way partition":
                self.network.block(name, (SHEPHERD, WORKER)[fault.count % 2], fault.seconds)
            case "duplicate hello":
                if isinstance(worker.hello, Hello):
                    self.network.duplicate_hello(name, worker.hello)
            case "failing transfers":
                self._transfers_fail_until = self.clock.now + fault.seconds

    def _strike_shepherd(self, fault: Fault) -> None:
        if self._shepherd is None:
            return
        match fault.kind:
            case "crash shepherd":
                self._shepherd.crash_after(fault.count, power_lost=False)
            case "cut power":
                self._shepherd.crash_after(fault.count, power_lost=True)
            case "crash shepherd in a write":
                self.storage.tear_next = True
            case "full disk":
                self.storage.full = True
                self.clock.after(fault.seconds, self._free_disk)
            case "pause shepherd":
                self._shepherd.pause(fault.seconds)


def simulate(scenario: Scenario, trace: Callable[[str], None] | None = None) -> Outcome:
    """Return what comes of a schedule.

    Arguments:
        scenario: see `scenario_of`.
        trace: called with a line for every event and effect.

    Raises:
        SimulationFailed: with the seed and what went wrong.
    """
    return Simulation(scenario, trace).run()
