"""The coordinator: the pure state machine of the Shepherd, and the event log that it lives from."""

from pcp.distributed.coordinator import effects, events, records
from pcp.distributed.coordinator.admission import Refusal
from pcp.distributed.coordinator.config import InvalidRunConfig, RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.event_log import CorruptEventLog, EventLog, EventLogWriteFailed
from pcp.distributed.coordinator.fragments import Fragment, Round
from pcp.distributed.coordinator.invariants import BooksDoNotBalance, check_books
from pcp.distributed.coordinator.machine import Coordinator, EmptyEventLog
from pcp.distributed.coordinator.run import ImpossibleRecord, Run, replay
from pcp.distributed.coordinator.serialisation import UnknownRecord, decode, encode
from pcp.distributed.coordinator.state import State
from pcp.distributed.coordinator.storage import DirectoryStorage, RunLocked, Storage

__all__ = [
    "BooksDoNotBalance",
    "Coordinator",
    "CorruptEventLog",
    "DirectoryStorage",
    "EmptyEventLog",
    "EventLog",
    "EventLogWriteFailed",
    "Fragment",
    "ImpossibleRecord",
    "InvalidRunConfig",
    "Refusal",
    "Round",
    "Run",
    "RunConfig",
    "RunLocked",
    "State",
    "Storage",
    "TimeoutPolicy",
    "UnknownRecord",
    "check_books",
    "decode",
    "effects",
    "encode",
    "events",
    "records",
    "replay",
]
