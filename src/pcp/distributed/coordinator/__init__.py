"""The coordinator: the pure state machine of the Shepherd, and the event log that it lives from."""

from pcp.distributed.coordinator import effects, events
from pcp.distributed.coordinator.config import InvalidRunConfig, RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.invariants import BooksDoNotBalance, check_books
from pcp.distributed.coordinator.log import records
from pcp.distributed.coordinator.log.event_log import (
    CorruptEventLog,
    EventLog,
    EventLogFull,
    EventLogWriteFailed,
)
from pcp.distributed.coordinator.log.serialisation import UnknownRecord, decode, encode
from pcp.distributed.coordinator.log.storage import DirectoryStorage, RunLocked, Storage
from pcp.distributed.coordinator.machine import Coordinator, EmptyEventLog
from pcp.distributed.coordinator.rounds.admission import Refusal
from pcp.distributed.coordinator.rounds.fragments import Fragment, Round
from pcp.distributed.coordinator.run import ImpossibleRecord, Run, replay
from pcp.distributed.coordinator.state import State

__all__ = [
    "BooksDoNotBalance",
    "Coordinator",
    "CorruptEventLog",
    "DirectoryStorage",
    "EmptyEventLog",
    "EventLog",
    "EventLogFull",
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
