"""A piece of another worker's lease, done again for an audit."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pcp.distributed.messages import Adoption, Blob, Repeat
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, load_arrays, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.round_arithmetic.inner_state import load_inner, store_inner
from pcp.distributed.round_arithmetic.program_fit import Arrays, Fragment
from pcp.distributed.round_arithmetic.replica import Replica, Runs
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError


class RepetitionRefused(PCPError):
    """A piece that cannot be repeated: it names steps or fragments that are not there, or nothing to begin with."""


class RepetitionAborted(Exception):
    """The repetition was given up; not an error."""


class Shelf(Protocol):
    """Where the blobs are that leases and pieces name, and where their results go."""

    def inner(self, blob: Blob) -> Mapping[str, Any]:
        """An inner state, for `Replica.restore`."""

    def vector(self, fragment: int, blob: Blob) -> Any:
        """The flat parameters of a fragment."""

    def change(self, fragment: int, blob: Blob) -> Any:
        """What leads from one version of a fragment to the next, encoded."""

    def put_inner(self, replica: Replica) -> Blob:
        """Store the inner state of a replica."""

    def put_push(self, payload: dict[str, Any]) -> Blob:
        """Store an encoded push."""


@dataclass(frozen=True, slots=True)
class StoredArrays:
    """A shelf of arrays in a store.

    Arguments:
        store: of blobs.
        state: the state of the training step.
        fragments: what travels of each fragment.
    """

    store: BlobStore
    state: Arrays
    fragments: tuple[Fragment, ...]

    def inner(self, blob: Blob) -> Mapping[str, Any]:
        """An inner state that another worker stored.

        Raises:
            ArraysRefused: the blob is no inner state.
        """
        return load_inner(self.store, blob, self.state, [fragment.vector for fragment in self.fragments])

    def vector(self, fragment: int, blob: Blob) -> Any:
        """The flat parameters of a fragment.

        Raises:
            ArraysRefused: the blob is no such vector.
        """
        return load_vector(self.store, blob, self.fragments[fragment].vector.specs[0].size, finite=True)

    def change(self, fragment: int, blob: Blob) -> Any:
        """An encoded change of a fragment.

        Raises:
            ArraysRefused: the blob is no change, or no program of the run takes one.
        """
        change = self.fragments[fragment].change
        if change is None:
            raise ArraysRefused(f"a change of fragment {fragment} was sent, but no program that takes it")
        return load_arrays(self.store, blob, change.tree, list(change.specs), finite=True)

    def put_inner(self, replica: Replica) -> Blob:
        """Store the inner state of a replica."""
        return store_inner(self.store, replica)

    def put_push(self, payload: dict[str, Any]) -> Blob:
        """Store an encoded push."""
        return store_arrays(self.store, payload)


@dataclass(frozen=True, slots=True)
class Repeater:
    """What repeats pieces.

    Arguments:
        plans: the worker's programs, compiled.
        fragments: how many there are.
        batch: gives a batch by its number.
        shelf: of blobs.
    """

    plans: Mapping[str, Runs]
    fragments: int
    batch: Callable[[int], Any]
    shelf: Shelf

    async def repeat(
        self, wanted: Repeat, aborted: Callable[[], bool], ready: Callable[[Any], Awaitable[None]]
    ) -> tuple[Blob, Blob | None]:
        """Do a piece again, in a state of its own.

        Arguments:
            wanted: the piece.
            aborted: asked before every step whether to stop.
            ready: waits until the step that leads to a loss is done.

        Returns:
            The inner state that it comes to, and the push if that is wanted, both stored.

        Raises:
            RepetitionAborted: `aborted` said so.
            RepetitionRefused: the piece makes no sense.
            ArraysRefused: a blob that it names is not what the programs take.
        """
        self._check(wanted)
        replica, lease = Replica(self.plans), wanted.lease
        if wanted.before is not None:
            replica.restore(self.shelf.inner(wanted.before))
        if wanted.opening:
            self._open(replica, wanted)
        for step in range(wanted.first, wanted.first + wanted.steps):
            if aborted():
                raise RepetitionAborted
            self._adopt(replica, [each for each in lease.adopt if each.step == step > 0])
            await ready(replica.step(self.batch(lease.data.start + step))["loss"])
        payload = None
        if wanted.push:
            self._adopt(
                replica, [each for each in lease.adopt if each.step >= lease.data.count and each.step]
            )
            replica.finish()
            for each in wanted.settled:
                replica.settle(each.fragment, each.outcome)
            payload = self.shelf.put_push(replica.push(lease.fragment))
        return self.shelf.put_inner(replica), payload

    def _check(self, wanted: Repeat) -> None:
        lease, there = wanted.lease, range(self.fragments)
        named = {lease.fragment, *lease.fragments, *(each.fragment for each in lease.adopt)}
        if unknown := named - set(there):
            raise RepetitionRefused(
                f"lease {lease.lease_id} names fragment {min(unknown)}; the run has {len(there)}"
            )
        if not 0 <= wanted.first <= wanted.first + wanted.steps <= lease.data.count:
            raise RepetitionRefused(
                f"steps {wanted.first} to {wanted.first + wanted.steps} were asked for of lease {lease.lease_id}, "
                f"which has {lease.data.count}"
            )
        if wanted.before is None and not (wanted.opening and lease.fresh):
            raise RepetitionRefused(
                f"no state was named to begin with; only the opening of a fresh lease needs none, and lease {lease.lease_id} "
                "was to be repeated elsewhere or begins otherwise"
            )

    def _open(self, replica: Replica, wanted: Repeat) -> None:
        lease = wanted.lease
        first = [each for each in lease.adopt if each.step == 0]
        if lease.fresh:
            vectors = {each.fragment: self._vector(each) for each in first}
            if sorted(vectors) != list(range(self.fragments)):
                raise RepetitionRefused(
                    f"lease {lease.lease_id} begins afresh from fragments {sorted(vectors)}; expected each of "
                    f"{self.fragments}"
                )
            replica.fresh([vectors[number] for number in sorted(vectors)], lease.first_step)
        else:
            self._adopt(replica, first)
        replica.begin(lease.first_step, lease.fragments)

    def _adopt(self, replica: Replica, adoptions: list[Adoption]) -> None:
        for each in adoptions:
            replica.adopt(each.fragment, self._vector(each))

    def _vector(self, adoption: Adoption) -> Any:
        if adoption.parameters is None:
            raise RepetitionRefused(
                f"fragment {adoption.fragment} of version {adoption.version} is not named"
            )
        return self.shelf.vector(adoption.fragment, adoption.parameters)
