"""How long the wire waits, and how much it holds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pcp.errors import PCPError


class BadWireLimits(PCPError):
    """A limit does not exist, or nothing could work within it."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds of every connection of one side.

    Strangers are connections whose other end has not proved yet who it is (with control: and said Hello). They have
    bounds of their own, so that they take nothing from workers; a worker has its bounds, so that it takes nothing
    from other workers.

    Arguments:
        connect_seconds: for a client to reach the other side.
        handshake_seconds: from the first byte to a proved identity and, on a control connection, to Hello.
        stall_seconds: how long the other side may take nothing that is sent, or send nothing in a transfer.
        idle_seconds: after which a bulk connection without a transfer is closed; the client makes a new one.
        close_seconds: for what was said last to arrive.
        strangers: at most; one more closes one of the address that has the most of them.
        handshakes_per_second: that begin, those of addresses with few strangers first; the others wait.
        connections: of workers, at most, of both kinds; one more closes the bulk connection that is idle the longest.
        connections_per_worker: of each kind with one key. One more bulk connection closes the worker's own that is
            silent the longest.
        messages_per_second: control messages of one connection, after a burst of twice as many; the others wait.
        transfer_bytes: memory for chunks of all transfers; among many they are cut smaller.
        transfer_threads: that encrypt, check digests and write; none waits for a worker.
        maximum_bytes_in_flight: control messages that may wait for one peer to read them.
    """

    connect_seconds: float = 10.0
    handshake_seconds: float = 10.0
    stall_seconds: float = 30.0
    idle_seconds: float = 120.0
    close_seconds: float = 2.0
    strangers: int = 1024
    handshakes_per_second: float = 200.0
    connections: int = 4096
    connections_per_worker: int = 8
    messages_per_second: float = 500.0
    transfer_bytes: int = 256 << 20
    transfer_threads: int = 8
    maximum_bytes_in_flight: int = 4 << 20

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "WireLimits":
        """The usual limits but for some.

        Arguments:
            settings: of the table `wire` of a run, by the names above.

        Raises:
            BadWireLimits: no limit is called so, or a value is no positive number.
        """
        kinds = {field.name: field.type for field in fields(WireLimits)}
        for name, value in settings.items():
            if name not in kinds:
                raise BadWireLimits(f"there is no limit {name!r}; choose one of {', '.join(kinds)}")
            accepted = (int,) if kinds[name] is int else (int, float)
            if type(value) not in accepted or not 0 < value < math.inf:
                kind = "a whole number" if kinds[name] is int else "a number"
                raise BadWireLimits(f"the limit {name} is {value!r}; expected {kind} above 0")
        return replace(WireLimits(), **settings)
