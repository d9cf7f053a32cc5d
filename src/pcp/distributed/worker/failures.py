"""What may go wrong in a worker while a run is prepared or trained, and what kind the Shepherd counts it as."""

from pcp.distributed.job import JobUnsigned
from pcp.distributed.messages import FailureKind
from pcp.distributed.verification import ProgramRefused, VerificationCancelled
from pcp.distributed.wire import ConnectionLost, StoreError, StoreFull, TransferError, Unreachable
from pcp.distributed.worker.artifacts import ArtifactForeign, ArtifactsMissing, ChipUnclear
from pcp.distributed.worker.offer import ProgramStopped
from pcp.errors import PCPError
from pcp.planning.artifact import InvalidArtifact

PASSING = (TransferError, ConnectionLost, Unreachable, StoreError, VerificationCancelled, OSError)
"""What may go wrong while a run is prepared and not go wrong the next time."""


class NotOffered(PCPError):
    """The description of a run names a blob that the Shepherd did not offer."""


class MustListen(PCPError):
    """The workers of a run exchange with each other, and this one does not listen."""


def kind_of(error: Exception) -> FailureKind:
    """Return as what the Shepherd counts an error."""
    match error:
        case ProgramStopped():
            return error.why
        case ProgramRefused() | ArtifactsMissing() | ChipUnclear() | ArtifactForeign() | InvalidArtifact():
            return FailureKind.REFUSED
        case JobUnsigned():
            return FailureKind.UNSIGNED
        case StoreFull():
            return FailureKind.DISK
    return FailureKind.OTHER
