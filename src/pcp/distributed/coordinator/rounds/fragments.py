"""The durable state of one fragment of the parameters, and of one round that is in flight."""

from dataclasses import dataclass

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator.log.serialisation import storable
from pcp.distributed.coordinator.rounds.data_ranges import Ranges
from pcp.distributed.messages import Blob


@storable
@dataclass(slots=True)
class Fragment:
    """A fragment as its last outer step left it.

    Arguments:
        parameters: what workers hold, flat.
        outer: what the next outer step needs: the exact parameters and the optimizer's state.
        change: what makes the version before into this one; None where there is none.
        version: outer steps of this fragment behind it.
        round: the round that merged it last; -1 for none.
        merged: batches behind it.
    """

    parameters: Blob
    outer: Blob | None
    change: Blob | None = None
    version: int = 0
    round: int = -1
    merged: Ranges = ()

    @property
    def blobs(self) -> frozenset[Blob]:
        """What is stored of it."""
        return frozenset(each for each in (self.parameters, self.outer, self.change) if each)


@storable
@dataclass(slots=True)
class Round:
    """A round in flight: it merges one fragment for every batch below its limit.

    Arguments:
        number: counts the rounds of the run.
        fragment: what it merges.
        limit: batches issued when it opened.
        first_step: inner step number at which its leases start.
        wanted: batches below the limit that were not merged when it opened, nor admitted to the round before.
        missing: of these, how many are still not admitted.
        admitted: contributions in order of arrival; once closed, in the order of reduction.
        batches: behind them.
        weights: of `admitted`, once closed.
    """

    number: int
    fragment: int
    limit: int
    first_step: int
    wanted: int
    missing: int
    admitted: list[Contribution]
    batches: int = 0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self.admitted = list(self.admitted)  # sequences come back from the log as tuples

    @property
    def closed(self) -> bool:
        """Whether its outer step is due or under way, so that nothing more is admitted."""
        return bool(self.weights)

    @property
    def ranges(self) -> Ranges:
        """The batches behind its contributions."""
        return tuple(each for contribution in self.admitted for each in contribution.ranges)
