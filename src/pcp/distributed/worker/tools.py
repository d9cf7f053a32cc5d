"""What a workshop works with: files, transfers, and what trains; all of it is simulated, too."""

from collections.abc import Callable, Iterable
from typing import Protocol

from pcp.distributed.messages import Blob, FailureKind, Lease, Outcome, Profile, Repeat
from pcp.distributed.worker.effects import Adopt, Shorten
from pcp.distributed.worker.training.trainer import Later, Progress, Trained


class Files(Protocol):
    """Where blobs are: a `BlobStore`."""

    def keep_only(self, digests: Iterable[bytes]) -> int:
        """Remove every complete blob but these."""

    def remove(self, digest: bytes) -> None:
        """Remove a blob."""


class Fetches(Protocol):
    """Brings blobs from the Shepherd into the worker's store, one at a time."""

    async def fetch(self, blob: Blob) -> None:
        """Bring a blob; at once if it is here."""

    def close(self) -> None:
        """End what is under way."""


class Pushes(Protocol):
    """Sends blobs of the worker's store to the Shepherd, one at a time."""

    async def push(self, blob: Blob) -> None:
        """Send a blob; the Shepherd has stored and checked it then."""

    def close(self) -> None:
        """End what is under way."""


class Transfers(Fetches, Pushes, Protocol):
    """Moves blobs both ways."""


class Inbox(Protocol):
    """What reaches a trainer while it trains."""

    def adopt(self, adoption: Adopt) -> None:
        """Hand on a fragment that a lease adopts."""

    def settle(self, lease_id: int, outcome: Outcome) -> None:
        """Hand on the answer to a push."""

    def shorten(self, wanted: Shorten) -> None:
        """Hand on that the lease should end sooner."""

    def follow(self, lease_id: int) -> None:
        """Hand on that another lease follows this one."""

    def wake(self) -> None:
        """Have who trains ask whether it still should."""


class Trainer(Protocol):
    """What trains: a `TrainingProcess`."""

    @property
    def inbox(self) -> Inbox:
        """What reaches it while it trains."""

    @property
    def profile(self) -> Profile | None:
        """What was planned and measured."""

    async def train(
        self, lease: Lease, progress: Progress, aborted: Callable[[], bool], later: Later | None = None
    ) -> Trained | None:
        """See `InnerTrainer.train`."""

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """See `Repeater.repeat`."""

    def end(self, why: FailureKind, words: str) -> None:
        """End what is under way, whatever it does."""

    def close(self) -> None:
        """End all."""
