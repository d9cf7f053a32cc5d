"""`pcp worker`: compute for a Shepherd."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from pcp.backends import Target, default_device
from pcp.cli.lasting import lasting_streams
from pcp.cli.words.sizes import size
from pcp.distributed.address_file import wait_for_address
from pcp.distributed.launching import (
    NotEnoughKeys,
    devices_here,
    run_on_devices,
    slurm_script,
    systemd_unit,
)
from pcp.distributed.peers.listening import listening_address
from pcp.distributed.sandbox import protection
from pcp.distributed.supervisor import end_with_parent
from pcp.distributed.wire import Credentials
from pcp.distributed.wire.sockets import BadAddress, parse_address
from pcp.distributed.worker.artifacts import check_device
from pcp.distributed.worker.effects import Stop
from pcp.distributed.worker.offer import DISK_BYTES, Offer
from pcp.distributed.worker.process import WorkerProcess
from pcp.distributed.worker.ways.wire import WireWay
from pcp.errors import PCPError
from pcp.planning.measuring.hardware import hardware_of
from pcp.temporary import WORKING, TemporaryFolder
from pcp.training.data.shards.place import Place
from pcp.training.display.fleet import Fleet
from pcp.training.display.live_display import LiveDisplay
from pcp.training.display.metrics import JSONLinesStream, MetricSink, Stamped

DESCRIPTION = {
    "description": "Train for a Shepherd: receive programs, verify and compile them here, train on leased data.",
    "epilog": """\
The Shepherd's operator makes the key file with `pcp keys worker NAME --run FOLDER`. It holds the worker's
private key, its certificate, and the certificate of the authority. Keep it secret, and use it for one worker only.

A worker receives programs, never code. It verifies, compiles and runs them in child processes. Those have no network, no key
and none of your files, where the system offers that; the first line says so. `--disk` and `--memory` bound what they take.
A program that takes more, or does not end, is stopped, and the worker goes on.

A worker that cannot reach the Shepherd tries again for a day. A worker that the Shepherd
refuses ends and says why.

On a terminal it shows what it does as a live table; elsewhere it prints plain lines, with --json one JSON object per line.

--print systemd and --print slurm print a unit and a job that start this Worker again when it fails, with the paths of this
shell. --devices all runs a process for each accelerator, each with a key of its own; one that fails is started again after
a pause, longer each time.

exit codes: 0 the run is complete; 1 it failed: a bug, or no connection for a day; 2 an argument or a file is wrong, or
the Shepherd refuses this worker; 130 and 143 interrupted

examples:
  pcp worker --connect 192.0.2.7:7433 --key alice.pem
  pcp worker --connect 192.0.2.7:7433 --key alice.pem --device cuda:0
  pcp worker --connect 192.0.2.7:7433 --key alice.pem --cpus 0,1,2,3 --folder worker-files
  pcp worker --connect 192.0.2.7:7433 --key a0.pem --key a1.pem --devices all
  pcp worker --connect 192.0.2.7:7433 --key alice.pem --listen 0.0.0.0:7434
  pcp worker --connect 192.0.2.7:7433 --key alice.pem --device iree:llvm-cpu --artifact-only
  pcp worker --connect 192.0.2.7:7433 --key alice.pem --print systemd > pcp-alice.service
""",
}

ADDRESS_SECONDS = 600.0
"""How long to wait for the file of an address: a Shepherd may have much data to read before it listens."""


class NoSuchFolder(PCPError):
    """Data were said to lie in a folder that is not there."""


class NoSuchProcessor(PCPError):
    """A processor that this machine does not have, or does not let this process use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--connect",
        required=True,
        metavar="HOST:PORT",
        help="address of the Shepherd, or @FILE for a file that holds it",
    )
    parser.add_argument(
        "--key",
        required=True,
        type=Path,
        action="append",
        help="key file made by `pcp keys worker`; with --devices one for each device",
    )
    parser.add_argument("--device", default=default_device(), help="where to compute")
    parser.add_argument(
        "--devices",
        metavar="all|NAMES",
        help="run a process for each device, such as cuda:0,cuda:1, and start it again where it fails",
    )
    parser.add_argument(
        "--print",
        choices=["systemd", "slurm"],
        help="print a unit or a job that keeps this Worker running; start nothing",
    )
    parser.add_argument("--folder", type=Path, help="where to keep programs and data (default: temporary)")
    parser.add_argument("--cpus", type=_processors, metavar="0,1", help="processors to use (default: all)")
    parser.add_argument(
        "--disk",
        type=size,
        metavar="20GiB",
        help="what the run may take here of the disk: data, states, compiled programs (default: 1TiB)",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="8GiB",
        help="what the run's programs may take of memory (default: all that the device has)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where other workers of the run may fetch from this one what every member may have, so that not all comes from "
        "the Shepherd; they are told the address, or the one it connects from for 0.0.0.0 (default: nowhere)",
    )
    parser.add_argument(
        "--data",
        metavar="PLACE",
        help="a folder or URL where the shards of the run's data lie, as `pcp data shard` wrote them (default: the place that "
        "the run names, then the Shepherd)",
    )
    parser.add_argument(
        "--artifact-only",
        nargs="?",
        const="",
        metavar="CHIP",
        help="compile nothing: run only what the run's owner compiled ahead and signed, for the chip if the run has several "
        "for this device, such as cuda:sm_86; needs a device of IREE",
    )
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.supervised:
        end_with_parent()
    if arguments.data and (place := Place(arguments.data)).is_folder and not Path(place.url).is_dir():
        raise NoSuchFolder(
            f"--data {arguments.data}: there is no such folder; give one that `pcp data shard` wrote, a URL, or no --data: "
            "then the data come from where the run says, or from the Shepherd"
        )
    if arguments.print:
        return _print(arguments)
    if arguments.devices is not None:
        return _run_on_devices(arguments)
    if arguments.cpus is not None:
        _keep_to(arguments.cpus)
    credentials = Credentials.load_bundle(_only_key(arguments.key))
    if arguments.artifact_only is not None:
        check_device(arguments.device)
    target = Target.of(arguments.device)
    address = arguments.connect
    if address.startswith("@"):
        address = wait_for_address(Path(address[1:]), ADDRESS_SECONDS)
    with contextlib.ExitStack() as stack:
        stack.enter_context(lasting_streams())
        folder = arguments.folder or stack.enter_context(TemporaryFolder(WORKING)).path / "blobs"
        parse_address(address)  # before anything is said
        if arguments.listen is not None:
            listening_address(arguments.listen)
        offer = Offer(arguments.disk or DISK_BYTES, arguments.memory, arguments.artifact_only)
        print(
            f"pcp: programs are verified and run under {protection(arguments.device)}",
            file=sys.stderr,
            flush=True,
        )
        shown: MetricSink = JSONLinesStream() if arguments.json else LiveDisplay(Fleet(credentials.name, 0))
        with Stamped(shown) as sink:
            way = WireWay(address, credentials, arguments.listen, arguments.data or "")
            capacity, hardware = target.capacity, hardware_of(target).digest_by(target.backend)
            worker = WorkerProcess(way, folder, arguments.device, capacity, offer, hardware, sink.write)
            stopped, number = asyncio.run(_until_stopped(worker))
            facts = {"event": "stopped", "finished": stopped.finished, "reason": stopped.reason}
            sink.write({"worker": credentials.name} | facts)
        print(f"pcp: worker {credentials.name} ends: {stopped.reason}", file=sys.stderr)
    return 0 if stopped.finished else 128 + number if number else 1


