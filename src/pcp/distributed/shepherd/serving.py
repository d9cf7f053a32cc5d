"""A Shepherd in the foreground: where it listens, and how signals end it."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from pcp.distributed.address_file import read_address, write_address
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.wire.sockets import format_address

PATIENCE_SECONDS = 20.0
"""How long a Shepherd waits for the folder and the port of the one before it, which may still be on its way out."""


def serve(
    shepherd: Shepherd, address_file: Path, host: str, port: int, announce: Callable[[str], None]
) -> int:
    """Run a Shepherd in this thread until its run is complete, or SIGINT or SIGTERM comes.

    Arguments:
        shepherd: what to run.
        address_file: where its address is written. A Shepherd that may choose its port takes the one in there, so that the
            workers of the Shepherd before it find it.
        host: address to listen on.
        port: port to listen on; 0 takes that of before, or a free one.
        announce: told the address, `HOST:PORT`.

    Returns:
        0 when the run is complete, else the number of the signal; SIGTERM's where the operator asked it to stop.
    """
    return asyncio.run(_serve(shepherd, address_file, host, port, announce))


async def _serve(
    shepherd: Shepherd, address_file: Path, host: str, port: int, announce: Callable[[str], None]
) -> int:
    received = 0

    def stop(number: int) -> None:
        nonlocal received
        received = number
        shepherd.stop()

    def ready(bound: int) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        write_address(address_file, host, bound)
        announce(format_address((host, bound)))

    patience = 0.0
    if port == 0 and address_file.exists():
        port, patience = read_address(address_file)[1], PATIENCE_SECONDS
    complete = await shepherd.run(host, port, ready, patience)
    return 0 if complete else received or signal.SIGTERM
