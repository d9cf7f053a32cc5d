"""Paths of which some operations run elsewhere, the best first: by times of single operations, copies, and minimum cuts."""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pcp.backends import Placement, Target
from pcp.ir import Program
from pcp.ops.record import Kind, kind_of
from pcp.planning.paths.path import Path
from pcp.planning.placing.cheapest import CopyCost, Costs, best_placements
from pcp.planning.placing.measured import copy_costs, measured_operation
from pcp.planning.placing.operations import Operations, named, operations_in
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking, Here
from pcp.rewrite.regions import HOME, NotDivisible

log = logging.getLogger("pcp.planning.search")

HEAVY = 0.01
"""An operation that should take less than this part of the whole is not measured, unless it is one of `ODD`."""
MOVED = 32
"""The costliest operations, by whose places paths differ; the others run where that is the cheapest then. Each costs a minimum
cut for every path, which takes 0.1 s in a program of 1,600 operations."""
ODD = (Kind.reduction, Kind.solver, Kind.control, Kind.product)
"""Kinds of operations that one backend may run many times as fast as another, whatever their sizes say."""


@dataclass(frozen=True)
class Placing:
    """The placements of one path's operations.

    Arguments:
        program: as the user wrote it.
        base: the path whose operations are placed.
        home: where they run if they are not placed.
        others: where else they may run, without options.
    """

    program: Program
    base: Path
    home: Target
    others: Sequence[Target]
    copies: dict[tuple[int, int], CopyCost] = field(default_factory=dict)
    """What copies between the places cost, once they were timed."""
    _times: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """By operation and place, its seconds alone at home and there, as they were measured."""

    @staticmethod
    def of(program: Program, base: Path, home: Target, others: Sequence[Target]) -> "Placing":
        """Those in places without options: a placement names none."""
        return Placing(program, base, home, [other for other in others if not other.options])

    @cached_property
    def operations(self) -> Operations | None:
        """The operations; None where the program runs as a whole only."""
        try:
            return operations_in(self.base.applied(self.program))
        except NotDivisible as error:
            log.info("no operation is placed elsewhere: %s", error)
            return None

    @cached_property
    def estimates(self) -> list[float]:
        """Seconds of each operation, from its shapes."""
        assert self.operations is not None
        known = {program: estimated_seconds(program) for program in dict.fromkeys(self.operations.programs)}
        pairs = zip(self.operations.programs, self.operations.counts, strict=True)
        return [count * known[program] for program, count in pairs]

    def time_copies(self) -> Asking[None]:
        """Time copies between the places, if they were not."""
        if not self.copies:
            places = (self.home, *self.others)
            self.copies.update((yield from Here("copies", lambda: copy_costs(places)).asked()))

    def measure(self, evidence: Evidence) -> Asking[bool]:
        """Look up, or measure, how long the heavy operations take everywhere; whether there was time for all of them."""
        operations = self.operations
        if operations is None:
            return True
        yield from self.time_copies()
        least = HEAVY * sum(self.estimates)
        heavy = [
            number
            for number, name in enumerate(operations.names)
            if self.estimates[number] >= least or kind_of(f"stablehlo.{name}") in ODD
        ]
        is_complete = True
        for number in sorted(heavy, key=lambda number: -self.estimates[number]):
            for place, other in enumerate(self.others, HOME + 1):
                name, program = operations.names[number], operations.programs[number]
                row = yield from measured_operation(program, name, other, evidence)
                if row is None:
                    is_complete = False
                elif row.failure is not None:
                    self._times[number, place] = math.nan, math.inf
                elif row.seconds and row.plain_seconds:
                    self._times[number, place] = row.typical / row.ratio, row.typical
        return is_complete

    @property
    def is_known(self) -> bool:
        """Whether it is known of any operation that it runs elsewhere."""
        return any(there < math.inf for _, there in self._times.values())

    def costs(self, seconds: float | None) -> Costs:
        """What placements cost, as far as times are known, and otherwise as shapes say.

        Operations take less together than alone, where a compiler fuses them: their times at home are made to add up to the
        whole. One that was not measured is expected to take as long elsewhere as at home.

        Arguments:
            seconds: of a call of the whole path at home; None if that is not known.
        """
        operations = self.operations
        assert operations is not None
        alone = list(self.estimates)
        for (number, _), (here, _) in self._times.items():
            if not math.isnan(here):
                alone[number] = operations.counts[number] * here
        total = sum(alone)
        fused = min(1.0, seconds / total) if seconds is not None and total else 1.0
        table = []
        for number, count in enumerate(operations.counts):
            here = fused * alone[number]
            there = [
                count * self._times[number, place][1] if (number, place) in self._times else here
                for place in range(HOME + 1, HOME + 1 + len(self.others))
            ]
            table.append((here, *there))
        return Costs(tuple(table), operations.flows, self.copies)

    def paths(self, costs: Costs) -> Iterator[tuple[float, Path]]:
        """Paths with placements, and the part of the time that each should take, the best first; those are left out where all
        operations are in one place."""
        operations = self.operations
        assert operations is not None
        at_home = costs.of([HOME] * len(operations.keys))
        ranked = sorted(range(len(costs.seconds)), key=lambda number: -costs.seconds[number][HOME])
        for seconds, places in best_placements(costs, ranked[:MOVED]):
            placement = Placement.of(
                {
                    key: named(self.others[place - 1])
                    for key, place in zip(operations.keys, places, strict=True)
                    if place != HOME
                }
            )
            if placement is not None and HOME in places:  # all elsewhere is no mixture
                yield seconds / at_home, self.base.placed(placement)

    @property
    def least_copy(self) -> float:
        """Seconds that it takes at least to go elsewhere and come back."""
        pairs = itertools.product((HOME,), range(HOME + 1, HOME + 1 + len(self.others)))
        return min(
            (self.copies[a, b].latency + self.copies[b, a].latency for a, b in pairs), default=math.inf
        )