def _print(arguments: argparse.Namespace) -> int:
    """Print how this Worker is kept running."""
    first = Credentials.load_bundle(arguments.key[0]).name
    command = [sys.executable, "-m", "pcp", "worker", *_common(arguments)]
    for key in arguments.key if arguments.devices else [_only_key(arguments.key)]:
        command += ["--key", str(key.resolve())]
    command += ["--devices", arguments.devices] if arguments.devices else ["--device", arguments.device]
    if arguments.listen:
        command += ["--listen", arguments.listen]
    if arguments.cpus:
        command += ["--cpus", ",".join(map(str, sorted(arguments.cpus)))]
    # What it has fetched and compiled is still there when it is started again.
    command += ["--folder", str(_folder(arguments, first))]
    if arguments.print == "systemd":
        text = systemd_unit(first, command, Path.cwd())
    else:
        named = (arguments.devices or arguments.device).split(",")
        devices = named * len(arguments.key) if named == ["all"] else named
        text = slurm_script(first, command, Path.cwd(), devices)
    print(json.dumps({arguments.print: text}) if arguments.json else text.removesuffix("\n"))
    return 0


def _run_on_devices(arguments: argparse.Namespace) -> int:
    devices = devices_here() if arguments.devices == "all" else arguments.devices.split(",")
    if arguments.cpus is not None:
        raise NoSuchProcessor("--cpus is for one process; leave it out with --devices")
    if arguments.listen is not None:
        raise BadAddress("--listen is for one process; leave it out with --devices")
    folder = _folder(arguments, "workers")
    with lasting_streams():
        return run_on_devices(devices, arguments.key, _common(arguments), folder, arguments.json)


def _common(arguments: argparse.Namespace) -> list[str]:
    address = arguments.connect
    place = f"@{Path(address[1:]).resolve()}" if address.startswith("@") else address
    limits = {"--disk": arguments.disk, "--memory": arguments.memory, "--data": arguments.data}
    artifacts = (
        [] if (chip := arguments.artifact_only) is None else ["--artifact-only", *([chip] if chip else [])]
    )
    return [
        "--connect",
        place,
        *(word for name, limit in limits.items() if limit for word in (name, str(limit))),
        *artifacts,
    ]


def _folder(arguments: argparse.Namespace, name: str) -> Path:
    return (arguments.folder or Path(f"pcp-{name}")).resolve()


def _only_key(keys: list[Path]) -> Path:
    if len(keys) > 1:
        raise NotEnoughKeys(
            f"{len(keys)} keys were given for one worker; give one, or --devices all for a worker on each device"
        )
    return keys[0]


async def _until_stopped(worker: WorkerProcess) -> tuple[Stop, int]:
    """Run a worker; SIGTERM and Ctrl-C make it say goodbye. Returns why it ended, and the number of the signal."""
    received = 0

    def stop(number: signal.Signals) -> None:
        nonlocal received
        received = number
        worker.stop(f"the worker received {number.name}")

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return await worker.run(), received


def _processors(text: str) -> set[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of processors; give numbers separated by commas, such as 0,1"
        )
    return {int(part) for part in parts}


def _keep_to(cpus: set[int]) -> None:
    """Use some processors only. This comes before the compiler starts, which makes as many threads as it may use."""
    try:
        os.sched_setaffinity(0, cpus)
    except AttributeError:
        raise NoSuchProcessor(
            "this system cannot restrict a process to some processors; leave out --cpus"
        ) from None
    except OSError as error:
        allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        listed = ",".join(map(str, sorted(cpus)))
        raise NoSuchProcessor(
            f"--cpus {listed} names no processor that this process may use: {error.strerror}; it may use {allowed}"
        ) from None
