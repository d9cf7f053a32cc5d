"""`pcp worker`: compute for a Shepherd."""

import argparse
import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path

from pcp import backends
from pcp.distributed.supervisor import end_with_parent
from pcp.distributed.wire import Credentials
from pcp.distributed.worker.effects import Stop
from pcp.distributed.worker.process import WorkerProcess
from pcp.errors import PCPError

DESCRIPTION = {
    "description": "Compute for a Shepherd: receive programs, verify and compile them here, train on leased data.",
    "epilog": """The Shepherd's operator makes the key file with `pcp keys worker NAME`; it holds the worker's certificate,
its private key and the authority that both sides trust. A worker that loses its Shepherd tries again until it is back.

example:
  pcp worker --connect 192.0.2.7:7433 --key alice.pem
""",
}


class NoAddress(PCPError):
    """A file that should hold the Shepherd's address does not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--connect", required=True, metavar="HOST:PORT", help="the Shepherd's address, or @FILE that holds it"
    )
    parser.add_argument("--key", required=True, type=Path, help="key file made by `pcp keys worker`")
    parser.add_argument("--device", default="cpu:0", help="where to compute")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to keep programs and data (default: temporary)"
    )
    parser.add_argument("--cpus", default=None, metavar="0,1", help="processors to use (default: all)")
    parser.add_argument("--supervised", action="store_true", help="end when standard input closes")
    parser.add_argument("--json", action="store_true", help="errors as JSON on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.cpus:
        # Before the compiler's threads are made: their number follows from it.
        os.sched_setaffinity(0, {int(cpu) for cpu in arguments.cpus.split(",")})
    if arguments.supervised:
        end_with_parent()
    credentials = Credentials.load_bundle(arguments.key)
    capacity = backends.device(arguments.device).capacity
    with tempfile.TemporaryDirectory(prefix="pcp-worker-") as temporary:
        folder = arguments.folder or Path(temporary)
        worker = WorkerProcess(_address(arguments.connect), credentials, folder, arguments.device, capacity)
        stopped = asyncio.run(_until_stopped(worker))
    print(f"worker {credentials.name}: {stopped.reason}")
    return 0 if stopped.finished else 128 + signal.SIGTERM


def _address(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        content = json.loads(Path(given[1:]).read_text(encoding="utf-8"))
        return f"{content['host']}:{content['port']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoAddress(f"{given[1:]} holds no address of a Shepherd: {error}") from None


async def _until_stopped(worker: WorkerProcess) -> Stop:
    """Run a worker; SIGTERM and Ctrl-C make it say goodbye."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop, f"signal {number.name}")
    return await worker.run()
