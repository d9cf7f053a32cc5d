"""What goes wrong in a simulated world, and when: at a time, or inside the transfer that is under way then."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pcp.distributed.messages import Hello
from pcp.distributed.simulator.network import SHEPHERD, WORKER
from pcp.distributed.simulator.scenario import Fault

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation


class Faults:
    """The faults of a schedule, as they strike.

    `inside` holds the kinds that struck between two chunks of a transfer.
    """

    def __init__(self, world: "Simulation") -> None:
        self._world = world
        self.inside: set[str] = set()
        self._waiting: list[Fault] = []
        self._transfers_fail_until = 0.0
        self._training_fails_until = 0.0

    @property
    def transfers_fail(self) -> bool:
        """Whether transfers are unreliable now."""
        return self._world.clock.now < self._transfers_fail_until

    @property
    def training_fails(self) -> bool:
        """Whether training is unreliable now."""
        return self._world.clock.now < self._training_fails_until

    def due(self, fault: Fault) -> None:
        """Let a fault strike now, or inside the next transfer that moves enough chunks."""
        if fault.at_chunk:
            self._waiting.append(fault)
        else:
            self._strike(fault)

    def heal(self) -> None:
        """Forget the faults that still wait for a transfer."""
        self._waiting.clear()

    def chunk_passed(self, worker: str) -> None:
        """Take note that a chunk is about to be taken in a transfer of a worker."""
        world = self._world
        if self.transfers_fail and world.random.random() < 0.15:
            for number in world.network.connections_of(worker):
                world.network.cut(number)
        if self._waiting:
            counted = [replace(fault, at_chunk=fault.at_chunk - 1) for fault in self._waiting]
            self._waiting = [fault for fault in counted if fault.at_chunk > 0]
            for fault in counted:
                if fault.at_chunk == 0:
                    self.inside.add(fault.kind)
                    self._strike(replace(fault, worker=world.index_of(worker)))

    def _strike(self, fault: Fault) -> None:
        world = self._world
        world.trace("fault", fault)
        worker, clock = world.workers[fault.worker], world.clock
        match fault.kind:
            case "crash worker":
                world.stop_worker(worker, back_after=fault.seconds)
            case "cut worker power":
                world.cut_worker_power(fault.worker, fault.seconds)
            case "lose worker" if fault.worker > 0:  # one stays, or the run could never end
                world.stop_worker(worker, back_after=None)
            case "pause worker":
                worker.pause(fault.seconds)
            case "slow worker":
                worker.slow_down(fault.seconds)
            case "stuck worker":
                worker.get_stuck(fault.seconds)
            case "hostile update":
                worker.turn_hostile(fault.seconds)
            case "stranger":
                world.stranger.come(fault.count)
            case "failing training":
                self._training_fails_until = clock.now + fault.seconds
            case "zombie worker":
                clock.after(fault.seconds, lambda: world.stop_worker(worker, back_after=None))
                worker.pause(fault.seconds / 2)
                world.replace_worker(fault.worker)
            case _:
                self._strike_network(fault)
                self._strike_machine(fault)
                self._strike_shepherd(fault)

    def _strike_network(self, fault: Fault) -> None:
        world, worker = self._world, self._world.workers[fault.worker]
        name, network = worker.name, world.network
        match fault.kind:
            case "cut connection":
                for number in network.connections_of(name):
                    network.cut(number, late_seconds=fault.seconds * (fault.count % 2))
            case "late messages":
                for number in network.connections_of(name):
                    network.reset(number, fault.seconds)
            case "bad network":
                network.spoil(name, share=(0.05, 0.3, 0.7)[fault.count % 3], seconds=fault.seconds)
            case "partition":
                network.block(name, SHEPHERD, fault.seconds)
                network.block(name, WORKER, fault.seconds)
            case "one-way partition":
                network.block(name, (SHEPHERD, WORKER)[fault.count % 2], fault.seconds)
            case "duplicate hello":
                if isinstance(worker.hello, Hello):
                    network.duplicate_hello(name, worker.hello)
            case "failing transfers":
                self._transfers_fail_until = world.clock.now + fault.seconds

    def _strike_machine(self, fault: Fault) -> None:
        world = self._world
        machine = world.worker_machines[fault.worker]
        match fault.kind:
            case "full worker disk":
                machine.disk.full = True
                world.clock.after(fault.seconds, machine.disk.heal)
            case "clock drifts":
                machine.clock.run_at((0.75, 0.9, 1.1, 1.4)[fault.count % 4])
            case "clock jumps":
                machine.clock.jump(fault.seconds)

    def _strike_shepherd(self, fault: Fault) -> None:
        shepherd, machine = self._world.shepherd, self._world.shepherd_machine
        if shepherd is None:
            return
        match fault.kind:
            case "crash shepherd":
                shepherd.crash_after(fault.count, power_lost=False)
            case "cut power":
                shepherd.crash_after(fault.count, power_lost=True)
            case "crash shepherd in a write":
                machine.disk.tear_next = True
            case "failing sync":
                machine.disk.fail_next_sync = True
            case "full disk":
                machine.disk.full = True
                self._world.clock.after(fault.seconds, machine.disk.heal)
            case "slow disk":
                machine.disk.slow = True
                self._world.clock.after(fault.seconds, machine.disk.heal)
            case "pause shepherd":
                shepherd.pause(fault.seconds)
            case "shepherd clock jumps":
                machine.clock.jump(fault.seconds)
            case "shepherd clock drifts":
                machine.clock.run_at((0.8, 0.9, 1.1, 1.25)[fault.count % 4])
