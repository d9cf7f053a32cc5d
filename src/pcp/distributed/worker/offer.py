"""What a Worker offers to a run: the one place of its limits of disk and memory."""

from dataclasses import dataclass, replace

from pcp.distributed.messages import FailureKind
from pcp.errors import PCPError
from pcp.training.data.shards.sharded_tokens import CACHE_BYTES

DISK_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Offer:
    """Limits.

    Arguments:
        disk_bytes: that everything together may take on disk which comes from a run or is made for it: its programs, data and
            states, what was compiled, temporary files.
        memory_bytes: that its programs may take; None for all that the device has.
        artifacts: None if it compiles the run's programs; else it takes only what was compiled ahead for the chip of this
            name, or for the only one of its device's kind if it is empty.
    """

    disk_bytes: int = DISK_BYTES
    memory_bytes: int | None = None
    artifacts: str | None = None

    @property
    def shard_bytes(self) -> int:
        """What shards of training data may take on disk: half, and 8 GiB where everything is offered."""
        return CACHE_BYTES if self.disk_bytes == DISK_BYTES else self.disk_bytes // 2

    @property
    def without_shards(self) -> "Offer":
        """What is left for the rest."""
        return replace(self, disk_bytes=self.disk_bytes - self.shard_bytes)


EVERYTHING = Offer()


class ProgramStopped(PCPError):
    """The process that runs programs was ended, or ended itself; `why` says what for."""

    def __init__(self, why: FailureKind, words: str) -> None:
        super().__init__(words)
        self.why = why
