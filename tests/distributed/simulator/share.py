"""Which part of the code that runs in production also runs under simulation: `make simulated-share`.

What is counted are lines with a statement inside functions of `src/pcp/distributed`: what a module runs while it is imported
proves nothing. Production is three whole runs over real sockets, TLS, threads and files in this process: DiLoCo, Streaming
DiLoCo with 4-bit codecs both ways and audits, and NoLoCo; Workers listen, and one of them comes back. Simulation is schedules
of the simulator. The share is that of the lines that production ran which simulation ran, too.

Left out is what holds sockets, and processes with their confinement: `LEFT_OUT`, each with its reason.
"""

import argparse
import asyncio
import contextlib
import inspect
import logging
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import pcp.distributed
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Lease
from pcp.distributed.runtime import finished
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.simulator import scenario_of, simulate
from pcp.distributed.wire import Authority, BlobStore
from pcp.distributed.worker.process import WorkerProcess
from pcp.distributed.worker.training import plans
from pcp.distributed.worker.training.trainer import InnerTrainer, Progress, make_trainer
from pcp.distributed.worker.ways import wire
from pcp.distributed.worker.ways.wire import WireWay
from pcp.ir import Program
from pcp.training.run_folder import RunFolder
from tests.distributed.tiny_run import tiny_recipe

ROOT = Path(pcp.distributed.__file__).parent
LEFT_OUT = {
    "sandbox/": "confines a process by the kernel's means",
    "worker/programs/": "the confined process and its pipes",
    "verification.py": "compiles in a confined process",
    "supervisor.py": "starts and watches processes",
    "launching.py": "starts processes",
    "address_file.py": "tells processes of one machine where the Shepherd listens",
    "runtime.py": "an asyncio loop and threads",
    "shepherd/process.py": "an asyncio loop, a listening port and a folder around the host",
    "shepherd/serving.py": "signals",
    "shepherd/locking.py": "locks a folder",
    "worker/process.py": "an asyncio loop, connections and a folder around the host",
    "worker/ways/": "sockets, TLS and a listening port around the workshop",
    "engines/": "actors of Ray",
    "peers/clients.py": "TLS sockets to other workers",
    "peers/listening.py": "a listening socket",
    "wire/identity/": "TLS and certificates",
    "wire/sockets.py": "sockets",
    "wire/server.py": "a listening socket",
    "wire/doorway.py": "sockets of strangers",
    "wire/control.py": "a TLS socket",
    "wire/control_client.py": "a TLS socket",
    "wire/bulk/client.py": "a TLS socket",
    "wire/bulk/connection.py": "a TLS socket",
    "wire/bulk/framed.py": "a TLS socket",
    "wire/bulk/handshake.py": "a TLS socket",
    "wire/bulk/server.py": "threads for sockets",
    "wire/bulk/striped.py": "threads for sockets",
    "wire/bulk/turns.py": "threads for sockets",
    "wire/bulk/watch.py": "waits for sockets",
}
Lines = dict[str, set[int]]


class Tracer:
    """Notes the lines of this package's functions that run, in every thread."""

    def __init__(self) -> None:
        self.lines: defaultdict[str, set[int]] = defaultdict(set)
        self._watched: dict[CodeType, Any] = {}

    def __enter__(self) -> "Tracer":
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None ends it

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        if code not in self._watched:
            own = code.co_filename.startswith(str(ROOT)) and code.co_flags & inspect.CO_NEWLOCALS
            self._watched[code] = self._lines_of(code) if own else None
        return self._watched[code]

    def _lines_of(self, code: CodeType) -> Callable[[FrameType, str, Any], Any]:
        found = self.lines[str(Path(code.co_filename).relative_to(ROOT))]

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                found.add(frame.f_lineno)
            return trace

        return trace


