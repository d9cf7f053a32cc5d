"""A peer that was asked for nothing: it offers blobs, asks for others' states, sends what belongs to no transfer, and stays."""

from functools import partial
from typing import TYPE_CHECKING

from pcp.distributed.messages import Blob
from pcp.distributed.simulator.machines.blob_disk import Reader
from pcp.distributed.simulator.network import SHEPHERD
from pcp.distributed.simulator.runtime import Process
from pcp.distributed.wire.blob_files import blob_of
from pcp.distributed.wire.bulk.messages import Fetch
from pcp.distributed.wire.bulk.transfer import PushRequester
from pcp.distributed.wire.codec import encode_transfer
from pcp.distributed.wire.frames import FrameKind, encode_frame

if TYPE_CHECKING:
    from pcp.distributed.simulator.simulation import Simulation

NAME = "stranger"


class Stranger(Process):
    """Holds bulk connections. It has a key of the run's authority, but is no member.

    Arguments:
        world: the simulation that it lives in.
    """

    def __init__(self, world: "Simulation") -> None:
        super().__init__(world.clock)
        self._world = world

    def come(self, connections: int) -> None:
        """Open connections, and close none."""
        for turn in range(connections):
            self._world.network.connect(NAME, self, partial(self._connected, turn), bulk=True)

    def delivered(self, connection: int, message: object) -> None:
        """Care for no answer."""

    def broken(self, connection: int) -> None:
        """Care for no end."""

    def _connected(self, turn: int, connection: int) -> None:
        content = self._world.random.randbytes(64)
        chunk = encode_frame(FrameKind.CHUNK, content[:3])
        match turn % 4:
            case 0:  # a blob that nobody asked for, and its bytes before they are granted
                push = PushRequester(blob_of(content), Reader(content), self._world.course.settings)
                frame = push.next_frame()
                assert frame is not None, "a push begins by itself"
                frames = [bytes(frame), chunk]
            case 1:  # a blob that is not here
                frames = [encode_transfer(Fetch(Blob(content[:32], 9), 0, 9, 9, 9))]
            case 2:  # bytes of no transfer
                frames = [chunk]
            case _:  # nothing at all
                return
        self._world.network.send(connection, SHEPHERD, frames)
