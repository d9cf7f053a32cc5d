"""What a Shepherd needs of the door through which its workers come."""

from collections.abc import AsyncIterator
from typing import Protocol

from pcp.distributed.messages import Goodbye, Message
from pcp.distributed.wire import RefusalCode, Statistics
from pcp.distributed.wire.identity.tls import Peer


class Door(Protocol):
    """Lets workers in: a `WireServer`."""

    port: int
    statistics: Statistics

    async def close(self) -> None:
        """Let nobody in any more, and end every connection."""


class WorkerConnection(Protocol):
    """A worker that has proved who it is: a `ControlConnection`."""

    address: str

    @property
    def peer(self) -> Peer:
        """Who it is."""

    def post(self, message: Message) -> None:
        """Say something without waiting."""

    def __aiter__(self) -> AsyncIterator[Message]:
        """What the worker says."""

    async def close(self, goodbye: Goodbye | None = None) -> None:
        """Let what was said arrive, and close."""

    async def refuse(self, code: RefusalCode, reason: str) -> None:
        """Say why, and close."""
