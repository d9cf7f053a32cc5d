"""Workers that only look like it: real connections, real blobs, and sleep instead of training. Many in one process."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcp.distributed.messages import (
    Assign,
    Blob,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lease,
    Ready,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.round_arithmetic.flat_blobs import store_vector
from pcp.distributed.wire import (
    PROTOCOL_VERSION,
    Backoff,
    BlobStore,
    BulkClient,
    ConnectionLost,
    ControlConnection,
    Credentials,
    RefusedByPeer,
    Unreachable,
    connect,
)
from pcp.errors import PCPError

MOST_TRIES = 8
LATENESS_SECONDS = 0.02
JOINING_AT_ONCE = 32
TRANSFERS_AT_ONCE = 16
"""Of this process: what one process can do at once says nothing about the Shepherd."""


@dataclass(slots=True)
class Seen:
    """What the stand-ins saw; lists are in seconds.

    Arguments:
        joins: from connecting to the welcome.
        beats: from a heartbeat to its answer.
        beats_while_all_train: those of them that were sent while every stand-in here trained.
        tries: control connections that were refused or lost before the welcome, and tried again.
        transfers: of each blob, its wait for a thread here not counted.
        late: how late this process's own loop was, again and again: heartbeats cannot seem faster.
        leases: pushes that were answered.
        training: stand-ins that train now.
        reconnects: of bulk connections.
        failures: why a stand-in ended before the run did.
    """

    joins: list[float] = field(default_factory=list)
    beats: list[float] = field(default_factory=list)
    beats_while_all_train: list[float] = field(default_factory=list)
    training: int = 0
    tries: int = 0
    transfers: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    leases: int = 0
    reconnects: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Task:
    """What every stand-in of a process does.

    Arguments:
        address: of the Shepherd.
        folder: for blobs, one folder in it for each.
        elements: of a push.
        tokens: of a step.
        step_seconds: that a step takes.
        count: of stand-ins in this process.
    """

    address: str
    folder: Path
    elements: int
    tokens: int
    step_seconds: float
    count: int


class StandIn:
    """One worker.

    Arguments:
        key: its credentials.
        task: what it does.
        pool: for transfers.
        doors: for joining.
        seen: where it notes what it saw.
    """

    def __init__(
        self, key: Credentials, task: Task, pool: ThreadPoolExecutor, doors: asyncio.Semaphore, seen: Seen
    ) -> None:
        self._key, self._task, self._pool, self._doors, self._seen = key, task, pool, doors, seen
        self._store = BlobStore(task.folder / key.name)
        self._down, self._up = BulkClient(task.address, key), BulkClient(task.address, key)
        self._random = np.random.default_rng(key.serial)
        self._sent: dict[int, tuple[float, bool]] = {}
        self._lease = 0

    async def run(self) -> None:
        """Works until the run is complete."""
        try:
            await self._run()
        except (PCPError, OSError, TimeoutError) as error:
            self._seen.failures.append(f"{self._key.name}: {error!r}")
        finally:
            for client in (self._down, self._up):
                self._seen.reconnects += client.reconnects
                client.close()

    async def _run(self) -> None:
        name = self._key.name
        async with await self._connected() as connection:
            welcome = connection.answer
            if not isinstance(welcome, Welcome):
                raise ConnectionError(f"{name} was not welcome: {welcome}")
            beating = asyncio.create_task(self._beat(connection, welcome))
            training: asyncio.Task[None] | None = None
            try:
                # The last one is the data; a stand-in runs no programs.
                await self._move(partial(self._down.fetch, welcome.blobs[-1], self._store))
                connection.post(Ready(welcome.generation))
                async for message in connection:
                    if isinstance(message, HeartbeatReply):
                        self._note_beat(*self._sent.pop(message.sequence))
                    elif isinstance(message, Assign):
                        training = asyncio.create_task(self._train(connection, welcome, message.lease))
                    elif isinstance(message, UpdateReply):
                        self._seen.leases += 1
                    elif isinstance(message, Goodbye):
                        if not message.finished:
                            raise ConnectionError(message.reason)
                        return
            finally:
                for each in (beating, training):
                    if each is not None:
                        each.cancel()

    async def _connected(self) -> ControlConnection:
        hello = Hello(PROTOCOL_VERSION, self._key.name, os.urandom(16), ("stand-in",), 1 << 30)
        backoff = Backoff()
        while True:
            try:
                async with self._doors:
                    began = time.monotonic()
                    connection = await connect(self._task.address, self._key, hello)
                    self._seen.joins.append(time.monotonic() - began)
                    return connection
            except (ConnectionLost, RefusedByPeer, Unreachable):
                if backoff.attempts >= MOST_TRIES:
                    raise
                self._seen.tries += 1
                await asyncio.sleep(backoff.next())

    async def _beat(self, connection: ControlConnection, welcome: Welcome) -> None:
        sequence = 0
        await asyncio.sleep(self._random.random() * welcome.heartbeat_seconds)
        while True:
            sequence += 1
            self._sent[sequence] = (time.monotonic(), self._seen.training == self._task.count)
            connection.post(
                Heartbeat(sequence, welcome.generation, self._lease, 1 if self._lease else 0, 1.0)
            )
            await asyncio.sleep(welcome.heartbeat_seconds)

    def _note_beat(self, sent: float, all_trained: bool) -> None:
        seconds = time.monotonic() - sent
        self._seen.beats.append(seconds)
        if all_trained and self._seen.training == self._task.count:
            self._seen.beats_while_all_train.append(seconds)

    async def _train(self, connection: ControlConnection, welcome: Welcome, lease: Lease) -> None:
        self._lease, began = lease.lease_id, time.monotonic()
        for each in lease.adopt:
            if each.parameters is not None:
                await self._move(partial(self._down.fetch, each.parameters, self._store))
                self._store.remove(each.parameters.digest)
        count = lease.data.count
        self._seen.training += 1
        await asyncio.sleep(self._task.step_seconds * count)
        self._seen.training -= 1
        common = np.random.default_rng(lease.round).standard_normal(self._task.elements)
        own = self._random.standard_normal(self._task.elements)
        push = store_vector(self._store, 1e-3 * common + 1e-4 * own)
        await self._move(partial(self._up.push, push, self._store))
        self._store.remove(push.digest)
        connection.post(self._update(welcome, lease, push, time.monotonic() - began))
        self._lease = 0

    def _update(self, welcome: Welcome, lease: Lease, push: Blob, seconds: float) -> Update:
        count = lease.data.count
        tokens = count * self._task.tokens
        losses = (2.0,) * count
        return Update(lease.lease_id, welcome.generation, lease.round, push, count, tokens, losses, seconds)

    async def _move(self, transfer: Any) -> None:
        def timed() -> None:
            began = time.monotonic()
            transfer()
            self._seen.transfers.append(time.monotonic() - began)

        await asyncio.get_running_loop().run_in_executor(self._pool, timed)


async def note_lateness(late: list[float]) -> None:
    """Notes how much later than it asked for this task is woken, for as long as it runs."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(LATENESS_SECONDS)
        late.append(time.monotonic() - began - LATENESS_SECONDS)


def work(pipe: Any, task: Task, keys: list[Credentials]) -> None:
    """Runs stand-ins in this process until the run is complete; sends what they saw through a pipe."""
    seen = Seen()

    async def all_of_them() -> None:
        noting = asyncio.create_task(note_lateness(seen.late))
        doors = asyncio.Semaphore(JOINING_AT_ONCE)
        with ThreadPoolExecutor(TRANSFERS_AT_ONCE) as pool:
            await asyncio.gather(*(StandIn(key, task, pool, doors, seen).run() for key in keys))
        noting.cancel()

    asyncio.run(all_of_them())
    pipe.send(seen)
