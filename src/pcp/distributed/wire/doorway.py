"""Where strangers wait: connections whose peer has not proved yet who it is.

They are few, all on the event loop, without a thread; nothing is held for one but its socket until it has said in
four plain bytes what it is for and has its turn to begin TLS. Addresses with few strangers have the first turns, and
where there are too many, one of the address with the most of them goes. So those who come from elsewhere have time
to prove who they are.
"""

import asyncio
import functools
import logging
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pcp.distributed.wire.fairness import Crowd, TokenBucket, network_of
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.sockets import BULK_PREAMBLE, CONTROL_PREAMBLE, PREAMBLE_BYTES, format_address, tune

_log = logging.getLogger("pcp.wire.server")
_PAUSE_WHEN_OUT_OF_DESCRIPTORS_SECONDS = 0.2
_ACCEPTED_AT_ONCE = 64
_SWEEP_SECONDS = 0.25


@dataclass(eq=False, slots=True)
class Stranger:
    """One connection.

    Arguments:
        socket: not blocking; None once somebody else has to close it.
        address: of the other side, as text.
        network: with whom it is counted.
        preamble: what it said before TLS.
        task: which serves it, once its turn has come.
        dismissed: whether it has to go without another word.
    """

    socket: socket.socket | None
    address: str
    network: str
    preamble: bytes = b""
    task: asyncio.Task[None] | None = None
    dismissed: bool = False


class Doorway:
    """Accepts connections, and has those served that say what they are for. To be made in a running event loop.

    Arguments:
        listener: where they come from.
        limits: how many, and for how long.
        serve: proves who one is, and serves it; calls `proved` in between.
        refused: told whom, which kind of refusal, and why.
    """

    def __init__(
        self,
        listener: socket.socket,
        limits: WireLimits,
        serve: Callable[[Stranger], Awaitable[None]],
        refused: Callable[[str, str, str], None],
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._serve = serve
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._strangers: Crowd[Stranger] = Crowd(limits.strangers, random.Random())
        self._pace = TokenBucket(limits.handshakes_per_second, limits.handshakes_per_second)
        self._next_turn: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listen_again: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)
        self._sweeper = self._loop.create_task(self._sweep(), name="strangers")

    def __len__(self) -> int:
        return len(self._strangers)

    def proved(self, stranger: Stranger) -> None:
        """Counts a connection no more: its peer has proved who it is."""
        self._strangers.leave(stranger.network, stranger)

    async def close(self) -> None:
        """Stops listening, sends strangers away, and ends what serves the others."""
        if self._listener.fileno() < 0:
            return  # closed already
        for timer in (self._next_turn, self._listen_again):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._sweeper.cancel()
        for stranger in self._strangers.entered_before(float("inf")):
            self._dismiss(stranger)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(self._sweeper, *tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                # Not `loop.sock_accept`: cancelled at the wrong moment it would lose a socket that it has accepted.
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # the peer went away meanwhile
                continue
            except OSError as error:
                _log.error("cannot accept connections: %s; trying again", error)
                self._loop.remove_reader(self._listener)
                again = functools.partial(self._loop.add_reader, self._listener, self._accept)
                self._listen_again = self._loop.call_later(_PAUSE_WHEN_OUT_OF_DESCRIPTORS_SECONDS, again)
                return
            connection.setblocking(False)
            stranger = Stranger(connection, format_address(address), network_of(str(address[0])))
            crowded_out = self._strangers.enter(stranger.network, stranger, self._loop.time())
            if crowded_out is not None:
                self._refused(crowded_out.address, "crowded out", "too many had not proved who they are")
                self._dismiss(crowded_out)
            self._loop.add_reader(connection, self._read_preamble, stranger)

    def _read_preamble(self, stranger: Stranger) -> None:
        assert stranger.socket is not None
        try:
            data = stranger.socket.recv(PREAMBLE_BYTES - len(stranger.preamble))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stranger.preamble += data
        if data and len(stranger.preamble) < PREAMBLE_BYTES:
            return
        if stranger.preamble not in (CONTROL_PREAMBLE, BULK_PREAMBLE):
            self._refused(stranger.address, "preamble", f"it began with {stranger.preamble!r}")
            self._dismiss(stranger)
            return
        self._loop.remove_reader(stranger.socket)
        self._strangers.wait(stranger.network, stranger)
        if self._next_turn is None:
            self._give_turns()

    def _give_turns(self) -> None:
        self._next_turn = None
        now = self._loop.time()
        while not self._pace.wait(now) and (stranger := self._strangers.next()) is not None:
            self._pace.take(1.0, now)
            stranger.task = self._loop.create_task(self._have_served(stranger))
            self._tasks.add(stranger.task)
            stranger.task.add_done_callback(functools.partial(self._served, stranger))
        if self._strangers.waits:
            self._next_turn = self._loop.call_later(self._pace.wait(now), self._give_turns)

    async def _have_served(self, stranger: Stranger) -> None:
        try:
            assert stranger.socket is not None
            tune(stranger.socket)
            await self._serve(stranger)
        except OSError as error:
            _log.info("the connection of %s broke: %s", stranger.address, error)

    def _served(self, stranger: Stranger, task: asyncio.Task[None]) -> None:
        # Not at the end of the task itself: it may be cancelled before it begins.
        self._tasks.discard(task)
        self._strangers.leave(stranger.network, stranger)
        if stranger.socket is not None:
            stranger.socket.close()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("serving %s failed", stranger.address, exc_info=error)

    async def _sweep(self) -> None:
        seconds = self._limits.handshake_seconds
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, seconds / 4))
            for stranger in self._strangers.entered_before(self._loop.time() - seconds):
                self._refused(stranger.address, "handshake timeout", f"no handshake in {seconds} seconds")
                self._dismiss(stranger)

    def _dismiss(self, stranger: Stranger) -> None:
        self._strangers.leave(stranger.network, stranger)
        stranger.dismissed = True
        if stranger.task is not None:
            stranger.task.cancel()
        elif stranger.socket is not None:
            self._loop.remove_reader(stranger.socket)
            stranger.socket.close()
