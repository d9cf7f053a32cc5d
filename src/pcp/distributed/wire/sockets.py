"""TCP sockets: addresses, listening, and options that notice a peer that has vanished."""

import contextlib
import errno
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from pcp.errors import PCPError

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]  # asked for before each use

_log = logging.getLogger("pcp.wire.server")

PREAMBLE_BYTES = 4
CONTROL_PREAMBLE = b"PCPc"
BULK_PREAMBLE = b"PCPb"
# The first bytes of a connection, before TLS, tell which part of the server takes the socket. They are not
# secret and need no protection: what they say is checked again inside TLS, by its protocol negotiation.

_KEEPALIVE_IDLE_SECONDS = 10
_KEEPALIVE_INTERVAL_SECONDS = 5
_KEEPALIVE_PROBES = 3
_USER_TIMEOUT_MILLISECONDS = 20_000
_LONGEST_PAUSE_MILLISECONDS = 1_000
"""TCP pauses twice as long each time that nothing is acknowledged: as long again as a line was down, once it is back."""

_LOOK_SECONDS = 0.05
"""How often who waits for a connection looks whether it still should."""

_HOST = re.compile(r"[\w.:%-]+")
_LINUX_RTO_MAX_MS = 44  # which Python does not name


class BadAddress(PCPError):
    """The text does not name a host and a port."""


class PortInUse(PCPError):
    """Another program listens on the port."""


class CannotListen(PCPError):
    """The address cannot be listened on."""


class Unreachable(PCPError):
    """Nobody answers at the address."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        BadAddress: the text is neither.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if (
        not colon
        or not is_host(host)
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port) < 65536
    ):
        raise BadAddress(
            f"{text!r} is not an address; give HOST:PORT, for example 10.0.0.1:7070 or [::1]:7070"
        )
    return host, int(port)


def is_host(text: str) -> bool:
    """Whether a text may name a machine. Others name none, and some raise, when asked for, what is no error of a system."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return _HOST.fullmatch(text) is not None


def connect(target: tuple[str, int], seconds: float, given_up: Callable[[], bool]) -> socket.socket:
    """A connection, within so many seconds in all: however many addresses a name has, and however slowly it is looked up.

    Arguments:
        target: host and port.
        given_up: asked meanwhile whether to stop.

    Raises:
        OSError: there is none by then, or it was given up.
    """
    outcomes: SimpleQueue[socket.socket | OSError] = SimpleQueue()
    lock, deadline, left = threading.Lock(), time.monotonic() + seconds, False

    def attempt() -> None:  # nothing interrupts a look-up, so that may go on for a while
        outcome = _connected(target, deadline)
        with lock:
            if left and isinstance(outcome, socket.socket):
                outcome.close()
            outcomes.put(outcome)

    threading.Thread(target=attempt, name=f"connects to {target[0]}", daemon=True).start()
    while (rest := deadline - time.monotonic()) > 0 and not given_up():
        with contextlib.suppress(Empty):
            outcome = outcomes.get(timeout=min(rest, _LOOK_SECONDS))
            if isinstance(outcome, OSError):
                raise outcome
            return outcome
    with lock:
        left = True
        if not outcomes.empty() and isinstance(late := outcomes.get(), socket.socket):
            late.close()
    raise TimeoutError


def _connected(target: tuple[str, int], deadline: float) -> socket.socket | OSError:
    """A connection to the first address that answers, each being tried for its part of the time; or what is wrong."""
    try:
        addresses = socket.getaddrinfo(*target, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    problem = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        left = deadline - time.monotonic()
        if left <= 0:
            return TimeoutError()
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:
            problem = error
            continue
        try:
            connection.settimeout(left / (len(addresses) - place))
            connection.connect(address)
        except OSError as error:
            connection.close()
            problem = error
        else:
            return connection
    return problem


def format_address(address: tuple[object, ...]) -> str:
    """The address of a socket as text."""
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unreachable(address: tuple[str, int], problem: Exception) -> Unreachable:
    """What to tell a person when a connection could not be made."""
    number = getattr(problem, "errno", None)
    detail = os.strerror(number) if number is not None and number > 0 else str(problem)
    if isinstance(problem, TimeoutError):
        detail = "no answer in time"
    return Unreachable(
        f"cannot reach a Shepherd at {format_address(address)}: {detail}; check that it runs and that the port is open"
    )


def listen(host: str, port: int, *, backlog: int = 1024) -> socket.socket:
    """A listening, non-blocking socket.

    Arguments:
        host: name or address of this machine; `0.0.0.0` or `::` for all of them.
        port: the port; 0 picks a free one.
        backlog: connections that may wait to be accepted.

    Raises:
        PortInUse: another program has the port.
        CannotListen: the address is not one of this machine, or may not be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise CannotListen(
            f"cannot listen on {host}: {error}; give an address of this machine, or 0.0.0.0"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use by another program; stop it, or choose another port "
                "(0 picks a free one)"
            ) from error
        raise CannotListen(
            f"cannot listen on {format_address((host, port))}: {error.strerror}; give an address of this "
            "machine, or 0.0.0.0, and a port above 1023"
        ) from error
    return listener


def room_for_descriptors(wanted: int) -> int:
    """How many descriptors this process may have open, after asking the system for so many."""
    if resource is None:  # Windows counts no descriptors
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:
        _log.warning("this process may have only %d files and connections open: %s", soft, error)
        return soft
    if allowed < wanted:
        _log.warning(
            "this process may have only %d files and connections open; %d are wanted", allowed, wanted
        )
    return allowed


def tune(connection: socket.socket) -> None:
    """Sends small messages at once, and makes the system report a peer that no longer answers."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MILLISECONDS),
    ):
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an older Linux
            connection.setsockopt(socket.IPPROTO_TCP, _LINUX_RTO_MAX_MS, _LONGEST_PAUSE_MILLISECONDS)
