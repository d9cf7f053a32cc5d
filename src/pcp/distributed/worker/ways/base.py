"""How a worker reaches its Shepherd, how blobs move between them, and where its programs run."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Goodbye, Hello, Message, Welcome
from pcp.distributed.wire import BlobStore, Traffic
from pcp.distributed.worker.offer import Offer
from pcp.distributed.worker.tools import Trainer

Told = Callable[[Exchanged, float], None]
"""Told in any thread of an exchange with another worker, and of the mean loss since the last one."""


class Connection(Protocol):
    """A worker's end of a control connection: a `ControlConnection`."""

    answer: Welcome | Goodbye | None

    def post(self, message: Message) -> None:
        """Say something without waiting."""

    def __aiter__(self) -> AsyncIterator[Message]:
        """What the Shepherd says."""

    async def close(self, goodbye: Goodbye | None = None) -> None:
        """Let what was said arrive, and close."""


class Fetcher(Protocol):
    """Brings blobs here."""

    def fetch(self, blob: Blob, store: Any) -> None:
        """Bring a blob into the store."""

    def close(self) -> None:
        """Give up what is under way; from any thread."""


class Pusher(Protocol):
    """Brings blobs to the Shepherd."""

    def push(self, blob: Blob, store: Any) -> None:
        """Bring a blob of the store to the Shepherd."""

    def close(self) -> None:
        """Give up what is under way; from any thread."""


class Carrier(Fetcher, Pusher, Protocol):
    """Moves blobs both ways."""


class Way(Protocol):
    """What differs between a worker among strangers and one in a cluster that trusts itself."""

    @property
    def name(self) -> str:
        """The worker's."""

    @property
    def authority(self) -> bytes:
        """The certificate of the run's authority."""

    def is_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether a signature of some bytes is that of the run's authority."""

    def store(self, folder: Path, maximum_bytes: int) -> BlobStore:
        """Where blobs are kept."""

    async def open(self, store: BlobStore) -> None:
        """Let other workers in, where that is wanted."""

    async def close(self) -> None:
        """Let nobody in any more."""

    async def connect(self, hello: Hello, traffic: Traffic) -> Connection:
        """Become a member of the run.

        Raises:
            PCPError: the Shepherd cannot be reached, or does not want this worker.
        """

    def takes(self, message: Message) -> bool:
        """Whether a message of the Shepherd is meant for the way itself, which has taken it then."""

    def carriers(self, traffic: Traffic) -> tuple[Fetcher, Pusher, Carrier]:
        """For fragments, for pushes, and for the states of audits: none of them waits behind another."""

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
        """Make ready to train; see `TrainingProcess` for what is given and raised.

        Raises:
            MustListen: the workers of the run exchange with each other, and this one cannot be reached.
        """
