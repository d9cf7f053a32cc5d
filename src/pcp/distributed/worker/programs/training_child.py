"""The process in which a Worker runs what came over the network: for `training_process` only, which
confines it.

The Worker is trusted here, and this process is not trusted there.
"""

import logging
import os
import queue
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pcp.backends import needs_driver
from pcp.backends.jax_dispatch import compute_in_calling_thread
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Lease, Repeat
from pcp.distributed.runtime import finished
from pcp.distributed.sandbox.limits import limit_data
from pcp.distributed.verification import VerificationCancelled
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.programs.sayings import finite_or_named
from pcp.distributed.worker.programs.sayings import seconds as as_seconds
from pcp.distributed.worker.training.repetition import RepetitionAborted
from pcp.distributed.worker.training.trainer import InnerTrainer, LeaseAborted, Trained, make_trainer
from pcp.errors import PCPError
from pcp.processes.parent import Parent
from pcp.training.data.shards.index import Shard, ShardIndex
from pcp.training.data.shards.lent import LentShards
from pcp.training.data.shards.place import PlaceUnreachable

_POLL_SECONDS = 0.1
LONGEST_WORDS = 10_000


class TrainingChild:
    """Does what is asked, one piece of work after another; what comes meanwhile goes to the trainer's inbox."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._trainer: InnerTrainer | None = None
        self._shards: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # whether the one asked for is here
        self._built = threading.Event()  # what was asked for
        self._aborted = 0  # work up to this number is not wanted any more
        self._say = Parent(self._hear).say

    def run(self) -> None:
        """Work until the process is ended."""
        while True:
            kind, number, *arguments = self._work.get()
            try:
                said = getattr(self, f"_{kind}")(lambda number=number: number <= self._aborted, *arguments)
            except (LeaseAborted, RepetitionAborted):
                said = {"aborted": True}
            except BaseException as error:
                said = _trouble(error)
            self._say(**said, number=number)

    def _prepare(
        self,
        aborted: Callable[[], bool],
        job: str,
        folder: str,
        device: str,
        limits: Any,
        shards: str | None,
        only_artifacts: bool,
    ) -> dict[str, Any]:
        disk_bytes, memory_bytes = limits
        store = BlobStore(folder, maximum_total_bytes=disk_bytes, shared=True)
        if memory_bytes is not None and not needs_driver(device):
            limit_data(memory_bytes)

        def lent(index: ShardIndex) -> LentShards:
            return LentShards(index, Path(str(shards)), self._bring, self._expect)

        compute_in_calling_thread()
        self._trainer = make_trainer(
            Job.from_json(job),
            store,
            device,
            aborted,
            lent,
            only_artifacts,
            lambda names: self._build(names, aborted),
        )
        profile = self._trainer.profile
        if profile is None:
            return {"profile": None}
        rows = [[row.subject, row.kernel, *finite_or_named([row.ratio])] for row in profile.rows]
        return {"profile": [profile.chosen, rows]}

    def _train(self, aborted: Callable[[], bool], lease: Lease) -> dict[str, Any]:
        assert self._trainer is not None
        done = finished(
            self._trainer.train(
                lease,
                lambda steps, seconds, batches=0: self._say(
                    steps=steps, seconds=as_seconds(seconds), batches=batches
                ),
                aborted,
                lambda number, offer, loss: self._say(
                    exchange=number, offer=offer and _named(offer), loss=finite_or_named([loss])[0]
                ),
                lambda outcome: self._say(
                    lease=lease.lease_id,
                    **(_done(outcome) if isinstance(outcome, Trained) else _trouble(outcome)),
                ),
            )
        )
        return {"later": True} if done is None else _done(done)

    def _repeat(self, aborted: Callable[[], bool], wanted: Repeat) -> dict[str, Any]:
        assert self._trainer is not None
        after, payload = finished(self._trainer.repeat(wanted, aborted))
        return {"after": _named(after), "payload": None if payload is None else _named(payload)}

    def _build(self, names: Collection[str], aborted: Callable[[], bool]) -> None:
        """Have native libraries built by the Worker: no compiler may run here."""
        self._say(libraries=sorted(names))
        while not self._built.wait(_POLL_SECONDS):
            if aborted():
                raise VerificationCancelled("the worker was asked to stop while native libraries were built")

    def _bring(self, shard: Shard) -> None:
        self._say(shard=shard.digest)
        problem = self._shards.get()
        if problem is None:
            raise LeaseAborted
        if problem:
            raise PlaceUnreachable(problem)

    def _expect(self, shards: Sequence[Shard]) -> None:
        self._say(shards=[shard.digest for shard in shards])

    def _hear(self, request: tuple[Any, ...]) -> None:
        """Take a request in as it comes, whatever is being done."""
        kind, *arguments = request
        match kind:
            case "adopt" if self._trainer is not None:
                self._trainer.inbox.adopt(*arguments)
            case "settle" if self._trainer is not None:
                self._trainer.inbox.settle(*arguments)
            case "shorten" if self._trainer is not None:
                self._trainer.inbox.shorten(*arguments)
            case "follow" if self._trainer is not None:
                self._trainer.inbox.follow(*arguments)
            case "partner" if self._trainer is not None:
                self._trainer.inbox.met(*arguments)
            case "built":
                self._built.set()
            case "shard":
                self._shards.put(*arguments)
            case "abort":
                self._aborted = max(self._aborted, *arguments)
                if self._trainer is not None:
                    self._trainer.inbox.wake()
            case _:
                self._work.put(request)


def _done(done: Trained) -> dict[str, Any]:
    return {
        "payload": _named(done.payload),
        "tokens": done.tokens,
        "losses": finite_or_named(done.losses),
        "seconds": as_seconds(done.seconds),
        "overhead": as_seconds(done.overhead_seconds),
        "waited": as_seconds(done.waited_seconds),
        "states": [_named(blob) for blob in done.states],
        "batches": done.batches,
        "settled": [[each.fragment, str(each.outcome)] for each in done.settled],
    }


def _trouble(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PCPError | OSError | MemoryError):
        return {"error": type(error).__name__, "reason": str(error)[:LONGEST_WORDS]}
    return {"bug": "".join(traceback.format_exception(error))[-LONGEST_WORDS:]}


def _named(blob: Blob) -> list[Any]:
    return [blob.digest.hex(), blob.size]


if __name__ == "__main__":
    level = logging.getLevelNamesMapping().get(os.environ.get("PCP_LOG", "").upper(), logging.WARNING)
    logging.basicConfig(level=level, format="%(message)s")
    TrainingChild().run()
