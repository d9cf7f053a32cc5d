"""Workers that exchange in pairs, in one process: with the classes of a real run, and every exchange in time."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.gossip.offers import load_offer, store_offer
from pcp.distributed.gossip.pairs import partner_of
from pcp.distributed.gossip.slow_weights import SlowWeights, Swap
from pcp.distributed.merging import merge
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.runtime import finished
from pcp.distributed.wire import BlobStore
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe

Tamper = Callable[[Any, Any], tuple[Any, Any]]
"""What a hostile worker offers instead of its weights and slow weights."""


class PairsLockstep:
    """W workers, each with its own part of the data, as leases of the whole run cut it.

    Arguments:
        tamper: of the last worker, who pushes its weights a thousand times and turned round in the end.
    """

    def __init__(
        self, recipe: Recipe, algorithm: NoLoCo, workers: int, store: BlobStore, tamper: Tamper | None = None
    ) -> None:
        self._tamper = tamper
        self._recipe, self._algorithm, self._store = recipe, algorithm, store
        programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
        plans = {name: plan(program, device="cpu:0") for name, program in programs.items()}
        self._outer = OuterSteps(recipe, algorithm, "cpu:0")
        self._evaluate = plan(recipe.evaluation, device="cpu:0")
        self._first = partition(recipe.parameters, 1).vectors(recipe.parameters)
        self.replicas = [Replica(plans) for _ in range(workers)]
        self._slow = [SlowWeights(plans["gossip.0"], replica, store) for replica in self.replicas]
        for replica, slow in zip(self.replicas, self._slow, strict=True):
            replica.fresh(self._first, 0)
            replica.begin(0)
            slow.begin(True)

    def train(self, exchanges: int | None = None) -> list[float]:
        """Train with all exchanges, or the first ones; returns the variance of the weights over workers after each."""
        every, steps = self._algorithm.inner_steps, self._algorithm.lease_steps
        variances = []
        for number in range(1, (exchanges or steps // every) + 1):
            for worker, replica in enumerate(self.replicas):
                for step in range((number - 1) * every, number * every):
                    replica.step(self._recipe.batches.batch(worker * steps + step))
            self._exchange(number)
            weights = [self.weights(worker) for worker in range(len(self.replicas))]
            variances.append(float(np.var(weights, axis=0).mean()))
        return variances

    def weights(self, worker: int) -> Any:
        return np.asarray(self.replicas[worker].weights(0), np.float64)

    def validation_loss(self) -> float:
        """Of what the Shepherd merges in the end: the workers' weights, by the algorithm's merge."""
        pushed = [self._outer.decoded(0, replica.push(0)) for replica in self.replicas]
        if self._tamper is not None:
            pushed[-1] = -1000 * np.asarray(pushed[-1])
        chosen = merge(self._algorithm.merge, self._outer.segments(0), "cpu:0")
        loaders = [lambda push=push: np.asarray(push, np.float32) for push in pushed]
        mean = chosen(loaders, np.ones(len(pushed)), chosen.initial_state()).mean
        shadow, state = self._outer.first(0)
        stepped = self._outer.take(0, shadow, state, mean, 0, 1.0)
        return self._loss(stepped.shadow)

    def loss_of(self, worker: int) -> float:
        """Of a worker's own weights."""
        return self._loss(self.replicas[worker].weights(0))

    def _loss(self, vector: Any) -> float:
        parameters = self._outer.parameters([vector])
        return self._recipe.validation_loss(lambda *batch: self._evaluate.run(parameters, *batch))

    def _exchange(self, number: int) -> None:
        names = [str(worker) for worker in range(len(self.replicas))]
        offers: dict[str, Blob] = {}

        def keep(name: str) -> Swap:
            async def swap(wanted: int, own: Blob | None) -> Exchanged:
                if own is not None:
                    offers[name] = own
                    raise _Kept
                return Exchanged(wanted)

            return swap

        for name in names:
            with contextlib.suppress(_Kept):
                finished(self._slow[int(name)].exchange(keep(name)))
        if self._tamper is not None:
            size = self.weights(0).size
            offers[names[-1]] = store_offer(
                self._store, number, *self._tamper(*load_offer(self._store, offers[names[-1]], size))
            )
        for name in names:
            partner = partner_of(name, self._recipe.config.seed, number, names) or ""
            met = Exchanged(number, partner, offers.get(partner))
            finished(self._slow[int(name)].exchange(_swap_for(met)))
        for blob in offers.values():
            self._store.remove(blob.digest)


def _swap_for(met: Exchanged) -> Swap:
    async def swap(_wanted: int, _own: Blob | None) -> Exchanged:
        return met

    return swap


class _Kept(Exception):
    """An offer was made; the exchange is done when all are."""
