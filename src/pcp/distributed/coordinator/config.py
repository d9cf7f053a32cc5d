"""The plan of a distributed run: fixed when it starts, and kept in the event log."""

from dataclasses import dataclass, field

from pcp.distributed.algorithms import ALGORITHMS, Algorithm
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.log.serialisation import register, storable
from pcp.distributed.messages import Blob, DataRange
from pcp.errors import PCPError

register(Blob, DataRange, *ALGORITHMS.values())


class InvalidRunConfig(PCPError):
    """A value of the run's plan makes no run possible."""


@storable
@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """How a time limit follows from durations: max(slack * median, median + deviations * MAD), bounded.

    Arguments:
        initial_seconds: the limit before anything was measured.
        deviations: how many median absolute deviations above the median are still waited for.
        slack: smallest multiple of the median; keeps a very regular past from making a hair trigger.
        floor_seconds, cap_seconds: bounds of the limit.
        peers: multiple of what the median of the workers that deliver takes, beyond which nobody is waited for.
    """

    initial_seconds: float
    deviations: float = 6.0
    slack: float = 2.0
    floor_seconds: float = 5.0
    cap_seconds: float = 86400.0
    peers: float = 10.0


@storable
@dataclass(frozen=True, slots=True)
class RunConfig:
    """The plan of a run: how much data, cut how, merged when, and how long to wait for whom.

    Arguments:
        run_id: name of the run; a worker that reconnects compares it.
        batches: of the whole run; each of them is merged exactly once, whoever trains it.
        algorithm: what is merged, with which weights; holds H, the inner steps (batches) of a range.
        workers: W, the workers that the first round waits for. Schedules count a step for every W batches; rounds are
            cut from the workers that live, however many they are.
        description: JSON text that a worker needs to prepare (names of programs, data, rates).
        blobs: what a worker fetches before its first lease.
        update_bytes: exact size of a push of each fragment; empty accepts any.
        tokens_per_batch: tokens a worker must report for each step; 0 accepts any.
        quorum: fraction of a round's batches that lets it close without the others, after a grace; 1 waits
            for all.
        minimum_workers: ready workers without which no round opens.
        patience_seconds: how long after the first ready worker a Shepherd that starts waits for the others.
        heartbeat_seconds: interval of heartbeats.
        missed_heartbeats: silent intervals after which a worker is dead.
        reconnect_seconds: how long a lost connection may be replaced before the lease goes to another worker.
        lease: time limit of a lease, from the worker's own past.
        grace: bounds of the wait between quorum and closing; what is waited for is the expected end of the
            leases.
        step_budgets: give a slow worker less to do, so that it ends with the others; else all get H / P batches.
        round_batches: fresh batches of every round; 0: as many as the workers that live can do while a typical one does
            H / P.
        audits: how often the work of one worker is repeated by another.
        checkpoint_every: rounds between checkpoints.

    Raises:
        InvalidRunConfig: naming the value and the bound it breaks.
    """

    run_id: str
    batches: int
    algorithm: Algorithm
    workers: int = 1
    description: str = "{}"
    blobs: tuple[Blob, ...] = ()
    update_bytes: tuple[int, ...] = ()
    tokens_per_batch: int = 0
    quorum: float = 1.0
    minimum_workers: int = 1
    patience_seconds: float = 60.0
    heartbeat_seconds: float = 1.0
    missed_heartbeats: int = 3
    reconnect_seconds: float = 2.0
    lease: TimeoutPolicy = field(
        default_factory=lambda: TimeoutPolicy(initial_seconds=1800.0, floor_seconds=10.0)
    )
    grace: TimeoutPolicy = field(
        default_factory=lambda: TimeoutPolicy(
            initial_seconds=10.0, slack=1.2, floor_seconds=0.5, cap_seconds=120.0
        )
    )
    step_budgets: bool = True
    round_batches: int = 0
    audits: AuditPolicy = field(default_factory=AuditPolicy)
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        for name in ("workers", "batches", "minimum_workers", "missed_heartbeats", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InvalidRunConfig(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.update_bytes and len(self.update_bytes) != self.algorithm.fragments:
            raise InvalidRunConfig(
                f"update_bytes has {len(self.update_bytes)} sizes; the algorithm has {self.algorithm.fragments} fragments"
            )
        if not 0 < self.quorum <= 1:
            raise InvalidRunConfig(
                f"quorum is {self.quorum}; it is a fraction of the round: above 0, at most 1"
            )
        if self.round_batches < 0:
            raise InvalidRunConfig(f"round_batches is {self.round_batches}; it must be at least 0")
        if not self.heartbeat_seconds > 0:
            raise InvalidRunConfig(f"heartbeat_seconds is {self.heartbeat_seconds}; it must be positive")

    @property
    def silence_seconds(self) -> float:
        """Silence after which the other side counts as gone."""
        return self.missed_heartbeats * self.heartbeat_seconds
