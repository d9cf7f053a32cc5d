"""The way over the network: TLS, keys, and programs in a process of their own."""

from collections.abc import Callable
from pathlib import Path

from pcp.distributed.job import Job
from pcp.distributed.messages import Hello
from pcp.distributed.wire import BlobStore, BulkClient, Credentials, StripedFetcher, Traffic, connect
from pcp.distributed.worker.offer import Offer
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.distributed.worker.ways.base import Carrier, Connection, Fetcher, Trainer

FETCH_CONNECTIONS = 4
"""Over which a large blob is fetched; with those for pushes and audits they stay below `connections_per_worker`."""


class WireWay:
    """Over the network, with keys; programs run in a confined process.

    Arguments:
        address: the Shepherd's, `HOST:PORT`.
        credentials: the worker's certificate; its name is the worker's.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._address, self._credentials = address, credentials
        self.name, self.authority = credentials.name, credentials.authority
        self.is_signed = credentials.is_signed

    async def connect(self, hello: Hello, traffic: Traffic) -> Connection:
        """See `Way`."""
        return await connect(self._address, self._credentials, hello, traffic=traffic)

    def carriers(self, traffic: Traffic) -> tuple[Fetcher, Carrier, Carrier]:
        """See `Way`."""
        clients = [
            BulkClient(self._address, self._credentials, traffic=traffic)
            for _ in range(FETCH_CONNECTIONS + 2)
        ]
        return StripedFetcher(clients[2:]), clients[0], clients[1]

    def store(self, folder: Path, maximum_bytes: int) -> BlobStore:
        """See `Way`."""
        return BlobStore(folder, maximum_total_bytes=maximum_bytes, shared=True)

    def trainer(
        self,
        job: Job,
        store: BlobStore,
        device: str,
        cancelled: Callable[[], bool],
        offer: Offer,
        cache: Path,
    ) -> Trainer:
        """See `Way`."""
        return TrainingProcess(job, store, device, cancelled, offer, cache)
