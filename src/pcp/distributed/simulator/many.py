"""Many schedules, in one process or several."""

import gc
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from pcp.distributed.simulator.scenario import scenario_of
from pcp.distributed.simulator.simulation import SimulationFailed, Trace, simulate

PIECE = 250  # seeds between two lines of progress


@dataclass(slots=True)
class Summary:
    """What came of many schedules.

    Arguments:
        schedules: how many ran.
        actions: things that happened in them.
        failures: seeds that failed, and how.
        worst: the largest value of some figures, and its seed.
    """

    schedules: int = 0
    actions: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    worst: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, other: "Summary") -> None:
        """Take what came of other schedules in."""
        self.schedules += other.schedules
        self.actions += other.actions
        self.failures += other.failures
        for figure, (value, seed) in other.worst.items():
            self.note(figure, value, seed)

    def note(self, figure: str, value: float, seed: int) -> None:
        """Keep a figure of a schedule if it is the largest; of equal ones, that of the smallest seed."""
        known, at = self.worst.get(figure, (-1.0, seed))
        if value > known or (value == known and seed < at):
            self.worst[figure] = value, seed


def run_seeds(seeds: Iterable[int], trace: Trace | None = None) -> Summary:
    """Return what came of some schedules.

    Arguments:
        trace: called with every event and effect, by whom, when.
    """
    logging.disable(logging.WARNING)  # torn writes and refused transfers are what this is about
    summary = Summary()
    gc.freeze()  # what was imported need not be looked at each time
    gc.disable()  # a schedule's garbage is one ring, collected when it is over
    try:
        for seed in seeds:
            summary.schedules += 1
            if summary.schedules % 20 == 0:
                gc.collect()
            try:
                outcome = simulate(scenario_of(seed), trace)
            except SimulationFailed as failure:
                summary.failures.append((seed, str(failure)))
                continue
            summary.actions += outcome.actions
            summary.note("virtual seconds", outcome.seconds, seed)
            summary.note("Shepherd processes", outcome.epochs, seed)
            summary.note("rounds", outcome.rounds, seed)
            summary.note("times the plan trained again", outcome.retrained, seed)
    finally:
        gc.enable()
        gc.unfreeze()
        logging.disable(logging.NOTSET)
    return summary


def run_in_processes(first: int, count: int, jobs: int) -> Iterator[Summary]:
    """Yield what came of pieces of the schedules, as they are ready."""
    pieces = [range(at, min(at + PIECE, first + count)) for at in range(first, first + count, PIECE)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_seeds, piece) for piece in pieces]):
            yield future.result()