class InThisProcess(InnerTrainer):
    """Stands for `TrainingProcess`: what that has in a confined process is traced here."""

    def __new__(cls, job: Job, store: BlobStore, device: str, *others: Any) -> Any:
        made, meet = make_trainer(job, store, device), others[3]
        train = made.train

        def meeting(lease: Lease, progress: Progress, aborted: Callable[[], bool], later: Any = None) -> Any:
            def offered(number: int, own: Blob | None, loss: float) -> None:
                made.inbox.met(finished(meet(number, own, loss, aborted)))

            return train(lease, progress, aborted, offered, later)

        made.train = meeting  # type: ignore[method-assign]  # as the parent of the process would
        made.end = made.close = lambda *_: None  # type: ignore[attr-defined]  # nothing to end
        return made


def production(folder: Path, **settings: Any) -> None:
    """A whole run of a Shepherd and two Workers; one of them leaves after a while and comes back.

    Arguments:
        settings: of the run.
    """
    recipe, authority = tiny_recipe(folder, workers=2, **settings), Authority.create(folder / "keys")

    async def work(port: int, name: str, seconds: float) -> None:
        way = WireWay(f"127.0.0.1:{port}", authority.issue(name), "127.0.0.1:0")
        worker = WorkerProcess(way, folder / name, "cpu:0", 1 << 30, hardware="a core")
        asyncio.get_running_loop().call_later(seconds, worker.stop, "for a while")
        if not (await worker.run()).finished:
            await work(port, name, 1e6)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        shepherd = Shepherd(
            RunFolder(folder),
            recipe,
            authority.issue("shepherd", "shepherd", ["127.0.0.1"]),
            authority.revocations,
            lambda record: None,  # noqa: ARG005 - nobody looks
            sign=authority.sign,
        )
        listening: asyncio.Future[int] = loop.create_future()
        serving = asyncio.create_task(shepherd.run("127.0.0.1", 0, listening.set_result))
        port = await listening
        await asyncio.gather(serving, work(port, "ada", 1e6), work(port, "bob", 4.0))

    asyncio.run(run())


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Programs of Workers run here, not in confined processes, which nobody traces."""
    admitted = lambda artifacts, *_: {name: Program.from_artifact(each) for name, each in artifacts.items()}  # noqa: E731
    with (
        mock.patch.object(wire, "TrainingProcess", InThisProcess),
        mock.patch.object(plans, "admit", admitted),
    ):
        yield


def in_production() -> Lines:
    """The lines that production runs."""
    with in_this_process(), Tracer() as tracer:
        for settings in (
            {"algorithm": "diloco", "checkpoint_every": 3, "evaluate_every": 3},
            {
                "algorithm": "streaming",
                "inner_steps": 4,
                "fragments": 2,
                "delay": 1,
                "upload": "int4",
                "download": "int4",
                "audit_rate": 1.0,
                "steps": 24,
            },
            {"algorithm": "noloco", "inner_steps": 4, "steps": 24},
        ):
            with tempfile.TemporaryDirectory() as folder:
                production(Path(folder), **settings)
    return tracer.lines


def under_simulation(seeds: int) -> Lines:
    """The lines that schedules run."""
    with Tracer() as tracer:
        for seed in range(seeds):
            simulate(scenario_of(seed))
    return tracer.lines


def main() -> None:
    """Print the share by folder, and of all."""
    parser = argparse.ArgumentParser(
        description="Which part of production's code runs under simulation, too?"
    )
    parser.add_argument("--seeds", type=int, default=96, help="schedules")
    parser.add_argument("--missing", action="store_true", help="print the lines that no schedule runs")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    simulated, produced = under_simulation(options.seeds), in_production()
    rows: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, lines in sorted((file, lines) for file, lines in produced.items() if lines):
        both = lines & simulated.get(file, set())
        left_out = any(file.startswith(each) for each in LEFT_OUT)
        parts = file.split("/")
        folder = parts[0] if len(parts) > 1 else "top level"
        for row in ("left out",) if left_out else (folder, "all that is counted"):
            rows[row][0] += len(both)
            rows[row][1] += len(lines)
        if options.missing and not left_out and lines - both:
            print(f"{file}: {len(lines - both)} of {len(lines)}: {sorted(lines - both)}")
    for row, (both, total) in sorted(
        rows.items(), key=lambda item: item[0] in ("left out", "all that is counted")
    ):
        print(f"{row:20} {both:5} of {total:5} lines {both / max(1, total):6.1%}")


if __name__ == "__main__":
    main()
