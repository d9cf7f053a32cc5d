"""A run on a Ray cluster: its actors are made, made again where they die, and ended together."""

import functools
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pcp.distributed.engines.ray.cluster import ClusterLost, Share, connect, is_connected, share_of_cluster
from pcp.distributed.engines.ray.objects import SHEPHERD
from pcp.distributed.engines.ray.shepherd import ShepherdActor
from pcp.distributed.engines.ray.worker import WorkerActor
from pcp.distributed.supervisor import ChildFailed
from pcp.distributed.wire.backoff import Backoff
from pcp.errors import PCPError
from pcp.training.display.metrics import MetricSink, Tail
from pcp.training.run_folder import RunFolder

log = logging.getLogger("pcp.distributed.engines.ray")

POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0
"""How long actors may take to end by themselves."""

STARTS, WINDOW_SECONDS = 8, 300.0
"""How many starts an actor may have in so many seconds."""

STEADY_SECONDS = 10.0
"""An actor that dies sooner is made again after a pause: Ray places actors on a node that is gone until it sees that."""

WAITING_SECONDS = 30.0
"""How long an actor may wait for its place in the cluster before that is said."""

KILLED = -9
"""What is said of an actor that died, as of a process that was killed; Ray does not tell more of all of them."""


class RunStopped(PCPError):
    """The operator asked the Shepherd to stop."""


@dataclass
class Actor:
    """One actor to keep alive.

    Arguments:
        name: for messages.
        make: makes it.
        handle, running: the last one, and its `run`.
        placed: answered when it has its place in the cluster; None when that was so, or was said.
        starts: when those of late were made.
        due: when it is made again; None while there is one.
        backoff: how long that takes.
        result: what its `run` returned.
    """

    name: str
    make: Callable[[], Any]
    handle: Any = None
    running: Any = None
    placed: Any = None
    starts: list[float] = field(default_factory=list)
    due: float | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 30.0))
    result: Any = None

    def start(self) -> None:
        """Make it, and have it run."""
        self.due = None
        self.starts.append(time.monotonic())
        self.handle = self.make()
        self.placed, self.running = self.handle.process_id.remote(), self.handle.run.remote()


def train_on_ray(folder: RunFolder, address: str | None, shown: MetricSink) -> None:
    """Run a Shepherd and its Workers as actors, to the end.

    Arguments:
        folder: of the run, whose data is prepared; an interrupted run goes on. Its authority's key is there.
        address: of the cluster; see `connect`.
        shown: receives every record that the Shepherd writes from now on.

    Raises:
        ClusterUnreachable, ClusterTooSmall: there is no such cluster, or no place in it.
        ChildFailed: an actor cannot be kept alive.
        ClusterLost: this node was taken out of the cluster, which lost sight of it.
        RunStopped: the operator stopped the run.
    """
    config = folder.config()
    authority = (folder.path / "keys" / "authority.crt").read_bytes()
    metrics = Tail(folder.metrics_file, from_end=True)
    with _cluster(address, namespace_of(folder)):
        share = share_of_cluster(config.workers, config.device)
        shepherd = Actor("shepherd", lambda: _make_shepherd(folder))
        workers = [
            Actor(name, functools.partial(_make_worker, name, authority, share))
            for name in (f"worker-{number}" for number in range(config.workers))
        ]
        actors = [shepherd, *workers]
        try:
            for actor in actors:
                actor.start()
            while shepherd.result is None:
                for record in (*metrics.read(), *_looked_after(actors)):
                    shown.write(record)
                    if record.get("event") == "restart" and not is_connected():
                        raise ClusterLost(
                            "this machine is no longer part of the Ray cluster, where its part has ended or was too slow "
                            f"to answer; start it again, then pcp train --resume {folder.path} --engine ray"
                        )
            left = [worker.running for worker in workers if worker.due is None]
            ray.wait(left, num_returns=max(1, len(left)), timeout=GRACE_SECONDS)
        finally:
            _end(actors)
            for record in metrics.read():
                shown.write(record)
    if not shepherd.result:
        raise RunStopped(f"the run was stopped; pcp train --resume {folder.path} --engine ray continues it")


