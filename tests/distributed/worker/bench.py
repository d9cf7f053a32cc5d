"""A worker's logic on a bench: events go in, and what it asks for is kept."""

from typing import TypeVar

from pcp.distributed.messages import Adoption, Assign, Blob, DataRange, Lease, Message, Update, Welcome
from pcp.distributed.worker import WorkerConfig, WorkerLogic
from pcp.distributed.worker.effects import Effect, SendMessage
from pcp.distributed.worker.events import (
    BlobFetched,
    Connected,
    Disconnected,
    Event,
    LeaseTrained,
    MessageReceived,
    Prepared,
    Started,
    Tick,
    UpdateUploaded,
)

T = TypeVar("T")

CONFIG = WorkerConfig("a", b"process", devices=("cpu:0",), memory_bytes=5)
PROGRAM, PARAMETERS, PAYLOAD, CHANGE = (Blob(bytes([number]) * 32, number) for number in (1, 2, 3, 4))
WELCOME = Welcome(4, 11, "tested", 1.0, "{}", (PROGRAM,))
FIRST = Adoption(0, 0, 0, PARAMETERS, None)
LEASE = Lease(
    lease_id=21,
    generation=11,
    round=3,
    data=DataRange(40, 4),
    first_step=12,
    fragment=0,
    fragments=(),
    fresh=True,
    adopt=(FIRST,),
    deadline_seconds=60.0,
)
UPDATE = Update(21, 11, 3, PAYLOAD, 4, 400, (2.0, 1.0), 3.0)


class Bench:
    """Feeds a worker's logic and keeps what it asks for."""

    def __init__(self, config: WorkerConfig = CONFIG, overlap: bool = False) -> None:
        self.now = 0.0
        self.connection = 0
        self.overlap = overlap
        self.logic = WorkerLogic(config)
        self.effects: list[Effect] = []
        self.do(Started(0.0))

    def do(self, event: Event) -> None:
        self.effects = self.logic.handle(event)

    def hear(self, message: Message) -> None:
        self.do(MessageReceived(self.now, self.connection, message))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(Tick(self.now))

    def connect(self, welcome: Welcome = WELCOME) -> None:
        self.connection += 1
        self.do(Connected(self.now, self.connection))
        self.hear(welcome)

    def lose(self) -> None:
        self.do(Disconnected(self.now, self.connection, "reset by peer"))

    def fetched(self, blob: Blob = PARAMETERS) -> None:
        self.do(BlobFetched(self.now, blob))

    def trained(self, lease_id: int = 21, payload: Blob = PAYLOAD) -> None:
        self.do(LeaseTrained(self.now, lease_id, payload, 400, (2.0, 1.0), 3.0))

    def uploaded(self, lease_id: int = 21) -> None:
        self.do(UpdateUploaded(self.now, lease_id))

    def join(self) -> None:
        self.connect()
        self.do(Prepared(self.now, "{}", self.overlap))

    def train(self) -> None:
        """Come as far as an upload under way."""
        self.join()
        self.hear(Assign(LEASE))
        self.fetched()
        self.trained()

    def made(self, kind: type[T]) -> list[T]:
        return [each for each in self.effects if isinstance(each, kind)]

    def said(self) -> list[Message]:
        return [each.message for each in self.made(SendMessage)]
