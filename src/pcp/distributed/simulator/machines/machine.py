"""A simulated machine: what stays when the process on it stops."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pcp.distributed.simulator.arrays.store import DiskStore
from pcp.distributed.simulator.clock import MachineClock, VirtualClock
from pcp.distributed.simulator.course import Course
from pcp.distributed.simulator.machines.blob_disk import BlobDisk
from pcp.distributed.simulator.machines.disk import Disk


@dataclass(slots=True)
class Machine:
    """A machine."""

    clock: MachineClock
    disk: Disk
    blobs: BlobDisk | DiskStore


def machine(
    world: VirtualClock, random: Random, course: Course, power_fails: Callable[[], None], rate: float = 1.0
) -> Machine:
    """Return a machine that works.

    Arguments:
        world: true time.
        random: decides how its disk fails.
        course: makes its blobs.
        power_fails: stops it in the middle of a write.
        rate: of its clock.
    """
    disk = Disk(random)
    return Machine(MachineClock(world, rate), disk, course.store(disk, power_fails))
