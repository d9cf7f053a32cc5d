"""Frames over a TLS channel that waits: what a worker's thread speaks through."""

import select
import ssl
from typing import Protocol

from pcp.distributed.wire.bulk.channel import TlsChannel
from pcp.distributed.wire.connection_errors import ConnectionLost
from pcp.distributed.wire.frames import (
    FRAME_MEMORY,
    HEADER_BYTES,
    TRANSFER_LIMITS,
    Frame,
    FrameDecoder,
    kind_of,
)
from pcp.distributed.wire.identity.tls import CertificateRefused, explain
from pcp.distributed.wire.traffic import Traffic
from pcp.errors import PCPError


class Machine(Protocol):
    """A pure state machine of one transfer, or of many."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""

    def next_frame(self) -> bytes | bytearray | None:
        """What to send now, if anything."""

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the peer."""


class FramedChannel:
    """A connected channel that carries frames.

    Arguments:
        channel: over a socket with a timeout set.
        address: of the other side, as text.
        traffic: where bytes are counted.
    """

    def __init__(self, channel: TlsChannel, address: str, traffic: Traffic) -> None:
        self.address = address
        self.traffic = traffic
        self._channel = channel
        self._decoder = FrameDecoder(TRANSFER_LIMITS)

    def send(self, frame: bytes | bytearray) -> None:
        """Sends one encoded frame, whose memory may be used again afterwards.

        Raises:
            ConnectionLost: the other side is gone, or takes nothing any more.
        """
        rest = memoryview(frame)
        try:
            while rest:  # the timeout is for one call: a slow link may take a large frame piece by piece
                rest = rest[self._channel.send(rest) :]
        except OSError as error:
            raise self._lost(error) from error
        self.traffic.count_sent(kind_of(frame), len(frame))
        FRAME_MEMORY.give_back(frame)

    def receive(self) -> Frame:
        """Waits for one frame.

        Raises:
            ConnectionLost: the other side is gone, or sends nothing any more.
            CertificateRefused: it did not accept this side's certificate, which shows only now.
            FrameError: it sends what is no frame.
        """
        while True:
            try:
                count = self._channel.receive_into(self._decoder.space())
            except OSError as error:
                raise self._lost(error) from error
            if count == 0:
                raise ConnectionLost(f"{self.address} closed the connection")
            frame = self._decoder.advance(count)
            if frame is not None:
                self.traffic.count_received(frame.kind, HEADER_BYTES + len(frame.payload))
                return frame

    def drive(self, machine: Machine) -> None:
        """Lets a machine send all it can and receive frame after frame, until it is finished."""
        while not machine.finished:
            data = machine.next_frame()
            if data is not None:
                self.send(data)
            if machine.finished:
                return  # there was nothing left to ask for
            if data is None or self.something_arrived:  # a refusal should not wait for the whole window
                machine.receive(self.receive())

    @property
    def something_arrived(self) -> bool:
        """Whether the other side has sent something, or has closed, that was not received yet."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        return self._channel.something_arrived or bool(poll.poll(0))

    def close(self) -> None:
        """Closes the socket."""
        self._channel.close()

    def _lost(self, error: OSError) -> PCPError:
        if isinstance(error, ssl.SSLError):
            explained = explain(error, self.address)
            if isinstance(explained, CertificateRefused):
                return explained
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return ConnectionLost(f"the connection with {self.address} broke: {reason}")