@contextmanager
def _cluster(address: str | None, namespace: str) -> Iterator[None]:
    # Where Ray says which of its processes died; this command's output is for programs.
    with redirect_stdout(sys.stderr):
        connect(address, namespace)
        try:
            yield
        finally:
            ray.shutdown()


def namespace_of(folder: RunFolder) -> str:
    """The namespace of a run in its cluster, where its actors are called shepherd, worker-0, worker-1, ..."""
    return f"pcp:{folder.path.resolve()}"


def _make_shepherd(folder: RunFolder) -> Any:
    """The Shepherd, on this node, where its folder is."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(ShepherdActor).options(name=SHEPHERD, num_cpus=0, scheduling_strategy=here)
    return _made(functools.partial(actor.remote, str(folder.path.resolve())))


def _make_worker(name: str, authority: bytes, share: Share) -> Any:
    actor = ray.remote(WorkerActor).options(
        name=name,
        num_cpus=share.processors,
        num_gpus=share.accelerators,
        scheduling_strategy="SPREAD",
    )
    processors = 0 if share.accelerators else share.processors
    return _made(functools.partial(actor.remote, name, authority, share.device, processors))


def _made(make: Callable[[], Any]) -> Any:
    """An actor, as soon as the one before it, which has just died, has lost its name."""
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        try:
            return make()
        except ValueError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS)


def _looked_after(actors: list[Actor]) -> Iterator[dict[str, Any]]:
    """Wait a moment for something to end, and make again what died; returns records of that."""
    for actor in actors:
        if actor.due is not None and time.monotonic() >= actor.due:
            actor.start()
    under_way = {actor.running: actor for actor in actors if actor.due is None and actor.result is None}
    for reference in ray.wait(list(under_way), timeout=POLL_SECONDS)[0]:
        actor = under_way[reference]
        try:
            actor.result = ray.get(reference)
            continue
        except ray.exceptions.RayTaskError as error:
            raise ChildFailed(f"{actor.name} cannot go on: {error.cause}") from error
        except ray.exceptions.RayActorError as error:
            log.warning("%s died and is made again: %s", actor.name, error)
            _let_rest(actor, error)
        yield {"event": "restart", "process": actor.name, "code": KILLED}
    for actor in actors:
        if actor.placed is None or time.monotonic() - actor.starts[-1] < WAITING_SECONDS:
            continue
        if not ray.wait([actor.placed], timeout=0)[0]:
            message = f"{actor.name} waits for a free place in the Ray cluster; the others go on"
            yield {"event": "trouble", "message": message}
        actor.placed = None


def _let_rest(actor: Actor, error: Exception) -> None:
    """Make an actor again: at once, or after a pause where it has not lived for long."""
    now = time.monotonic()
    actor.starts = [start for start in actor.starts if now - start < WINDOW_SECONDS]
    if len(actor.starts) >= STARTS:
        raise ChildFailed(
            f"{actor.name} died {len(actor.starts)} times within {WINDOW_SECONDS:.0f} s, the last time so: {error}"
        )
    _kill(actor)  # Ray may only have lost sight of it
    if now - actor.starts[-1] >= STEADY_SECONDS:
        actor.backoff.reset()
        actor.due = now
    else:
        actor.due = now + actor.backoff.next()


def _end(actors: list[Actor]) -> None:
    """Let the Shepherd stop as after SIGTERM, and end all."""
    shepherd = actors[0]
    if shepherd.handle is not None and shepherd.result is None:
        with suppress(ray.exceptions.RayError):
            ray.get(shepherd.handle.stop.remote(), timeout=GRACE_SECONDS)
            ray.wait([shepherd.running], timeout=GRACE_SECONDS)
    for actor in actors:
        _kill(actor)


def _kill(actor: Actor) -> None:
    if actor.handle is not None:
        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(actor.handle)
