"""What a worker may train, and must push: a lease; and what it names."""

from dataclasses import dataclass, replace
from typing import Annotated

from pcp.distributed.bounds import FRAGMENTS, RANGES, Count, Digest, Many, Number, Seconds, Small
from pcp.distributed.data_range import DataRange, split


@dataclass(frozen=True, slots=True)
class Blob:
    """A content-addressed sequence of bytes: its SHA-256 digest (32 bytes) and its size in bytes."""

    digest: Digest
    size: Number


@dataclass(frozen=True, slots=True)
class Adoption:
    """Before a step of its lease a worker adopts what was merged of a fragment.

    Arguments:
        fragment: of the parameters.
        version: outer steps of this fragment behind what is adopted.
        step: the lease's inner steps that come before it.
        parameters: the whole fragment, flat; None where it is not merged yet. A `Merged` then follows, and
            the worker waits for it at `step`.
        change: what a worker that holds version - 1 adds to it instead, smaller; None where there is none.
    """

    fragment: Small
    version: Number
    step: Count
    parameters: Blob | None
    change: Blob | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right, and the duty, to train on a range of the data and then to push one fragment.

    Arguments:
        lease_id: unique in the run; never reused, so that an update of an expired lease is recognised.
        generation: fencing number of the worker's membership; an update of an older generation is refused.
        round: outer round that the update belongs to.
        data: batches to consume, one inner step each; none where only the push is wanted.
        first_step: inner step number at the first batch, for schedules of the learning rate.
        fragment: what is pushed at the end.
        fragments: what the data may move; the others return to where they were before its steps. Empty
            means all.
        fresh: begin from the adopted fragments, all of which are then in `adopt` at step 0, with residuals
            of zero; the inner optimizer's moments stay where there are any.
        adopt: in the order of their steps. A fresh lease may adopt a fragment at step 0 and its next version
            later.
        deadline_seconds: time after which the lease may be given to another worker.
        further: batches to consume after those of `data`.
        last_step: inner step number after the last batch, for the same schedules: where it is not `first_step` plus the number
            of batches, the numbers of the steps between lie as far apart. 0 where every batch is a step.
        after: where it is granted ahead, the lease that its worker trains now: it begins when that one is trained. 0: at once.
    """

    lease_id: Number
    generation: Number
    round: Number
    data: DataRange
    first_step: Count
    fragment: Small
    fragments: Annotated[tuple[Small, ...], Many(FRAGMENTS)]
    fresh: bool
    adopt: Annotated[tuple[Adoption, ...], Many(FRAGMENTS)]
    deadline_seconds: Seconds
    further: Annotated[tuple[DataRange, ...], Many(RANGES)] = ()
    last_step: Count = 0
    after: Number = 0

    @property
    def ranges(self) -> tuple[DataRange, ...]:
        """All that is to be consumed, in this order."""
        return (self.data, *self.further)

    @property
    def batches(self) -> int:
        """How many that are."""
        return self.data.count + sum(each.count for each in self.further)

    @property
    def named(self) -> str:
        """Its batches, from the first to the last of each range, in a few letters."""
        if not self.batches:
            return "push"
        return ", ".join(f"{each.start}-{each.start + each.count - 1}" for each in self.ranges if each.count)

    def cut(self, batches: int) -> "Lease":
        """The same for the first of these batches only, one at least."""
        (data, *further), _ = split(self.ranges, batches)
        return replace(self, data=data, further=tuple(further))
