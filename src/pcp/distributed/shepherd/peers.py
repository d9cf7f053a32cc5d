"""What the Shepherd tells its workers of each other: who is a member, and where those listen that do."""

import ipaddress
import logging
from collections.abc import Callable

from pcp.distributed.bounds import PEERS
from pcp.distributed.messages import PeerAddress, Peers
from pcp.distributed.peers.listening import listening_address
from pcp.distributed.wire.sockets import BadAddress, format_address

log = logging.getLogger("pcp.distributed.shepherd")

PAUSE_SECONDS = 1.0
"""Between two messages, at least: many workers that come at once are told in one."""


class Neighbours:
    """The members by connection. Nobody is told anything while nobody listens.

    Arguments:
        send: a message to a connection.
    """

    def __init__(self, send: Callable[[int, Peers], None]) -> None:
        self._send = send
        self._callers: dict[int, PeerAddress] = {}
        self._members: dict[int, PeerAddress] = {}
        self._knowing: set[int] = set()
        self._told: dict[str, PeerAddress] | None = None
        self._when = float("-inf")

    def called(self, connection: int, worker: str, listens: str, comes_from: str) -> None:
        """Note a worker that said hello.

        Arguments:
            connection: its number.
            worker: its name.
            listens: where it says that it listens; empty where it does not.
            comes_from: the other side of its connection, `HOST:PORT`; stands in where it listens on all addresses.
        """
        self._callers[connection] = PeerAddress(worker, _reachable(worker, listens, comes_from))

    def welcomed(self, connection: int, now: float) -> None:
        """Note that it is a member. It is told at once, since it is about to fetch, and so are those whom it may ask."""
        self._members[connection] = self._callers[connection]
        if not self.tell(now) and self._told is not None:
            self._tell_all(connection, self._everybody())

    def left(self, connection: int) -> None:
        """Forget a connection."""
        self._callers.pop(connection, None)
        self._members.pop(connection, None)
        self._knowing.discard(connection)

    def tell(self, now: float) -> bool:
        """Tell everybody what they do not know yet, unless they were told a moment ago; returns whether they were told.

        Who was told before hears only what has changed since, so a member more or less costs a line for each.
        """
        members, told = self._everybody(), self._told
        nobody = told is None and not any(each.address for each in members.values())
        if nobody or members == told or now < self._when + PAUSE_SECONDS:
            return False
        told = told or {}
        came = [each for worker, each in members.items() if told.get(worker) != each]
        changes = _messages(came, [worker for worker in told if worker not in members], changes=True)
        self._told, self._when = members, now
        for connection in self._members:
            if connection not in self._knowing:
                self._tell_all(connection, members)
                continue
            for message in changes:
                self._send(connection, message)
        return True

    def _tell_all(self, connection: int, members: dict[str, PeerAddress]) -> None:
        self._knowing.add(connection)
        for message in _messages(list(members.values()), [], changes=False):
            self._send(connection, message)

    def _everybody(self) -> dict[str, PeerAddress]:
        named = {each.worker: each for _, each in sorted(self._members.items())}
        return {worker: named[worker] for worker in sorted(named)}


def _messages(members: list[PeerAddress], left: list[str], *, changes: bool) -> list[Peers]:
    """What is to be said, in as many messages as it takes; the first may say that these are all, the others add to it."""
    starts = range(0, max(len(members), len(left), 1), PEERS)
    return [
        Peers(
            tuple(members[start : start + PEERS]),
            tuple(left[start : start + PEERS]),
            changes or start > 0,
        )
        for start in starts
    ]


def _reachable(worker: str, listens: str, comes_from: str) -> str:
    if not listens:
        return ""
    try:
        host, port = listening_address(listens)
        if not port:
            raise BadAddress("its port is 0")
    except BadAddress as error:
        log.warning("%s listens, but nobody is told: %s", worker, error)
        return ""
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    return format_address((listening_address(comes_from)[0], port)) if everywhere else listens
