"""A regional Shepherd: to its own workers a Shepherd, to the root one worker.

A lease of the root becomes one round of the region's own coordinator. Its outer step is none: the sum of its
workers' pseudo-gradients goes up as the region's one update, and the step is done when the next lease brings
new parameters.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.distributed.fleets import sums
from benchmarks.distributed.fleets.fleet import Fleet
from benchmarks.distributed.fleets.fleet_worker import FleetWorker, Machine
from pcp.distributed.coordinator import Coordinator, RunConfig
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.events import OuterStepDone
from pcp.distributed.messages import Assign, Blob, DataRange, Lease, Message


class RegionFleet(Fleet):
    """The downward side: numbers batches by the root's lease instead of from zero."""

    lease: Lease

    def outgoing(self, message: Message) -> Message:
        """Return a lease of the region in the root's numbers."""
        if not isinstance(message, Assign):
            return message
        begin = message.lease.round * self.coordinator.state.run.config.round_batches
        data = message.lease.data
        moved = DataRange(self.lease.data.start + data.start - begin, data.count)
        return Assign(replace(message.lease, data=moved, first_step=self.lease.first_step))


class Region(FleetWorker):
    """One process of a regional Shepherd.

    Arguments:
        root: the Shepherd above.
        name: as a worker of the root.
        config: of a region's run: its workers x H is what one lease of the root holds.
        workers: that it leads; started with the first lease, and taken over from a predecessor.
        link: the region's link to the root.
        incarnation: number of this process.
        update_bytes: size of what it sends up.
    """

    def __init__(
        self,
        root: Fleet,
        name: str,
        config: RunConfig,
        workers: Sequence[FleetWorker],
        link: Machine,
        incarnation: int,
        update_bytes: int = sums.BYTES,
    ) -> None:
        super().__init__(root, name, link, incarnation, update_bytes)
        self._plan = config
        self._config = replace(config, run_id=f"{config.run_id}-{name}-{incarnation}")
        self.team = workers
        self.below: RegionFleet | None = None
        self._awaited: Lease | None = None
        self._closed: RunOuterStep | None = None

    def stop(self, silent: bool) -> None:
        """Kill the process: the root and the region's workers lose it."""
        super().stop(silent)
        if self.below is not None:
            self.below.stop()

    def successor(self, incarnation: int) -> "Region":
        """Return the process that takes the region over: it begins anew, with the workers that are there."""
        return Region(
            self.fleet,
            self.name,
            self._plan,
            self.team,
            self.machine,
            incarnation,
            self.update_bytes,
        )

    def begin(self, lease: Lease) -> None:
        """Have the region's workers train what the root leased."""
        self.adopt_due(lease)
        self._awaited = lease
        self._proceed()

    def _proceed(self) -> None:
        """Begin the next round, where there is a lease for it and the one before is over."""
        lease, below = self._awaited, self.below
        if lease is None:
            return
        if below is None:
            self.below, self._awaited = self._found(lease), None
        elif self._closed is not None:
            closed, self._closed, self._awaited = self._closed, None, None
            below.lease = lease
            stored = below.store(self.adopted[lease.fragment], self.update_bytes)
            below.post(OuterStepDone(below.clock.now, closed.round, stored, None, None))

    def _found(self, lease: Lease) -> RegionFleet:
        parameters = self.adopted[lease.fragment]
        blob = Blob(hashlib.sha256(parameters).digest(), self.update_bytes)
        coordinator = Coordinator.create(self._config, (blob,), (None,))
        below = RegionFleet(self.fleet.clock, coordinator, self._sum, self.fleet.lines.delay)
        below.lease = lease
        below.store(parameters, self.update_bytes)
        below.start()
        for worker in self.team:
            worker.work_for(below)
        return below

    def _sum(self, effect: RunOuterStep) -> None:
        below = self.below
        assert below is not None, "its workers trained"
        self._closed = effect
        if self.alive and self.lease is below.lease:
            for each in effect.contributions:
                self.move(below.lease.fragment, sums.value(below.blobs[each.payload]))
            self.report(below.lease)
        self._proceed()
