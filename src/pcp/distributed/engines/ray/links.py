"""Control connections between two actors: messages in their order, and notice when the other one is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pcp.distributed.messages import Goodbye, Message, Welcome
from pcp.distributed.wire import ConnectionLost, RefusalCode
from pcp.distributed.wire.identity.tls import Peer

log = logging.getLogger("pcp.distributed.engines.ray")

LAST_WORDS_SECONDS = 2.0
"""How long what was said last may take to arrive when a connection is closed."""


class Link:
    """One end of a connection, for the loop in which it was made.

    One call to the other end is under way at a time, with all messages that waited: so they arrive in their order.

    Arguments:
        name: of the worker at one of the ends.
        address: of the other end, as text.
        say: has the other end hear messages.
    """

    def __init__(self, name: str, address: str, say: Callable[[list[Message]], Awaitable[None]]) -> None:
        self.peer = Peer(name, 0)
        self.address = address
        self.answer: Welcome | Goodbye | None = None
        self.over = asyncio.Event()
        self._say = say
        self._posted: list[Message] = []
        self._heard: asyncio.Queue[Message | None] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._closing = False
        self._writer = asyncio.create_task(self._write())

    def post(self, message: Message) -> None:
        """Say something without waiting; nothing if the connection has ended."""
        self._posted.append(message)
        self._wake.set()

    def hear(self, messages: list[Message]) -> None:
        """Take what the other end says."""
        for message in messages:
            self._heard.put_nowait(message)

    async def receive(self) -> Message | None:
        """What the other end says next; None when the connection has ended."""
        message = await self._heard.get()
        if message is None:
            self._heard.put_nowait(None)
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All that the other end says."""
        while (message := await self.receive()) is not None:
            yield message

    def end(self) -> None:
        """Note that the other end is gone."""
        if not self.over.is_set():
            self.over.set()
            self._writer.cancel()
            self._heard.put_nowait(None)

    async def close(self, goodbye: Goodbye | None = None) -> None:
        """Let what was said arrive, and end."""
        if goodbye is not None:
            self.post(goodbye)
        self._closing = True
        self._wake.set()
        await asyncio.wait({self._writer}, timeout=LAST_WORDS_SECONDS)
        self.end()

    async def refuse(self, _: RefusalCode, reason: str) -> None:
        """Say why, and end."""
        await self.close(Goodbye(False, reason))

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            messages, self._posted = self._posted, []
            if messages:
                try:
                    await self._say(messages)
                except Exception as error:  # Ray has many; each of them means that nobody hears
                    log.info("%s does not hear: %s", self.address, error)
                    self._heard.put_nowait(None)
                    self.over.set()
                    return
            if self._closing and not self._posted:
                return


class Switchboard:
    """What an actor with connections answers to; the other end of each is another such actor."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def hear(self, number: str, messages: list[Message]) -> None:
        """Called by the other end: take messages of a connection.

        Raises:
            ConnectionLost: it has ended here.
        """
        if (link := self._links.get(number)) is None:
            raise ConnectionLost("the connection has ended")
        link.hear(messages)

    async def outlast(self, number: str) -> None:
        """Called by the other end: return when the connection has ended here. The call fails when this actor dies."""
        if (link := self._links.get(number)) is not None:
            await link.over.wait()

    def open_link(self, number: str, name: str, address: str, other: Any) -> Link:
        """Begin a connection; `watch` comes when it has begun at the other end, too.

        Arguments:
            number: of the connection, the same at both ends.
            name: of the worker.
            address: of the other end, as text.
            other: its actor.
        """
        link = self._links[number] = Link(
            name, address, lambda messages: _called(other.hear.remote(number, messages))
        )
        return link

    def watch(self, number: str, other: Any) -> None:
        """End a connection here when it ends there, or its actor dies."""
        task = asyncio.create_task(self._watch(number, other))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _watch(self, number: str, other: Any) -> None:
        link = self._links[number]
        try:
            await _called(other.outlast.remote(number))
        except Exception as error:  # as above
            log.info("%s is gone: %s", link.address, error)
        link.end()
        self._links.pop(number, None)


async def _called(reference: Any) -> None:
    """Wait for a call of another actor."""
    await reference
