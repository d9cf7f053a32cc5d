"""The way over the network: TLS, keys, other workers, and programs in a process of their own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pcp.distributed.gossip.exchanger import Exchanger
from pcp.distributed.gossip.offer_box import OfferBox
from pcp.distributed.job import Job
from pcp.distributed.messages import Hello, Message, Peers
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import PeerClients
from pcp.distributed.peers.fetching import HolderFetcher
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.peers.listening import listen
from pcp.distributed.wire import (
    BlobStore,
    BulkClient,
    Credentials,
    StripedFetcher,
    StripedPusher,
    Traffic,
    WireServer,
    connect,
)
from pcp.distributed.worker.failures import MustListen
from pcp.distributed.worker.offer import Offer
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.distributed.worker.tools import Trainer
from pcp.distributed.worker.training.shards import ShardLender, shards_of
from pcp.distributed.worker.ways.base import Carrier, Connection, Fetcher, Pusher, Told

FETCH_CONNECTIONS, PUSH_CONNECTIONS = 4, 3
"""Over which a large blob is moved; with that for audits they are as many as `connections_per_worker` allows."""
NEAR_SECONDS = 15e-3
"""What a handshake takes over a short way: there one connection is faster than several, on two processors as on eight."""


class WireWay:
    """Over the network, with keys; programs run in a confined process.

    Arguments:
        address: the Shepherd's, `HOST:PORT`.
        credentials: the worker's certificate; its name is the worker's.
        listens_on: where other workers may reach this one, `HOST:PORT`; None where they may not.
        data: a folder or URL with the shards of the run's data, asked before anybody else is.
    """

    def __init__(
        self, address: str, credentials: Credentials, listens_on: str | None = None, data: str = ""
    ) -> None:
        self._address, self._credentials, self._listens_on = address, credentials, listens_on
        self._data = data
        self.name, self.authority = credentials.name, credentials.authority
        self.is_signed = credentials.is_signed
        self._book = PeerBook(credentials.name)
        self._holdings = Holdings(self._book)
        self._server: WireServer | None = None
        self._reachable_at = ""

    def store(self, folder: Path, maximum_bytes: int) -> BlobStore:
        """See `Way`."""
        return BlobStore(folder, maximum_total_bytes=maximum_bytes, shared=True)

    async def open(self, store: BlobStore) -> None:
        """See `Way`.

        Raises:
            BadAddress, CertificateProblem, PortInUse, CannotListen: it cannot listen where it was told to.
        """
        self._box = OfferBox(store)
        if self._listens_on is not None:
            self._server, self._reachable_at = await listen(
                self._listens_on, self._credentials, self._box, self._holdings
            )

    async def close(self) -> None:
        """See `Way`."""
        if self._server is not None:
            await self._server.close()

    async def connect(self, hello: Hello, traffic: Traffic) -> Connection:
        """See `Way`."""
        hello = replace(hello, listens=self._reachable_at)
        return await connect(self._address, self._credentials, hello, traffic=traffic)

    def takes(self, message: Message) -> bool:
        """See `Way`."""
        if isinstance(message, Peers):
            if message.changes:
                self._book.change(message.members, message.left)
            else:
                self._book.replace(message.members)
            return True
        return False

    def carriers(self, traffic: Traffic) -> tuple[Fetcher, Pusher, Carrier]:
        """See `Way`."""

        def clients(count: int) -> list[BulkClient]:
            return [BulkClient(self._address, self._credentials, traffic=traffic) for _ in range(count)]

        self._clients = PeerClients(self._credentials, traffic)
        fetcher = StripedFetcher(clients(FETCH_CONNECTIONS), near_seconds=NEAR_SECONDS)
        down = HolderFetcher(fetcher, self._book, self._holdings, self._clients)
        self._aside = clients(1)[0]
        return down, StripedPusher(clients(PUSH_CONNECTIONS)), self._aside

    def trainer(
        self,
        job: Job,
        store: BlobStore,
        device: str,
        cancelled: Callable[[], bool],
        offer: Offer,
        cache: Path,
        told: Told,
    ) -> Trainer:
        """See `Way`."""
        if job.exchange_every and self._listens_on is None:
            raise MustListen(
                "the workers of this run exchange with each other, and this one cannot be reached; start it with "
                "--listen HOST:PORT, for example --listen 0.0.0.0:7434"
            )
        self._holdings.offer_bytes = job.offer_bytes
        meets = Exchanger(job.seed, self._book, self._box, store, self._clients, told)
        shards = shards_of(job, store, self._aside, offer.shard_bytes, self._data)
        lender = None if shards is None else ShardLender(shards)
        rest = offer if shards is None else offer.without_shards
        store.maximum_total_bytes = rest.disk_bytes
        return TrainingProcess(job, store, device, cancelled, rest, cache, meets.meet, lender)
