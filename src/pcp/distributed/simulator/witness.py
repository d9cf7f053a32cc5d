"""What was truly trained: every number is followed from its batch to the parameters; none may be lost or counted twice."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.messages import Blob, DataRange, Lease
from pcp.distributed.simulator import training


class InvariantViolated(Exception):
    """Something happened in a simulated run that must never happen. No PCPError, for hosts handle those."""


def require(condition: bool, message: str) -> None:
    """Object if a condition does not hold.

    Raises:
        InvariantViolated: it does not.
    """
    if not condition:
        raise InvariantViolated(message)


@dataclass(frozen=True, slots=True)
class Push:
    """What a worker pushed at the end of a lease."""

    chain: int
    lease: Lease
    value: Any


class Witness:
    """Follows the numbers of one run. What a number is, a subclass may decide: see the methods that begin with `value_of`.

    Arguments:
        config: its plan.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._algorithm = config.algorithm
        self._depends = training.depends_on_parameters(config.algorithm)
        # Of what a worker trained since a fresh lease: what each cell, a batch and a fragment, moved.
        self._chains: list[dict[tuple[int, int], Any]] = []
        self._pushes: dict[int, Push] = {}
        self._booked: dict[int, Any] = {}  # what the merged cells of a lease moved its fragment by
        self._merged_cells: set[tuple[int, int]] = set()
        self._rounds: list[tuple[int, ...]] = []
        self._fragment_of: list[int] = []
        fragments = range(config.algorithm.fragments)
        self._masters: list[Any] = [self.value_of_first(fragment) for fragment in fragments]
        self._versions = [[master] for master in self._masters]
        self._offers: dict[Blob, set[tuple[str, int]]] = defaultdict(set)
        self.exchanged = self.alone = 0
        """Exchanges with another, and without."""
        self.masked_leases = self.merged_contributions = self.trained_batches = 0

    def new_chain(self) -> int:
        """Return the number of a new chain: a worker begins afresh."""
        self._chains.append({})
        return len(self._chains) - 1

    def opened(self, round: int, fragment: int) -> None:
        """Take note of what a round merges; one that was lost with the power may open once more."""
        del self._fragment_of[round:]
        self._fragment_of.append(fragment)

    def value_of_first(self, fragment: int) -> Any:
        """The first version of a fragment."""
        return training.initial(fragment)

    def value_of(self, vector: Any) -> Any:
        """A version of a fragment as the observer reads it."""
        return int(vector)

    def value_of_push(self, fragment: int, payload: dict[str, Any], error: Any) -> Any:  # noqa: ARG002 - of one number
        """What a push says.

        Arguments:
            error: what it is the encoding of.
        """
        return payload["value"]

    def value_of_batch(self, batch: int, fragment: int, anchor: Any) -> Any:
        """By what a batch moves a fragment; `anchor` is where it stood."""
        return training.movement(batch, fragment, anchor if self._depends else None)

    def adopted(self, worker: str, fragment: int, version: int, vector: Any) -> None:
        """Take note of what a worker adopts."""
        known, value = self._versions[fragment], self.value_of(vector)
        require(
            version < len(known) and known[version] == value,
            f"{worker} adopts {value} as version {version} of fragment {fragment}; the versions are {known}",
        )

    def trained(
        self,
        chain: int,
        lease: Lease,
        value: Any,
        held: dict[int, int],
        anchors: Sequence[Any],
        batches: Sequence[int],
    ) -> None:
        """Take note of a lease that is trained, and of what is pushed at its end."""
        moved = lease.fragments or range(self._algorithm.fragments)
        self.masked_leases += bool(lease.fragments)
        self.trained_batches += len(batches)
        require(
            list(batches) == list(_batches([lease.data])),
            f"lease {lease.lease_id} trained other batches: {batches}",
        )
        cells = self._chains[chain]
        for batch in batches:
            for fragment in moved:
                cells[batch, fragment] = self.value_of_batch(batch, fragment, anchors[fragment])
        self._pushes[lease.lease_id] = Push(chain, lease, value)
        before = self._fragment_of[: lease.round]
        delay = self._algorithm.delay
        for fragment, version in held.items():
            require(
                self.value_of(anchors[fragment]) == self._versions[fragment][version],
                f"lease {lease.lease_id} was trained with fragment {fragment} not at version {version}",
            )
            newest = before.count(fragment)
            # What the round just before made is adopted late, and not at all in a lease that ends sooner.
            late = delay > 0 and lease.data.count <= delay and before[-1:] == [fragment]
            require(
                version == newest or (late and version < newest),
                f"lease {lease.lease_id} of round {lease.round} was trained with version {version} of fragment "
                f"{fragment}, of which {newest} rounds were before",
            )

    def offered(self, worker: str, offer: Blob, number: int) -> None:
        """Take note of what a worker offers for an exchange."""
        self._offers[offer].add((worker, number))

    def met(self, worker: str, number: int, exchanged: Exchanged) -> None:
        """Check what came of an exchange.

        Arguments:
            worker: whose.
            number: that it asked for.
            exchanged: what came.
        """
        require(
            exchanged.number >= number, f"{worker} asks for exchange {number} and gets {exchanged.number}"
        )
        if exchanged.theirs is None:
            self.alone += 1
            return
        self.exchanged += 1
        source = exchanged.partner, exchanged.number
        require(
            exchanged.partner != worker and source in self._offers[exchanged.theirs],
            f"{worker} gets an offer of {source}; it was made by {self._offers[exchanged.theirs]}",
        )

    def merged(
        self, round: int, fragment: int, contributions: Sequence[Contribution], parameters: Any
    ) -> None:
        """Check an outer step: it merges what was pushed for it, and every cell once.

        Arguments:
            parameters: what workers shall hold.
        """
        pushes = [self._contributed(round, fragment, each) for each in contributions]
        self._rounds.append(tuple(batch for each in contributions for batch in _batches(each.ranges)))
        self._check_step(round, fragment, contributions, pushes, parameters)
        self._versions[fragment].append(parameters)

    def _check_step(
        self,
        round: int,
        fragment: int,
        contributions: Sequence[Contribution],  # noqa: ARG002 - each counts the same
        pushes: Sequence[Any],
        parameters: Any,
    ) -> None:
        master = training.outer_step(self._algorithm, self._masters[fragment], pushes)
        held = self._versions[fragment][-1]
        expected = held + training.rounded(master - held, self._algorithm.download)
        require(
            parameters == expected,
            f"round {round} makes fragment {fragment} {parameters}, expected {expected}",
        )
        self._masters[fragment] = master

    def _contributed(self, round: int, fragment: int, contribution: Contribution) -> Any:
        lease_id = contribution.lease_id
        push = self._pushes.get(lease_id)
        if push is None:
            raise InvariantViolated(f"round {round} merges lease {lease_id}, which nobody trained")
        require(
            (push.lease.round, push.lease.fragment) == (round, fragment),
            f"the push of lease {lease_id}, for round {push.lease.round}, is merged by round {round} of fragment {fragment}",
        )
        cells: dict[tuple[int, int], Any] = self._chains[push.chain]
        moved: Any = 0
        for batch in _batches(contribution.ranges):
            cell = batch, fragment
            require(cell not in self._merged_cells, f"batch {batch} is merged twice into fragment {fragment}")
            require(cell in cells, f"lease {lease_id} is booked for batch {batch}, which it has not trained")
            self._merged_cells.add(cell)
            moved = moved + cells[cell]
        self._booked[lease_id] = moved
        self.merged_contributions += 1
        return push.value

    def _residuals(self) -> dict[int, Any]:
        """Check that every merged push is what its cells moved, and the residual of the one that its worker made before.

        A worker makes its pushes of a fragment in one order; where rounds overlap, they may be merged in another.

        Returns:
            What the codec left in the end, by fragment, of live workers and of those that died with theirs.
        """
        left: dict[tuple[int, int], Any] = defaultdict(int)
        for lease_id, push in self._pushes.items():
            if lease_id not in self._booked:
                continue
            whose = push.chain, push.lease.fragment
            error = left[whose] + self._booked[lease_id]
            self._check_push(lease_id, push, error)
            left[whose] = error - push.value
        kept: dict[int, Any] = defaultdict(int)
        for (_, fragment), residual in left.items():
            kept[fragment] = kept[fragment] + residual
        return kept

    def _check_push(self, lease_id: int, push: Push, error: Any) -> None:
        sent = training.rounded(error, self._algorithm.upload)
        require(
            push.value == sent,
            f"the push of lease {lease_id} is {push.value}; what is booked for it has moved fragment "
            f"{push.lease.fragment} by {sent}",
        )

    def ended(self, parameters: tuple[Any, ...]) -> None:
        """Check a finished run: every cell is merged once, and all numbers are accounted for."""
        config, algorithm = self._config, self._algorithm
        total = config.batches
        require(
            len(self._merged_cells) == total * algorithm.fragments,
            f"{len(self._merged_cells)} of {total * algorithm.fragments} cells were merged",
        )
        require(
            parameters == tuple(versions[-1] for versions in self._versions),
            "the parameters are not those that were merged last",
        )
        self._check_all(self._residuals())

    def _check_all(self, residuals: dict[int, Any]) -> None:
        config, algorithm = self._config, self._algorithm
        total, fragments = config.batches, range(algorithm.fragments)
        if not self._depends:
            for fragment in fragments:
                moved = sum(training.movement(batch, fragment, None) for batch in range(total))
                kept, merged = residuals[fragment], self._masters[fragment] - training.initial(fragment)
                require(
                    merged + kept == moved,
                    f"fragment {fragment} moved by {merged}, residuals keep {kept}; all batches moved it by {moved}",
                )
        elif algorithm.upload == algorithm.download == "f32":
            rounds = self._rounds
            if config.quorum == 1.0:  # each round merges what it issued, whoever trained it
                require(
                    [batch for each in rounds for batch in sorted(each)] == list(range(total)),
                    f"rounds merge other batches than those that they issued: {rounds}",
                )
            expected = training.reference(algorithm, rounds)
            parameters = (self._versions[0][-1],)
            require(parameters == (expected,), "the parameters are not those of the reference")


def _batches(ranges: Iterable[DataRange]) -> Iterable[int]:
    for data in ranges:
        yield from range(data.start, data.start + data.count)
