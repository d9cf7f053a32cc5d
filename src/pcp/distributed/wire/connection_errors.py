"""How a connection ends otherwise than by a Goodbye."""

from pcp.distributed.wire.refusal import Refusal
from pcp.errors import PCPError


class ConnectionLost(PCPError):
    """The connection broke, or the other side closed it without a Goodbye."""


class RefusedByPeer(PCPError):
    """The other side does not want this connection.

    Arguments:
        refusal: why.
        message: what to tell a person.
    """

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class PeerNotAcceptable(PCPError):
    """This side ended the connection, because of who the other is or of what it sent; it was told.

    Arguments:
        refusal: why.
        message: what to tell a person.
    """

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
