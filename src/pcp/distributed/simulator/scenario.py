"""A schedule to simulate: the plan of a run, its machines, and what goes wrong when; all of it follows from a seed."""

import hashlib
from dataclasses import dataclass, replace
from random import Random

from pcp.distributed.algorithms import (
    Algorithm,
    DecoupledDiLoCo,
    DiLoCo,
    MuLoCo,
    NoLoCo,
    SparseLoCo,
    StreamingDiLoCo,
    overlaps,
)
from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.job import Job, Term, signed
from pcp.distributed.simulator.arrays.course import ArrayCourse
from pcp.distributed.simulator.training import DATA, PAYLOAD_BYTES, PROGRAM, TOKENS_PER_BATCH
from pcp.distributed.wire.blob_files import blob_of

ON_ARRAYS = 16  # of so many schedules the last trains on arrays
HORIZON_SECONDS = 40.0  # nothing begins to go wrong after this
LIVENESS_SECONDS = 300.0
"""What a run may take from there on; twice that, if pieces of it are trained twice or programs get stuck."""


FAULTS = (
    "crash worker",
    "crash worker",
    "cut worker power",
    "cut worker power",
    "lose worker",
    "cut connection",
    "late messages",
    "bad network",
    "bad network",
    "partition",
    "one-way partition",
    "pause worker",
    "slow worker",
    "full worker disk",
    "clock drifts",
    "clock jumps",
    "duplicate hello",
    "zombie worker",
    "hostile update",
    "hostile update",
    "hostile update",
    "crash shepherd",
    "cut power",
    "crash shepherd in a write",
    "failing sync",
    "full disk",
    "slow disk",
    "slow disk",
    "pause shepherd",
    "shepherd clock jumps",
    "shepherd clock drifts",
    "failing transfers",
    "failing training",
    "stuck worker",
    "stranger",
)
IN_PAIRS, LISTENING = 16, 8
"""In one schedule of so many, workers exchange in pairs; in one of so many others they fetch from each other."""
DRAWN_APART = 2  # the last faults are drawn apart, so that older schedules stay what they were


def is_signed(content: bytes, signature: bytes) -> bool:
    """Return whether the authority of simulated runs signed something."""
    return signature == _signature(content)


def _signature(content: bytes) -> bytes:
    return hashlib.sha256(b"signed by nobody else: " + content).digest()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Arguments:
        kind: one of `FAULTS`.
        worker: index of the worker it strikes, where it strikes one.
        seconds: how long it lasts.
        count: a number whose meaning depends on the kind, such as effects performed before a crash.
        at_chunk: 0, or after how many more chunks of transfers it strikes, and then the worker of that one.
    """

    time: float
    kind: str
    worker: int
    seconds: float
    count: int
    at_chunk: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that decides a simulated run.

    Arguments:
        seed: decides delays and the like while it runs.
        config: the run's plan.
        step_seconds: of each worker process; its length is their number.
        clock_rates: how fast each worker's clock runs.
        delay_seconds, jitter_seconds: of the network.
        faults: in order of time.
        limit_seconds: virtual time in which the run must be over.
        evaluate_every: steps between two evaluations; 0 for one at the end.
        arrays: whether it trains on arrays, by production's own arithmetic, instead of numbers.
        listens: whether workers are reached by others.
    """

    seed: int
    config: RunConfig
    step_seconds: tuple[float, ...]
    clock_rates: tuple[float, ...]
    delay_seconds: float
    jitter_seconds: float
    faults: tuple[Fault, ...]
    limit_seconds: float
    evaluate_every: int = 0
    arrays: bool = False
    listens: bool = False


