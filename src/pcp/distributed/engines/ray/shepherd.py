"""A Shepherd as an actor: the host of every Shepherd, with Ray between it and its Workers."""

import asyncio
import dataclasses
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from pcp.distributed.engines.ray.links import Link, Switchboard
from pcp.distributed.messages import Blob, Hello
from pcp.distributed.shepherd.door import Door
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.shepherd.serving import PATIENCE_SECONDS
from pcp.distributed.wire import Authority, Statistics
from pcp.distributed.wire.frames import FrameKind
from pcp.training.display.bounded import Bounded
from pcp.training.display.metrics import JSONLinesFile, Stamped
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder

KEPT_SECONDS = 60.0
"""How long an object is kept for others who may ask for the same blob; who has asked keeps it for as long as it is used."""


class ShepherdActor(Switchboard):
    """The Shepherd of a run, on the node that holds the run's folder; and the door through which its workers come.

    It computes on the processor: the accelerators of the cluster are for Workers.

    Arguments:
        folder: of the run, whose authority has its key there.
    """

    port = 0

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.statistics = Statistics()
        self._folder = RunFolder.open(Path(folder))
        self._open = asyncio.Event()
        self._served: set[asyncio.Task[None]] = set()
        self._guard = threading.Lock()
        self._objects: dict[Blob, tuple[Any, float]] = {}  # and when they were asked for last
        self._shepherd: Shepherd | None = None

    async def run(self) -> bool:
        """Coordinate until the run is complete, or `stop` is called; returns whether it is."""
        logging.getLogger("pcp").setLevel(os.environ.get("PCP_LOG", "INFO"))
        recipe = prepare(self._folder)
        recipe = dataclasses.replace(recipe, config=dataclasses.replace(recipe.config, device="cpu:0"))
        authority = Authority.load(self._folder.path / "keys")
        with Bounded(Stamped(JSONLinesFile(self._folder.metrics_file))) as sink:
            self._shepherd = _Hosted(
                self._folder,
                recipe,
                authority.issue("shepherd", "shepherd", ["localhost"]),
                None,
                sink.write,
                PATIENCE_SECONDS,
                authority.sign,
            )
            self._shepherd.door = self
            return await self._shepherd.run("", 0, lambda _: self._open.set())

    async def stop(self) -> None:
        """End before the run is complete."""
        if self._shepherd is not None:
            self._shepherd.stop()

    async def process_id(self) -> int:
        """The number of the actor's process on its node."""
        return os.getpid()

    async def join(self, number: str, hello: Hello, worker: Any) -> None:
        """Called by a worker: begin a connection with it.

        Arguments:
            number: of the connection.
            hello: what it says first.
            worker: its actor.
        """
        await self._open.wait()
        link = self.open_link(number, hello.worker, hello.worker, worker)
        self.watch(number, worker)
        self.statistics.count_accepted("control")
        task = asyncio.create_task(self._serve(link, hello))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def fetch(self, blob: Blob) -> list[Any]:
        """Called by a worker: a reference to an object with the bytes of a blob, in a list, or Ray would resolve it.

        Raises:
            BlobMissing: it is not here.
        """
        await self._open.wait()
        return [await asyncio.to_thread(self._object, blob)]

    async def push(self, worker: str, blob: Blob, references: list[Any]) -> None:
        """Called by a worker: take a blob; it is on disk when this returns.

        Raises:
            StoreError: it is not what it is said to be, or there is no room for it.
        """
        await self._open.wait()
        content = await references[0]
        await asyncio.to_thread(self._take, worker, blob, content)

    async def close(self) -> None:
        """See `Door`."""
        self._open.clear()
        for link in list(self._links.values()):
            link.end()
        await asyncio.gather(*self._served, return_exceptions=True)

    async def _serve(self, link: Link, hello: Hello) -> None:
        assert self._shepherd is not None
        try:
            await self._shepherd.serve(link, hello)
        finally:
            await link.close()

    def _object(self, blob: Blob) -> Any:
        assert self._shepherd is not None
        now = time.monotonic()
        with self._guard:
            self._objects = {
                each: (reference, asked)
                for each, (reference, asked) in self._objects.items()
                if now - asked < KEPT_SECONDS and self._shepherd.arrivals.has(each)
            }
            reference, _ = self._objects.get(blob, (None, now))
            if reference is None:
                source = self._shepherd.arrivals.open(blob)
                try:
                    content = np.empty(blob.size, np.uint8)
                    source.read_into(0, content.data)
                    reference = ray.put(content)
                finally:
                    source.close()
            self._objects[blob] = (reference, now)
        self.statistics.traffic.count_sent(FrameKind.CHUNK, blob.size)
        return reference

    def _take(self, worker: str, blob: Blob, content: npt.NDArray[np.uint8]) -> None:
        assert self._shepherd is not None
        self.statistics.traffic.count_received(FrameKind.CHUNK, blob.size)
        if self._shepherd.arrivals.has(blob):
            return
        arriving = self._shepherd.arrivals.begin(blob, worker)
        try:
            arriving.write(content[arriving.offset :].data)
            arriving.finish()
        finally:
            arriving.close()


class _Hosted(Shepherd):
    """A Shepherd whose workers come through a door that is open already."""

    door: Door

    async def listen(self, _: str, __: int, ___: float) -> Door:
        """The door."""
        return self.door
