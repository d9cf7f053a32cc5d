"""A simulated worker among others: it holds out what it fetched, fetches from who has it, and exchanges in pairs."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pcp.distributed.gossip.exchanger import Exchanged, Exchanger
from pcp.distributed.gossip.offer_box import OfferBox
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Peers
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import SLOW_SECONDS, SLOWEST_BYTES_PER_SECOND
from pcp.distributed.peers.fetching import HolderFetcher
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.simulator.network import Endpoint
from pcp.distributed.simulator.runtime import Later, drive
from pcp.distributed.simulator.transfers import BulkServer, SimulatedTransfers, Transfer, moved
from pcp.distributed.worker.training.inbox import Inbox

if TYPE_CHECKING:
    from pcp.distributed.simulator.worker_process import WorkerProcess

PORT = 7434
LEAST_SECONDS = 0.01


class Neighbour:
    """What a worker that listens has beside the others; it lives and dies with its process.

    Arguments:
        process: the worker's.
    """

    def __init__(self, process: "WorkerProcess") -> None:
        self._process = process
        now, store = process.runtime.now, process.blobs
        self._book = PeerBook(process.name, now)
        self._box = VirtualBox(process)
        self._holdings = Holdings(self._book)
        lines: Any = Lines(process)
        self._lines = lines
        shepherd: Any = SimulatedTransfers(process)
        self.fetches = Holders(_Fetcher(shepherd, self._book, self._holdings, self._lines, now), store)
        self._exchanger: Exchanger | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._process.name}:{PORT}"

    def heard(self, message: Peers) -> None:
        """Take what the Shepherd says of the members."""
        if message.changes:
            self._book.change(message.members, message.left)
        else:
            self._book.replace(message.members)

    def accept(self, worker: str) -> Endpoint:
        """Its end of a connection of another."""
        box: Any = self._box
        return BulkServer(self._process, worker, box, self._holdings)

    def prepared(self, job: Job) -> None:
        """Make ready for the exchanges of a run."""
        process = self._process
        self._holdings.offer_bytes = job.offer_bytes
        store: Any = process.blobs
        self._exchanger = Exchanger(
            job.seed, self._book, self._box, store, self._lines, lambda _met, _loss: None, process.runtime.now
        )

    def meet(
        self, inbox: Inbox, number: int, own: Blob | None, loss: float, given_up: Callable[[], bool]
    ) -> None:
        """Begin to exchange with another; the inbox is told what became of it."""
        assert self._exchanger is not None, "the run is prepared"
        process, witness = self._process, self._process.world.witness
        if own is not None:
            witness.offered(process.name, own, number)

        def met(exchanged: Exchanged) -> None:
            if own is not None:
                witness.met(process.name, number, exchanged)
            inbox.met(exchanged)

        drive(self._exchanger.meet(number, own, loss, given_up), met)


class VirtualBox(OfferBox):
    """Offers of others, waited for in virtual time."""

    def __init__(self, process: "WorkerProcess") -> None:
        store: Any = process.blobs
        super().__init__(store, process.runtime.now)
        self._process = process
        self._later: Later | None = None

    def wake(self) -> None:
        """See `OfferBox`."""
        if self._later is not None:
            later, self._later = self._later, None
            later.come()

    async def _wait(self, seconds: float) -> None:
        waiting = self._later = Later()

        def over() -> None:
            if self._later is waiting:
                self.wake()

        # By a slow clock a part of the time is always left, of which too little moves no time at all.
        self._process.runtime.after(max(seconds, LEAST_SECONDS), over)
        await waiting


class Lines:
    """Connections to other workers: a `PeerClients` in virtual time."""

    def __init__(self, process: "WorkerProcess") -> None:
        self._process = process

    async def push(self, peer: tuple[str, str], blob: Blob, store: Any) -> None:  # noqa: ARG002 - the process's own
        """See `PeerClients`."""
        await self._move(peer, blob, push=True)

    async def fetch(
        self,
        peer: tuple[str, str],
        blob: Blob,
        store: Any,  # noqa: ARG002 - the process's own
        owner: str,  # noqa: ARG002 - the process's own
        within: float,
    ) -> None:
        """See `PeerClients`."""
        await self._move(peer, blob, push=False, within=within)

    async def _move(self, peer: tuple[str, str], blob: Blob, push: bool, within: float = math.inf) -> None:
        longest = min(within, SLOW_SECONDS + blob.size / SLOWEST_BYTES_PER_SECOND)
        await moved(Transfer(self._process, blob, push, to=peer[0], attempts=1), longest)

    def drop(self, peer: tuple[str, str]) -> None:
        """See `PeerClients`: none stays."""

    def close(self) -> None:
        """See `PeerClients`."""


class _Fetcher(HolderFetcher):
    """Fetches in virtual time."""

    async def _from_shepherd(self, blob: Blob, store: Any, owner: str) -> None:  # noqa: ARG002 - the process's own
        shepherd: Any = self._shepherd
        await shepherd.fetch(blob)


class Holders:
    """See `workshop.Fetches`: from other workers, and from the Shepherd what they do not give."""

    def __init__(self, fetcher: HolderFetcher, store: Any) -> None:
        self._fetcher, self._store = fetcher, store

    async def fetch(self, blob: Blob) -> None:
        """See `workshop.Fetches`."""
        await self._fetcher.bring(blob, self._store)

    def close(self) -> None:
        """See `workshop.Fetches`."""
        self._fetcher.close()
