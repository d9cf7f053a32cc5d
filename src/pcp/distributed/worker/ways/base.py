"""How a worker reaches its Shepherd, how blobs move between them, and where its programs run."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from pcp.distributed.job import Job
from pcp.distributed.messages import (
    Blob,
    FailureKind,
    Goodbye,
    Hello,
    Lease,
    Message,
    Outcome,
    Profile,
    Repeat,
    Welcome,
)
from pcp.distributed.wire import BlobStore, Traffic
from pcp.distributed.worker.effects import Adopt
from pcp.distributed.worker.offer import Offer
from pcp.distributed.worker.trainer import Trained


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


class Carrier(Fetcher, Protocol):
    """Moves blobs both ways."""

    def push(self, blob: Blob, store: Any) -> None:
        """Bring a blob of the store to the Shepherd."""


class TrainerInbox(Protocol):
    """What reaches a trainer while it trains: an `Inbox`."""

    def adopt(self, adoption: Adopt) -> None:
        """Put in a fragment that a lease adopts."""

    def settle(self, lease_id: int, outcome: Outcome) -> None:
        """Put in the answer to a push."""

    def wake(self) -> None:
        """Have who waits ask whether it still should."""


class Trainer(Protocol):
    """Trains leases: a `TrainingProcess`."""

    profile: Profile | None

    @property
    def inbox(self) -> TrainerInbox:
        """What reaches it meanwhile."""

    def train(
        self, lease: Lease, progress: Callable[[int, float], None], aborted: Callable[[], bool]
    ) -> Trained:
        """Train a lease."""

    def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """Do a piece of another worker's lease again."""

    def end(self, why: FailureKind, words: str) -> None:
        """End the process in which programs run, whatever it does."""

    def close(self) -> None:
        """Nothing more will be trained."""


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

    async def connect(self, hello: Hello, traffic: Traffic) -> Connection:
        """Become a member of the run.

        Raises:
            PCPError: the Shepherd cannot be reached, or does not want this worker.
        """

    def carriers(self, traffic: Traffic) -> tuple[Fetcher, Carrier, Carrier]:
        """For fragments, for pushes, and for the states of audits: none of them waits behind another."""

    def store(self, folder: Path, maximum_bytes: int) -> BlobStore:
        """Where blobs are kept."""

    def trainer(
        self,
        job: Job,
        store: BlobStore,
        device: str,
        cancelled: Callable[[], bool],
        offer: Offer,
        cache: Path,
    ) -> Trainer:
        """Make ready to train; see `TrainingProcess` for what is given and raised."""
