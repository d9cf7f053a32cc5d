"""Which batch comes next in a lease, at which step of schedules, and where the lease ends."""

from collections.abc import Iterator

from pcp.distributed.messages import Lease
from pcp.distributed.worker.effects import Shorten


class Course:
    """The batches of a lease, one after the other; it may be shortened meanwhile.

    Arguments:
        lease: whose batches.
        every: steps between two places where it may end; 0 where it ends as it was granted.
    """

    def __init__(self, lease: Lease, every: int) -> None:
        self._ranges, self._every = lease.ranges, every
        self.batches = lease.batches
        """After which it ends."""
        self._done = 0
        # Batches done, and the step number then, where the schedule was last set.
        self._from = (0, lease.first_step)
        self._last_step = max(lease.first_step, lease.last_step or lease.first_step + lease.batches)

    def __iter__(self) -> Iterator[int]:
        """The numbers of the batches; what is done counts up with them."""
        for each in self._ranges:
            for batch in range(each.start, each.start + each.count):
                if self._done == self.batches:
                    return
                yield batch
                self._done += 1

    @property
    def stretched(self) -> bool:
        """Whether the numbers of steps do not follow one another from the first one on."""
        done, step = self._from
        return bool(done) or self._last_step - step != self.batches - done

    @property
    def step(self) -> int:
        """The inner step number of the batch that comes now, for schedules."""
        done, step = self._from
        return step + (self._done - done) * (self._last_step - step) // max(1, self.batches - done)

    def shorten(self, wanted: Shorten, done: int) -> bool:
        """End sooner, if that can still be, and change schedules so that they end then.

        Arguments:
            wanted: where to end.
            done: batches that are trained, the current one among them.

        Returns:
            Whether it ends sooner than before. It is not before what is done, and at an exchange.
        """
        step = self.step + (done > self._done)
        stop = max(-(-wanted.batches // self._every), -(-done // self._every), 1) * self._every
        before, self.batches = self.batches, min(self.batches, stop)
        self._from, self._last_step = (done, step), max(step, wanted.last_step)
        return self.batches < before
