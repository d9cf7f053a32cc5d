"""Many schedules, in one process or several."""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from pcp.distributed.simulator.scenario import scenario_of
from pcp.distributed.simulator.simulation import SimulationFailed, simulate

PIECE = 250  # seeds between two lines of progress
Result = tuple[int, int, list[tuple[int, str]]]


def run_seeds(seeds: Iterable[int], trace: Callable[[str], None] | None = None) -> Result:
    """Return how many schedules ran, how many actions that took, and which seeds failed how.

    Arguments:
        seeds: which schedules.
        trace: called with a line for every event and effect.
    """
    logging.disable(logging.WARNING)  # torn writes and refused transfers are what this is about
    schedules, actions, failures = 0, 0, []
    for seed in seeds:
        schedules += 1
        try:
            actions += simulate(scenario_of(seed), trace).actions
        except SimulationFailed as failure:
            failures.append((seed, str(failure)))
    return schedules, actions, failures


def run_in_processes(first: int, count: int, jobs: int) -> Iterator[Result]:
    """Yield the results of pieces of the seeds, as they are ready.

    Arguments:
        first: seed.
        count: of seeds.
        jobs: processes.
    """
    pieces = [range(at, min(at + PIECE, first + count)) for at in range(first, first + count, PIECE)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_seeds, piece) for piece in pieces]):
            yield future.result()
