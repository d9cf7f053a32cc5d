"""How long the wire waits, and how much it holds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds of every connection of one side.

    Arguments:
        connect_seconds: for a client to reach the other side.
        handshake_seconds: from the first byte to a proved identity and, on a control connection, to Hello.
        stall_seconds: how long the other side may take nothing that is sent, or send nothing in a transfer.
        idle_seconds: after which a bulk connection without a transfer is closed; the client makes a new one.
        close_seconds: for what was said last to arrive.
        connections: at most, of both kinds, at a server.
        connections_per_address: at most, from one address.
        bulk_connections: at most, each with a thread of its own.
        maximum_bytes_in_flight: control messages that may wait for one peer to read them.
    """

    connect_seconds: float = 10.0
    handshake_seconds: float = 10.0
    stall_seconds: float = 30.0
    idle_seconds: float = 120.0
    close_seconds: float = 2.0
    connections: int = 1024
    connections_per_address: int = 256
    bulk_connections: int = 128
    maximum_bytes_in_flight: int = 4 << 20