def scenario_of(seed: int) -> Scenario:
    """Return the schedule of a seed."""
    random = Random(seed)
    workers = random.randint(1, 4)
    algorithm, stuck, audits = _algorithm(random), _stuck(seed, workers), _audits(seed)
    pairs = _in_pairs(seed)
    arrays = pairs or _on_arrays(seed)
    if pairs is not None:
        workers, stuck, audits = max(2, workers), (), AuditPolicy()
    if arrays is not None:
        algorithm = arrays
    job, update_bytes = _job(seed) if arrays is None else ArrayCourse(arrays).job()
    job = replace(job, overlap=overlaps(algorithm), pieces=audits.pieces if audits.rate else 0)
    # Where a late push is trained again, closing without it only pays if nothing else is trained meanwhile.
    may_close_early = algorithm.late == "carry" or (algorithm.fragments == 1 and algorithm.delay == 0)
    config = RunConfig(
        run_id=f"simulated-{seed}",
        workers=(expected := max(1, workers - random.randint(0, 1))),
        batches=expected
        * (pairs.lease_steps if pairs else algorithm.inner_steps)
        * max(1, (random.randint(2, 4) if pairs is None else random.randint(1, 1)) // algorithm.fragments),
        algorithm=algorithm,
        description=signed(job.to_json(), _signature, Term(f"simulated-{seed}", 0, 1 << 36)),
        blobs=job.blobs,
        update_bytes=update_bytes * (1 if arrays else algorithm.fragments),
        tokens_per_batch=1 if arrays else TOKENS_PER_BATCH,
        quorum=random.choice((1.0, 1.0, 0.75, 0.5)) if may_close_early and not pairs else 1.0,
        patience_seconds=5.0,
        heartbeat_seconds=3.0,
        reconnect_seconds=random.choice((0.5, 3.0)),
        # Where workers get stuck, only what their peers do shows that they are.
        lease=TimeoutPolicy(
            initial_seconds=200.0 if pairs else 120.0 if stuck else 20.0,
            floor_seconds=60.0 if pairs else 2.0,
            cap_seconds=200.0 if pairs else 120.0 if stuck else 60.0,
            peers=6.0,
        ),
        grace=TimeoutPolicy(initial_seconds=5.0, slack=1.2, floor_seconds=0.2, cap_seconds=20.0),
        step_budgets=random.random() < 0.3,
        checkpoint_every=random.randint(1, 3),
        audits=audits,
    )
    return Scenario(
        seed=seed,
        config=config,
        step_seconds=tuple(random.choice((0.3, 0.5, 0.5, 2.0)) for _ in range(workers)),
        clock_rates=tuple(random.uniform(0.9, 1.1) for _ in range(workers)),
        delay_seconds=random.choice((0.001, 0.05, 0.2)),
        jitter_seconds=random.choice((0.0, 0.02, 0.3)),
        faults=tuple(
            fault
            for fault in sorted(
                (*_faults(random, workers), *stuck, *_strangers(seed), *_shepherds(seed, pairs)),
                key=lambda fault: fault.time,
            )
            # Who cheats under audit is kept out, as it should be: here all are honest, and nobody may be.
            if not (config.audits.rate and fault.kind == "hostile update")
        ),
        limit_seconds=HORIZON_SECONDS + LIVENESS_SECONDS * (2 if config.audits.rate or stuck or pairs else 1),
        evaluate_every=Random(f"evaluations {seed}").choice((0, 1, 4)),
        arrays=arrays is not None,
        listens=pairs is not None or seed % LISTENING == 2,
    )


def _job(seed: int) -> tuple[Job, tuple[int, ...]]:
    """What Workers train on numbers, and the bytes of a push of one fragment."""
    programs = {"step": blob_of(PROGRAM)}
    return Job(programs, blob_of(DATA), batch=1, context=1, seed=seed, vocabulary=2), (PAYLOAD_BYTES,)


def _on_arrays(seed: int) -> Algorithm | None:
    """The algorithm of a schedule that trains on arrays; None for one on numbers."""
    turn, place = divmod(seed, ON_ARRAYS)
    if place != ON_ARRAYS - 1:
        return None
    random = Random(f"arrays {seed}")
    steps, delay = random.randint(1, 4), random.randint(0, 1)
    whole = 2 * (steps + delay)
    # A few kinds, each compiled once in a process.
    match turn % 6:
        case 0:
            return DiLoCo(steps, merge="default")
        case 1:
            return SparseLoCo(steps, residual_decay=1.0)
        case 2:
            return DecoupledDiLoCo(whole, 2, delay)
        case 3:
            return DiLoCo(steps, upload="int4", download="int4")
        case 4:
            return StreamingDiLoCo(2 * (steps + 1), 2, delay=1, download="int4")
        case _:
            # Nothing overlaps, and workers keep nothing of their own: what they push is what their batches moved.
            return StreamingDiLoCo(2 * steps, 2, delay=0, mixing=0.0, upload="f32", merge="default")


def _in_pairs(seed: int) -> NoLoCo | None:
    """The algorithm of a schedule whose workers exchange in pairs; None for another."""
    if seed % IN_PAIRS != IN_PAIRS // 2:
        return None
    random = Random(f"pairs {seed}")
    every = random.randint(1, 4)
    return NoLoCo(every, every * random.randint(2, 10))


def _audits(seed: int) -> AuditPolicy:
    """Audits in every fourth schedule, drawn apart, so that the others stay what they were without."""
    random = Random(f"audits {seed}")
    if random.random() >= 0.25:
        return AuditPolicy()
    return AuditPolicy(random.choice((0.3, 1.0)), random.randint(1, 4), seed=seed)


def _stuck(seed: int, workers: int) -> tuple[Fault, ...]:
    """In every third schedule, workers that heartbeat and never deliver what they begin in some time."""
    random = Random(f"stuck {seed}")
    if random.random() >= 1 / 3:
        return ()
    return tuple(
        Fault(
            # In its first lease, or later.
            time=random.choice((0.5, random.uniform(0.0, HORIZON_SECONDS / 2))),
            kind="stuck worker",
            worker=random.randrange(workers),
            seconds=random.uniform(2.0, HORIZON_SECONDS / 2),
            count=0,
        )
        for _ in range(random.randint(1, 2))
    )


def _shepherds(seed: int, pairs: NoLoCo | None) -> tuple[Fault, ...]:
    """Where workers exchange in pairs, a Shepherd dies at least once: they go on without it."""
    random = Random(f"shepherds {seed}")
    kinds = ("crash shepherd", "cut power", "pause shepherd")
    return tuple(
        Fault(random.uniform(2.0, HORIZON_SECONDS), random.choice(kinds), 0, 12.0, random.randint(0, 3))
        for _ in range(random.randint(1, 3) if pairs else 0)
    )


def _strangers(seed: int) -> tuple[Fault, ...]:
    """In every eighth schedule, peers that are no members open connections and hold them."""
    random = Random(f"stranger {seed}")
    if random.random() >= 1 / 8:
        return ()
    times = [random.uniform(0.0, HORIZON_SECONDS) for _ in range(random.randint(1, 3))]
    return tuple(
        Fault(time, "stranger", worker=0, seconds=0.0, count=random.randint(1, 16)) for time in times
    )


def _algorithm(random: Random) -> Algorithm:
    upload, download = random.choice(("f32", "int4")), random.choice(("f32", "int4"))
    segment, fragments = random.randint(1, 4), random.randint(1, 4)
    delay = random.randrange(segment)
    match random.randrange(6):
        case 0:
            return DiLoCo(segment)
        case 1:
            kind = random.choice((DiLoCo, MuLoCo))
            return kind(segment, upload=upload, download=download)
        case 2:
            return SparseLoCo(segment, residual_decay=1.0, download=download)
        case 3:
            return StreamingDiLoCo(segment * fragments, fragments, delay, upload=upload, download=download)
        case _:
            return DecoupledDiLoCo(segment * fragments, fragments, delay, upload=upload, download=download)


def _faults(random: Random, workers: int) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for _ in range(random.randint(0, 12)):
        time = random.uniform(0.0, HORIZON_SECONDS)
        if faults and random.random() < 0.3:  # several at once
            time = random.choice(faults).time
        faults.append(
            Fault(
                time=time,
                kind=random.choice(FAULTS[:-DRAWN_APART]),
                worker=random.randrange(workers),
                seconds=random.choice((0.3, 2.0, 5.0, 12.0)) * random.uniform(0.5, 1.5),
                count=random.randint(0, 12),
                at_chunk=random.randint(1, 8) if random.random() < 0.4 else 0,
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.time))
