"""A Shepherd's host in this process, and workers that are scripts."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.distributed.tiny_run import tiny_recipe

from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Assign,
    Blob,
    Heartbeat,
    Hello,
    Lease,
    Ready,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.round_arithmetic.array_blobs import store_arrays
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.wire import (
    Authority,
    BlobStore,
    BulkClient,
    ControlConnection,
    connect,
)
from pcp.errors import PCPError
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

SECONDS = 60.0
Script = Callable[["Worker"], Awaitable[None]]


class Worker:
    """A worker that a test plays."""

    def __init__(
        self, connection: ControlConnection, bulk: BulkClient, store: BlobStore, recipe: Recipe
    ) -> None:
        self.connection = connection
        self.bulk = bulk
        self.store = store
        self.recipe = recipe
        assert isinstance(connection.answer, Welcome)
        self.generation = connection.answer.generation
        self.welcome = connection.answer

    async def next(self, *kinds: type) -> Any:
        """The next message of one of these kinds; None at the end of the connection."""
        while (message := await self.connection.receive()) is not None:
            if isinstance(message, kinds):
                return message
        return None

    async def lease(self) -> Lease:
        assign = await self.next(Assign)
        assert isinstance(assign, Assign)
        return assign.lease

    async def upload(self, lease: Lease, delta: Any) -> Update:
        """Upload a push and tell of it."""
        blob = store_arrays(self.store, delta)
        await asyncio.to_thread(self.bulk.push, blob, self.store)
        return self.tell(lease, blob)

    def tell(self, lease: Lease, blob: Blob) -> Update:
        """Tell of a push."""
        count = lease.data.count
        tokens = count * self.recipe.tokens_per_step
        update = Update(
            lease.lease_id,
            self.generation,
            lease.round,
            blob,
            count,
            tokens,
            (2.0,) * count,
            0.1,
        )
        self.connection.post(update)
        return update

    async def answer(self, lease: Lease, delta: Any) -> UpdateReply:
        await self.upload(lease, delta)
        reply = await self.next(UpdateReply)
        assert isinstance(reply, UpdateReply)
        return reply


class Run:
    """A run of one worker slot, and its Shepherd for as long as a test wants it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = RunFolder(folder)
        self.recipe = tiny_recipe(
            folder, workers=1, steps=6, checkpoint_every=3, evaluate_every=3, **settings
        )
        self.authority = Authority.create(folder / "keys")
        self.records: list[dict[str, Any]] = []
        self.address = ""

    def shepherd(self, patience_seconds: float = 0.0) -> Shepherd:
        credentials = self.authority.issue("shepherd", "shepherd", ["127.0.0.1"])
        return Shepherd(
            self.folder,
            self.recipe,
            credentials,
            self.authority.revocations,
            self.records.append,
            patience_seconds,
            self.authority.sign,
        )

    def delta(self, seed: int = 0) -> Any:
        generator = np.random.default_rng(seed)
        size = partition(self.recipe.parameters, 1).size(0)
        return {"values": (generator.standard_normal(size) * 0.01).astype(np.float32)}

    def drive(self, script: Script, shepherd: Shepherd | None = None) -> bool:
        """Run a Shepherd and one scripted worker until the Shepherd ends; whether the run is complete."""
        return asyncio.run(self._drive(script, shepherd or self.shepherd()))

    async def _drive(self, script: Script, shepherd: Shepherd) -> bool:
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(SECONDS):
            serving = asyncio.create_task(shepherd.run("127.0.0.1", 0, listening.set_result))
            await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await self._play(script, f"127.0.0.1:{listening.result()}")
            return await serving

    async def _play(self, script: Script, address: str) -> None:
        self.address = address
        store = BlobStore(self.folder.path / "ada")
        async with await self.connected("ada") as connection:
            with BulkClient(address, self.authority.issue("ada")) as bulk:
                worker = Worker(connection, bulk, store, self.recipe)
                connection.post(Ready(worker.generation))
                beating = asyncio.create_task(
                    _beat(worker)
                )  # the Shepherd may compile for longer than it waits
                try:
                    await script(worker)
                finally:
                    beating.cancel()

    async def connected(self, name: str) -> ControlConnection:
        """A connection of a worker of that name to the Shepherd that is driven."""
        hello = Hello(PROTOCOL_VERSION, name, f"process of {name:>5}".encode(), ("cpu:0",), 1 << 30)
        return await connect(self.address, self.authority.issue(name), hello)


async def _beat(worker: Worker) -> None:
    with contextlib.suppress(PCPError):  # the connection ends
        for number in itertools.count(1):
            worker.connection.post(Heartbeat(number, worker.generation, 0, 0, 0.0))
            await asyncio.sleep(worker.welcome.heartbeat_seconds)
