"""The worker: the pure state machine of what a Worker does and says."""

from pcp.distributed.worker import effects, events
from pcp.distributed.worker.logic import WorkerLogic
from pcp.distributed.worker.state import Stage, WorkerConfig, WorkerState

__all__ = ["Stage", "WorkerConfig", "WorkerLogic", "WorkerState", "effects", "events"]
