"""A run on arrays: what the Shepherd merges with and what Workers train with, compiled once in a process for all schedules."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm, DecoupledDiLoCo, NoLoCo, StreamingDiLoCo, Topology
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.gossip.offers import offer_bytes
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Runs
from pcp.distributed.shepherd.evaluation import Evaluator
from pcp.distributed.shepherd.merger import Arithmetic, Merger, compiled
from pcp.distributed.shepherd.state_checks import StateChecks
from pcp.distributed.simulator.arrays.recipe import TOTAL, LinearRecipe, recipe
from pcp.distributed.simulator.arrays.store import DiskStore
from pcp.distributed.simulator.arrays.witness import ArrayWitness
from pcp.distributed.simulator.course import Means
from pcp.distributed.simulator.machines.disk import Disk
from pcp.distributed.simulator.peers.witness import PairsWitness
from pcp.distributed.wire.blob_files import blob_of
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.worker.training.means import means_of, no_shards
from pcp.ir import Program
from pcp.planning import Plan, plan
from pcp.training.data.run_data import DataKind

DEVICE = "cpu:0"


class ArrayCourse:
    """See `Course`.

    Arguments:
        algorithm: of the run.
    """

    settings = TransferSettings(chunk_bytes=1 << 11, window_bytes=3 << 11)

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.contents = (*_artifacts(_plain(algorithm)).values(), recipe().file)

    def job(self) -> tuple[Job, tuple[int, ...]]:
        """What Workers train, and the bytes of a push of each fragment."""
        plain, linear = _plain(self._algorithm), recipe()
        programs = {name: blob_of(each) for name, each in _artifacts(plain).items()}
        data, seed = blob_of(linear.file), linear.config.seed
        in_pairs = self._algorithm.topology is Topology.PAIRS
        job = Job(
            programs,
            data,
            1,
            context=1,
            seed=seed,
            vocabulary=2,
            kind=DataKind.samples,
            exchange_every=self._algorithm.inner_steps if in_pairs else 0,
            offer_bytes=offer_bytes(TOTAL) if in_pairs else 0,
        )
        return job, _sizes(plain)

    def store(self, disk: Disk, power_fails: Callable[[], None]) -> DiskStore:
        """See `Course`."""
        return DiskStore(disk, power_fails)

    def merger(self, store: DiskStore) -> Merger:
        """See `Course`."""
        return Merger(recipe(), self._algorithm, store, _compiled)

    def first_outer(self, first: tuple[Blob, ...]) -> tuple[Blob | None, ...]:
        """See `Course`."""
        return (None,) * len(first)

    def states(self, store: DiskStore) -> StateChecks:
        """See `Course`."""
        return StateChecks(recipe(), self._algorithm, store, self.merger(store))

    def evaluator(self, store: DiskStore) -> Evaluator:
        """See `Course`."""
        return _Evaluator(recipe(), store, self.merger(store).partition)

    def means(self, job: Job, store: DiskStore) -> Means:
        """See `Course`."""
        programs = _programs(_plain(self._algorithm))
        means = means_of(job, store, no_shards, lambda _: programs)
        return Means(_plans(_plain(self._algorithm)), means.batches, means.shelf)

    def witness(self, config: RunConfig) -> ArrayWitness:
        """See `Course`."""
        outer, _ = _compiled(recipe(), config.algorithm)
        in_pairs = config.algorithm.topology is Topology.PAIRS
        return PairsWitness(config, outer) if in_pairs else ArrayWitness(config, outer)

    def value(self, store: DiskStore, fragment: int, blob: Blob) -> tuple[float, ...]:
        """See `Course`."""
        size = self.merger(store).partition.size(fragment)
        return tuple(load_vector(store, blob, size).astype(np.float64).tolist())


class _Evaluator(Evaluator):
    def compile(self) -> None:
        self._plan = _evaluation()


def forget() -> None:
    """Compile anew when something is asked for next."""
    for each in (_artifacts, _programs, _plans, _arithmetic, _evaluation):
        each.cache_clear()


def _plain(algorithm: Algorithm) -> Any:
    """An algorithm of the same programs: they do not depend on when is pushed and adopted."""
    if isinstance(algorithm, StreamingDiLoCo | DecoupledDiLoCo):
        return replace(algorithm, inner_steps=algorithm.fragments, delay=0)
    if isinstance(algorithm, NoLoCo):
        return replace(algorithm, inner_steps=1, lease_steps=1)
    return replace(algorithm, inner_steps=1)  # type: ignore[type-var]  # every algorithm is a dataclass


def _compiled(_: Any, algorithm: Algorithm) -> Arithmetic:
    return _arithmetic(_plain(algorithm))


@cache
def _arithmetic(algorithm: Algorithm) -> Arithmetic:
    return compiled(recipe(), algorithm)


@cache
def _sizes(algorithm: Algorithm) -> tuple[int, ...]:
    merger: Any = Merger
    return tuple(merger(recipe(), algorithm, None).payload_bytes())


@cache
def _evaluation() -> Plan:
    return plan(recipe().evaluation, device=DEVICE)


@cache
def _programs(algorithm: Algorithm) -> dict[str, Program]:
    linear: LinearRecipe = recipe()
    return worker_programs(inner_step(linear, algorithm), linear.parameters, algorithm)


@cache
def _artifacts(algorithm: Any) -> dict[str, bytes]:
    return {name: program.artifact() for name, program in _programs(algorithm).items()}


@cache
def _plans(algorithm: Any) -> Mapping[str, Runs]:
    return {name: plan(program, device=DEVICE) for name, program in _programs(algorithm).items()}
