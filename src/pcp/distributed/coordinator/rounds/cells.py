"""Cells, pairs of a batch and a fragment, that are not merged yet: waiting for a worker, or carried by one."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pcp.distributed.coordinator.rounds import data_ranges
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
        blocks: see above; neighbours lack different fragments.
        returned: how often cells were put.
    """

    counts: list[int]
    blocks: list[Cells] = field(default_factory=list)
    returned: int = 0

    def put(self, cells: Cells) -> None:
        """Add cells."""
        self.returned += 1
        self._count(cells, cells.data.count)
        end = data_ranges.stop(cells.data)
        first = last = bisect_left(self.blocks, cells.data.start, key=_start)
        if first and data_ranges.stop(self.blocks[first - 1].data) > cells.data.start:
            first -= 1
        while last < len(self.blocks) and self.blocks[last].data.start < end:
            last += 1
        shared = self.blocks[first:last]
        pieces = _disjoint([cells, *shared]) if shared else [cells]
        self.blocks[first:last] = pieces
        for index in range(first + len(pieces) - 1, first - 2, -1):
            self._fuse(index)

    def _fuse(self, index: int) -> None:
        """Make one block of this and the next, where nothing is between them."""
        if not 0 <= index < len(self.blocks) - 1:
            return
        left, right = self.blocks[index : index + 2]
        if left.fragments == right.fragments and data_ranges.stop(left.data) == right.data.start:
            data = DataRange(left.data.start, left.data.count + right.data.count)
            self.blocks[index : index + 2] = [Cells(data, left.fragments)]

    def total(self, fragment: int, limit: int) -> int:
        """Return the number of batches that a fragment lacks below a limit."""
        return data_ranges.total_below(
            (each.data for each in self.blocks if fragment in each.fragments), limit
        )

    def first(self, fragment: int, limit: int, reserved: Sequence[tuple[int, int]] = ()) -> Cells | None:
        """Return the first cells that a fragment lacks.

        Arguments:
            fragment: which.
            limit: batches from there on do not count.
            reserved: fragments and limits; cells that such a fragment lacks below its limit do not count.
        """
        if not self.counts[fragment]:
            return None
        for each in self.blocks:
            begins = (below for reserve, below in reserved if reserve in each.fragments)
            begin, end = max(each.data.start, *begins, 0), min(data_ranges.stop(each.data), limit)
            if begin < end and fragment in each.fragments:
                return Cells(DataRange(begin, end - begin), each.fragments)
        return None

    def has(self, cells: Cells) -> bool:
        """Return whether cells are part of a block of just these fragments."""
        return any(
            each.fragments == cells.fragments
            and each.data.start <= cells.data.start
            and data_ranges.stop(cells.data) <= data_ranges.stop(each.data)
            for each in self.blocks
        )

    def take(self, cells: Cells) -> None:
        """Remove cells that are part of a block."""
        index = bisect_right(self.blocks, cells.data.start, key=_start) - 1
        block, data = self.blocks[index], cells.data
        before = DataRange(block.data.start, data.start - block.data.start)
        after = DataRange(data_ranges.stop(data), data_ranges.stop(block.data) - data_ranges.stop(data))
        self.blocks[index : index + 1] = [
            Cells(each, block.fragments) for each in (before, after) if each.count
        ]
        self._count(cells, -data.count)

    def _count(self, cells: Cells, batches: int) -> None:
        for fragment in cells.fragments:
            self.counts[fragment] += batches


def _disjoint(blocks: list[Cells]) -> list[Cells]:
    """The same cells in blocks of which no two have a batch in common."""
    edges = sorted({edge for each in blocks for edge in (each.data.start, data_ranges.stop(each.data))})
    disjoint = []
    for start, end in pairwise(edges):
        fragments = frozenset[int]().union(
            *(each.fragments for each in blocks if each.data.start <= start < data_ranges.stop(each.data))
        )
        if fragments:
            disjoint.append(Cells(DataRange(start, end - start), fragments))
    return disjoint


def _start(cells: Cells) -> int:
    return cells.data.start


def pending_of(run: Run) -> Pending:
    """Return what is pending when a Shepherd starts: every cell that is neither merged nor admitted."""
    pending = Pending([0] * len(run.fragments))
    outstanding = [run.outstanding(fragment) for fragment in range(len(run.fragments))]
    borders = {
        border for ranges in outstanding for each in ranges for border in (each.start, data_ranges.stop(each))
    }
    edges = sorted(borders)
    for start, end in pairwise(edges):
        lacking = frozenset(
            fragment
            for fragment, ranges in enumerate(outstanding)
            if any(each.start <= start < data_ranges.stop(each) for each in ranges)
        )
        if lacking:
            pending.put(Cells(DataRange(start, end - start), lacking))
    return pending
