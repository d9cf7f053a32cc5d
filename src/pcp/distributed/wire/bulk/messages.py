"""What two peers say about a blob on a bulk connection; the bytes themselves travel in chunk frames."""

from dataclasses import dataclass

from pcp.distributed.bounds import Digest, Number
from pcp.distributed.messages import Blob


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for the bytes `offset <= i < stop` of a blob.

    Arguments:
        blob: what is wanted.
        offset: first byte wanted.
        stop: one past the last byte wanted.
        window_bytes: bytes that may be on the way without credit.
        chunk_bytes: largest chunk wanted.
    """

    blob: Blob
    offset: Number
    stop: Number
    window_bytes: Number
    chunk_bytes: Number


@dataclass(frozen=True, slots=True)
class Push:
    """Offers the bytes `offset <= i < stop` of a blob; the answer says from which of them on they are wanted.

    Arguments:
        blob: what is offered.
        offset: first byte offered.
        stop: one past the last byte offered.
        window_bytes: bytes that this side would have on the way without credit.
        chunk_bytes: largest chunk that it would send.
    """

    blob: Blob
    offset: Number
    stop: Number
    window_bytes: Number
    chunk_bytes: Number


@dataclass(frozen=True, slots=True)
class Begin:
    """Answers `Fetch` and `Push`: the bytes `offset <= i < stop` travel now, in chunks, within the window."""

    offset: Number
    stop: Number
    window_bytes: Number
    chunk_bytes: Number


@dataclass(frozen=True, slots=True)
class Credit:
    """Receiver to sender: every byte before `offset` has been taken."""

    offset: Number


@dataclass(frozen=True, slots=True)
class Stored:
    """Receiver of a push: what was offered is here; a whole blob has the right digest, and is in the store."""

    digest: Digest


TransferMessage = Fetch | Push | Begin | Credit | Stored
