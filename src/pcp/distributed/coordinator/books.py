"""Cells, pairs of a batch and a fragment, that are not merged yet: waiting for a worker, or carried by one."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise

from pcp.distributed.coordinator import data_ranges
from pcp.distributed.coordinator.run import Run
from pcp.distributed.messages import DataRange


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a range of batches in some fragments."""

    data: DataRange
    fragments: frozenset[int]


@dataclass(slots=True)
class Trained:
    """Cells that a worker trained on and keeps, in its parameters or in its residual, until they are admitted.

    Arguments:
        data: the batches.
        tokens: in them.
        loss: mean over the steps.
        fragments: whose cells are not yet admitted.
        pushing: of these, the fragments that a reported update holds, which waits for its blob.
    """

    data: DataRange
    tokens: int
    loss: float
    fragments: set[int]
    pushing: set[int] = field(default_factory=set)

    def awaits_push(self, fragment: int) -> bool:
        """Return whether the next push of a fragment holds it."""
        return fragment in self.fragments and fragment not in self.pushing


@dataclass(slots=True)
class Pending:
    """Cells that nobody holds, in the order of their data; no two blocks have a batch in common.

    Arguments:
        counts: batches pending for each fragment.
        blocks: see above.
    """

    counts: list[int]
    blocks: list[Cells] = field(default_factory=list)

    def put(self, cells: Cells) -> None:
        """Add cells; they are not fused with their neighbours, so that ranges keep their length."""
        insort(self.blocks, cells, key=_start)
        self._count(cells, cells.data.count)

    def first(self, fragment: int, limit: int) -> Cells | None:
        """Return the first block that a fragment lacks below a limit."""
        if not self.counts[fragment]:
            return None
        found = next((each for each in self.blocks if fragment in each.fragments), None)
        if found is None or found.data.start >= limit:
            return None
        return Cells(
            DataRange(found.data.start, min(found.data.count, limit - found.data.start)), found.fragments
        )

    def take(self, cells: Cells) -> None:
        """Remove cells that a block begins with."""
        index = bisect_left(self.blocks, cells.data.start, key=_start)
        block = self.blocks[index]
        rest = DataRange(data_ranges.stop(cells.data), block.data.count - cells.data.count)
        self.blocks[index : index + 1] = [Cells(rest, block.fragments)] if rest.count else []
        self._count(cells, -cells.data.count)

    def _count(self, cells: Cells, batches: int) -> None:
        for fragment in cells.fragments:
            self.counts[fragment] += batches


def _start(cells: Cells) -> int:
    return cells.data.start


def pending_of(run: Run, length: int) -> Pending:
    """Return what is pending when a Shepherd starts: every cell that is neither merged nor admitted.

    Arguments:
        run: the durable state.
        length: of the ranges that workers train at once.
    """
    pending = Pending([0] * len(run.fragments))
    outstanding = [run.outstanding(fragment) for fragment in range(len(run.fragments))]
    borders = {
        border for ranges in outstanding for each in ranges for border in (each.start, data_ranges.stop(each))
    }
    borders.update(round.limit for round in run.in_flight)
    edges = sorted(borders)
    for start, end in pairwise(edges):
        lacking = frozenset(
            fragment
            for fragment, ranges in enumerate(outstanding)
            if any(each.start <= start < data_ranges.stop(each) for each in ranges)
        )
        if lacking:
            for piece in data_ranges.cut(start, end - start, length):
                pending.put(Cells(piece, lacking))
    return pending
