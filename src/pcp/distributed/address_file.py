"""A file that says where a Shepherd listens, for Workers on the same machine and for the Shepherd that comes after it."""

import json
import logging
import os
import time
from pathlib import Path

from pcp.distributed.wire.sockets import format_address
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.address_file")

_POLL_SECONDS = 0.05


class NoAddress(PCPError):
    """A file that should hold a Shepherd's address does not."""


def write_address(path: Path, host: str, port: int) -> None:
    """Write an address, in one step for whoever reads it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps({"host": host, "port": port}) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_address(path: Path) -> tuple[str, int]:
    """The host and port in a file.

    Raises:
        NoAddress: there is no such file, or it holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        host, port = content["host"], content["port"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoAddress(
            f"{path} does not hold the address of a Shepherd: {error!r}; check that a Shepherd runs"
        ) from None
    if type(host) is not str or type(port) is not int or not 0 < port < 65536:
        raise NoAddress(
            f"{path} does not hold the address of a Shepherd: {content}; expected a host and a port"
        )
    return host, port


def wait_for_address(path: Path, seconds: float) -> str:
    """The address in a file as `HOST:PORT`, as soon as the file is there.

    Arguments:
        path: the file.
        seconds: how long to wait for it.

    Raises:
        NoAddress: it did not come, or holds something else.
    """
    deadline = time.monotonic() + seconds
    if not path.exists():
        log.info("waiting for a Shepherd to write its address to %s", path)
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return format_address(read_address(path))
