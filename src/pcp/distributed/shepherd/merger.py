"""What a Shepherd computes for its run, from blobs to blobs: the check of a push, the merge of a round, the outer step."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm, overlaps, share_of_steps
from pcp.distributed.compression import codec
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.merging import Loader, Merge, merge
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import load_arrays, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector, store_vector
from pcp.distributed.round_arithmetic.fragments import Partition, partition
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.ir import Tree
from pcp.ir.tree import flatten
from pcp.ir.types import TensorSpec, dtype_of
from pcp.training.recipes.recipe import Recipe

log = logging.getLogger("pcp.distributed.shepherd.merger")


class RunDiverged(PCPError):
    """An outer step that leads to NaN or infinity."""


@dataclass(frozen=True, slots=True)
class _Share:
    """What one worker adds to a round.

    Arguments:
        worker_id: who.
        weight: of all of it.
        payloads: pushes, one after the other.
    """

    worker_id: int
    weight: float
    payloads: tuple[Blob, ...]


Arithmetic = tuple[OuterSteps, list[Merge]]
"""The outer steps of all fragments, and the merge of each."""


def compiled(recipe: Recipe, algorithm: Algorithm) -> Arithmetic:
    """What rounds are merged with.

    Raises:
        OutOfMemory: an outer step does not fit in the device's memory.
    """
    device = recipe.config.device
    outer = OuterSteps(recipe, algorithm, device)
    fragments = range(outer.partition.count)
    return outer, [merge(algorithm.merge, outer.segments(each), device) for each in fragments]


class Merger:
    """Merges and outer steps on stored fragments. `compile` comes before the first merge.

    Arguments:
        recipe: what is trained.
        algorithm: how it is merged.
        store: where blobs are.
        arithmetic: compiles outer steps and merges.

    Raises:
        TooManyFragments: the parameters are fewer arrays than the algorithm has fragments.
    """

    def __init__(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        store: BlobStore,
        arithmetic: Callable[[Recipe, Algorithm], Arithmetic] = compiled,
    ) -> None:
        self._compiled = arithmetic
        self.partition: Partition = partition(recipe.parameters, algorithm.fragments)
        self._recipe = recipe
        self._algorithm = algorithm
        self._store = store
        self._upload = codec(algorithm.upload)
        self._layouts: dict[int, tuple[Tree, list[TensorSpec]]] = {}

    def compile(self) -> None:
        """Make ready to merge.

        Raises:
            OutOfMemory: an outer step does not fit in the device's memory.
        """
        self._outer, self._merges = self._compiled(self._recipe, self._algorithm)

    def begin(self) -> tuple[Blob, ...]:
        """Store the first version of every fragment; the outer step's state follows from it."""
        return tuple(
            store_vector(self._store, each) for each in self.partition.vectors(self._recipe.parameters)
        )

    def payload_bytes(self) -> tuple[int, ...]:
        """The size of a push of each fragment."""
        return tuple(
            self._upload.stored_bytes(self.partition.size(fragment))
            for fragment in range(self.partition.count)
        )

    def check(self, fragment: int, blob: Blob) -> None:
        """Make sure that a blob is a push of a fragment, of finite numbers.

        Raises:
            ArraysRefused: it is not.
        """
        self._payload(fragment, blob)

    def decoded(self, fragment: int, blob: Blob) -> Any:
        """What a stored push of a fragment says, flat.

        Raises:
            ArraysRefused: the blob is no push.
        """
        return self._outer.decoded(fragment, self._payload(fragment, blob))

    def merge(self, step: RunOuterStep) -> tuple[Blob, Blob | None, Blob | None]:
        """Merge a round and take its outer step; the contributions are reduced in the order given.

        Returns:
            The fragment's new version, the change that leads to it, and what the next outer step begins with; stored.

        Raises:
            ArraysRefused: a stored blob is not what it should be.
            RunDiverged: the new parameters are not finite, although every push is.
        """
        fragment = step.fragment
        shadow = load_vector(self._store, step.parameters, self.partition.size(fragment))
        state = self._state(fragment, step.outer)
        shares = self._shares(step)
        merged = self._merges[fragment](
            [self._loader(fragment, share.payloads) for share in shares],
            [share.weight for share in shares],
            state.pop("merge"),
        )
        for share, verdict in zip(shares, merged.verdicts, strict=True):
            if verdict.reason:
                log.warning(
                    "round %d: the push of worker %d counts for %.3f only: %s",
                    step.round,
                    share.worker_id,
                    verdict.weight,
                    verdict.reason,
                )
        behind = share_of_steps(self._algorithm, (each.steps for each in step.contributions), step.weights)
        stepped = self._outer.take(fragment, shadow, state, merged.mean, step.first_step, behind)
        self._check_finite(fragment, np.asarray(stepped.shadow))
        return (
            store_vector(self._store, stepped.shadow),
            None if stepped.change is None else store_arrays(self._store, stepped.change),
            self._stored({**stepped.state, "merge": dict(merged.state)}),
        )

    def load(self, parameters: tuple[Blob, ...], outer: tuple[Blob | None, ...] = ()) -> dict[str, Any]:
        """Parameters and outer states as nested arrays, for a checkpoint.

        Arguments:
            parameters: of every fragment.
            outer: of every fragment; its numbers become names.
        """
        vectors = [
            load_vector(self._store, blob, self.partition.size(fragment))
            for fragment, blob in enumerate(parameters)
        ]
        states = {str(fragment): self._state(fragment, blob) for fragment, blob in enumerate(outer)}
        return {"params": self.partition.parameters(vectors), "outer": states}

    def _payload(self, fragment: int, blob: Blob) -> Any:
        specs = self._upload.payload_specs(self.partition.size(fragment))
        leaves, tree = flatten(specs)
        return load_arrays(self._store, blob, tree, leaves, finite=True)

    def _shares(self, step: RunOuterStep) -> "list[_Share]":
        """What is merged as one: where workers go on from push to push, all pushes of a worker are one movement."""
        shares: list[_Share] = []
        for contribution, weight in zip(step.contributions, step.weights, strict=True):
            worker_id, payload = contribution.worker_id, contribution.payload
            if overlaps(self._algorithm) and shares and shares[-1].worker_id == worker_id:
                shares[-1] = _Share(worker_id, shares[-1].weight + weight, (*shares[-1].payloads, payload))
            else:
                shares.append(_Share(worker_id, weight, (payload,)))
        return shares

    def _loader(self, fragment: int, payloads: tuple[Blob, ...]) -> Loader:
        def load() -> Any:
            first, *others = (
                self._outer.decoded(fragment, self._payload(fragment, blob)) for blob in payloads
            )
            for other in others:
                first = np.asarray(first) + np.asarray(other)
            return first

        return load

    def _state(self, fragment: int, blob: Blob | None) -> dict[str, Any]:
        """What an outer step begins with: nested arrays, with the merge's own."""
        if blob is None:
            return self._first(fragment)
        if fragment not in self._layouts:
            self._layouts[fragment] = layout(self._first(fragment))
        state: dict[str, Any] = load_arrays(self._store, blob, *self._layouts[fragment])
        return state

    def _first(self, fragment: int) -> dict[str, Any]:
        merging = dict(self._merges[fragment].initial_state())
        return self._outer.first(fragment)[1] | {"merge": merging}

    def _stored(self, state: dict[str, Any]) -> Blob | None:
        return store_arrays(self._store, state) if flatten(state)[0] else None

    def _check_finite(self, fragment: int, vector: Any) -> None:
        for part in self.partition.fragments[fragment]:
            if not np.isfinite(vector[part.start : part.stop]).all():
                raise RunDiverged(
                    f"the outer step makes {part.name} infinite or NaN: the run diverges; lower learning_rate or "
                    f"outer_learning_rate, which is {self._recipe.config.outer_learning_rate}"
                )


def layout(value: Any) -> tuple[Tree, list[TensorSpec]]:
    """The nesting of arrays, and the shape and element type of each."""
    leaves, tree = flatten(value)
    return tree, [TensorSpec(tuple(leaf.shape), dtype_of(leaf.dtype)) for leaf in leaves]
