"""Seeded schedules of faults: no invariant breaks, every run ends, and its parameters are those of the reference.

`PCP_SIMULATED_SEEDS=10000 pytest tests/distributed/simulator/test_schedules.py` runs more of them.
"""

import collections
import os
from collections import Counter
from dataclasses import replace

import pytest

from pcp.distributed.algorithms import Algorithm, DecoupledDiLoCo, DiLoCo, StreamingDiLoCo
from pcp.distributed.coordinator import Refusal, RunConfig
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.effects import Close, LeaseChanged, Report, RoundMerged, Send, WorkerChanged
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Assign,
    Blob,
    Hello,
    Outcome,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.simulator import (
    FAULTS,
    Fault,
    Scenario,
    Simulation,
    SimulationFailed,
    hostile,
    scenario_of,
    simulate,
    training,
)
from pcp.distributed.simulator import simulation as simulation_module
from pcp.distributed.wire.codec import decode_control, encode_control
from pcp.distributed.wire.connection import ControlMachine, ProtocolViolation, Side
from pcp.distributed.wire.frames import FrameDecoder

SEEDS = int(os.environ.get("PCP_SIMULATED_SEEDS", "60"))
PARTS = 3  # prime to the number by which schedules on arrays are spread
EVENTFUL = (14, 164, 139, 89, 108, 4, 86, 174, 106, 172, 75, 104, 167, 43, 169, 40)
"""These reach all that 181 schedules reach; others, once they are drawn otherwise, are tried after them."""
SPITEFUL = (34, 83, 60, 26, 36, 73, 51, 53, 71, 13)
"""Likewise, where every worker is taken over: all that 90 reach."""


@pytest.mark.parametrize("part", range(PARTS))
def test_schedules_lose_nothing_and_end(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        simulate(scenario_of(seed))


def traced(seed: int) -> tuple[object, list[str]]:
    lines: list[str] = []
    outcome = simulate(scenario_of(seed), lambda time, who, what: lines.append(f"{time} {who} {what}"))
    return outcome, lines


# A peer was given up, let its lease expire, or delivered again, in the tick in which another lease was held beside it.
# In 4847, two pushes on arrays point away from each other exactly, and their radial mean has no direction.
@pytest.mark.parametrize("seed", [4847, 7291, 9047, 13162, 24461, 30871, 34779, 55766, 76212, 89853])
def test_schedules_that_once_failed(seed: int) -> None:
    simulate(scenario_of(seed))


@pytest.mark.parametrize("seed", [3, 10, 16])
def test_a_seed_replays_line_by_line(seed: int) -> None:
    assert traced(seed) == traced(seed)


def calm(config: RunConfig, workers: int) -> Scenario:
    return Scenario(
        seed=1,
        config=config,
        step_seconds=tuple(0.5 + 0.1 * index for index in range(workers)),
        clock_rates=(1.0,) * workers,
        delay_seconds=0.01,
        jitter_seconds=0.01,
        faults=(),
        limit_seconds=200.0,
    )


def planned(algorithm: Algorithm, rounds: int, quorum: float = 1.0) -> RunConfig:
    sizes = (training.PAYLOAD_BYTES,) * algorithm.fragments
    config = replace(scenario_of(1).config, algorithm=algorithm, update_bytes=sizes)
    batches = 3 * rounds * algorithm.inner_steps
    return replace(config, workers=3, batches=batches, quorum=quorum, step_budgets=False)


def test_without_faults_each_worker_trains_one_range_a_round() -> None:
    config = planned(DiLoCo(inner_steps=3), rounds=4)
    simulation = Simulation(calm(config, workers=3))
    outcome = simulation.run()
    size = 9
    rounds = [range(at, at + size) for at in range(0, 4 * size, size)]
    assert outcome.parameters == (training.reference(config.algorithm, rounds),)
    assert (outcome.rounds, outcome.epochs) == (4, 1)
    assert simulation.witness.merged_contributions == 4 * 3


@pytest.mark.parametrize("download", ["f32", "int4"])
@pytest.mark.parametrize("delay", [0, 2])
def test_without_faults_fragments_take_turns(delay: int, download: str) -> None:
    algorithm = StreamingDiLoCo(inner_steps=6, fragments=2, delay=delay, upload="int4", download=download)
    simulation = Simulation(calm(planned(algorithm, rounds=3), workers=3))
    outcome = simulation.run()
    # Each fragment merges in every second round; the last push of the other one follows in a flush round.
    assert (outcome.rounds, outcome.epochs) == (7, 1)
    assert simulation.witness.merged_contributions == 7 * 3
    assert simulation.observer.most_in_flight == (2 if delay else 1)


def test_late_workers_carry_what_a_round_closed_without() -> None:
    algorithm = DecoupledDiLoCo(inner_steps=4, fragments=2, delay=1)
    scenario = calm(planned(algorithm, rounds=3, quorum=0.5), workers=3)
    seen: list[object] = []
    simulate(replace(scenario, step_seconds=(0.3, 0.3, 3.0)), lambda time, who, what: seen.append(what))  # noqa: ARG005
    sent = [each.message for each in seen if isinstance(each, Send)]
    assert [each for each in sent if isinstance(each, UpdateReply) and each.outcome is Outcome.CARRIED]
    assert [each for each in sent if isinstance(each, Assign) and not each.lease.data.count], "only a push"


def test_the_numbers_that_a_batch_moves_do_not_depend_on_time() -> None:
    algorithm = DecoupledDiLoCo(inner_steps=4, fragments=2, delay=1, upload="f32")
    scenarios = [calm(planned(algorithm, rounds=3, quorum=quorum), workers=3) for quorum in (1.0, 0.5)]
    first, second = (simulate(replace(each, seed=seed)) for seed, each in enumerate(scenarios))
    assert first.parameters == second.parameters
    assert first.seconds != second.seconds


def test_a_run_that_cannot_end_fails_with_its_seed() -> None:
    scenario = replace(scenario_of(7), limit_seconds=1.0, faults=())
    with pytest.raises(
        SimulationFailed, match=r"seed 7, .*the run is not complete after 1 s.*--first 7 --trace"
    ):
        simulate(scenario)


def name_of(what: object) -> str:
    """The kind of what happened, and of what that holds."""
    match what:
        case Send(_, UpdateReply(_, outcome)):
            return f"answered {outcome}"
        case Send(_, message):
            return f"sent {type(message).__name__}"
        case Report(WorkerChanged(change=change, reason=reason)):
            return f"{change}: {reason.split(':')[0]}"
        case Report(LeaseChanged(change="ended", reason=reason)):
            return f"ended: {reason.split(':')[0]}"
        case Report(metrics):
            return type(metrics).__name__
        case Close(_, reason):
            return f"closed: {reason}"
        case str():
            return what
        case _:
            return type(what).__name__


def test_the_schedules_reach_every_fault_and_what_it_leads_to() -> None:
    faults: set[str] = set()
    inside: set[str] = set()
    seen: Counter[str] = Counter()
    for seed in (*EVENTFUL, *range(500)):
        if (
            faults == set(FAULTS)
            and len(inside) > len(set(FAULTS)) / 2
            and all(seen[each] for each in REACHED)
        ):
            break
        scenario = scenario_of(seed)
        faults.update(fault.kind for fault in scenario.faults)
        simulation = Simulation(scenario, lambda time, who, what: seen.update([name_of(what)]))  # noqa: ARG005
        simulation.run()
        inside |= simulation.faults.inside
        network, witness = simulation.network, simulation.witness
        seen.update(lost=network.lost, doubled=network.doubled, reordered=network.reordered)
        seen.update(simulation.observer.verdicts)
        seen.update(network.refused[:1] and ["no message"])
        seen.update(group for group in HOSTILE if HOSTILE[group].keys() & simulation.observer.hostile.keys())
        seen["masked"] += witness.masked_leases
        seen["two in flight"] += simulation.observer.most_in_flight == 2
        for machine in (simulation.shepherd_machine, *simulation.worker_machines):
            seen["resumed"] += machine.blobs.resumed
            seen["damaged"] += machine.blobs.damaged
    assert faults == set(FAULTS)
    assert len(inside) > len(set(FAULTS)) / 2, "half of them strike inside of a transfer, too"
    assert not [each for each in REACHED if not seen[each]]


HOSTILE = {"wrong": hostile.WRONG, "a lie": hostile.LIES}
REACHED = (
    *(*HOSTILE, "no message"),
    *(
        "lost",
        "doubled",
        "reordered",
        "resumed",
        "damaged",
        "masked",
        "two in flight",
        "power lost",
        "killed",
    ),
    *("answered admitted", "answered carried", "answered refused", "sent Merged", "sent Revoke", "Compact"),
    *("ended: expired", "ended: the round is closed", "ended: the worker failed", "reconnected: cpu"),
    *("lost: fenced", "lost: it spoke with another generation than its own", "closed: not a member"),
    *("PreparationFailed", "LeaseFailed", "UploadFailed", "BlobUnavailable", "BlobRefused"),
    *("CheckpointFailed", "CancelUpload", "SettlePush", "Adopt"),
    *("confirmed", "unproven", "PieceRepeated", "StateUploadFailed"),
)


def test_hostile_workers_meet_every_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_module, "SPEAKING", 2)
    seen: set[str] = set()
    said: Counter[str] = Counter()
    refused: list[str] = []

    def note(_time: float, _who: str, what: object) -> None:
        if isinstance(what, Report) and isinstance(what.metrics, RoundMerged):
            seen.update(name for name, _ in what.metrics.refused)

    # The runs are not audited, and what is not finite comes through no codec.
    met = {refusal.name for refusal in Refusal} - {"WRONG_COMMITMENTS", "NOT_FINITE"}
    kinds = {*hostile.WRONG, *hostile.LIES}
    for seed in (*SPITEFUL, *range(90)):
        # What is said just before the connection breaks anyway is refused by nobody.
        without_form = sum(said[kind] for kind in hostile.NO_MESSAGES)
        if seen == met and kinds <= said.keys() and len(refused) > without_form / 2 > 4:
            return
        scenario = scenario_of(seed)
        workers = range(len(scenario.step_seconds))
        taken = tuple(Fault(0.0, "hostile update", worker, seconds=15.0, count=0) for worker in workers)
        unaudited = replace(scenario.config, audits=AuditPolicy())
        simulation = Simulation(replace(scenario, config=unaudited, faults=taken + scenario.faults), note)
        simulation.run()
        said += simulation.observer.hostile
        refused += simulation.network.refused
    pytest.fail(f"met {seen} of {met}; said {said}; refused {refused}")


@pytest.mark.parametrize("kind", sorted(hostile.NO_MESSAGES))
def test_what_is_no_message_is_refused_by_the_machine_of_the_connection(kind: str) -> None:
    update = Update(3, 4, 1, Blob(bytes(32), 9), 4, 28, (1.5,) * 4, 2.0)
    shepherd, worker = ControlMachine(Side.SHEPHERD, "ada"), ControlMachine(Side.WORKER)
    worker.send(Hello(PROTOCOL_VERSION, "ada", b"1", (), 1))
    assert len(shepherd.receive(worker.bytes_to_send())) == 1
    shepherd.send(Welcome(1, 1, "run", 1.0, "{}"))
    [event] = shepherd.receive(hostile.NO_MESSAGES[kind](update))
    assert isinstance(event, ProtocolViolation)
    assert shepherd.is_closed


def test_what_hostile_workers_say_as_messages_fits_the_wire() -> None:
    update = Update(3, 4, 1, Blob(bytes(32), 9), 4, 28, (1.5,) * 4, 2.0)
    for change in (*hostile.WRONG.values(), *hostile.LIES.values()):
        (frame,) = FrameDecoder().feed(encode_control(changed := change(update, 9)))
        assert decode_control(frame) == changed != update


def test_a_simulated_worker_says_nothing_that_cannot_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        hostile.WRONG, "of ten times the tokens", lambda update, _: replace(update, tokens=-1)
    )
    taken = [
        replace(
            scenario_of(seed),
            config=replace(scenario_of(seed).config, audits=AuditPolicy()),
            faults=tuple(Fault(0.0, "hostile update", worker, 15.0, 0) for worker in range(4)),
            step_seconds=(0.5,) * 4,
            clock_rates=(1.0,) * 4,
        )
        for seed in range(1, 90, 4)
    ]
    with pytest.raises(SimulationFailed, match=r"cannot say Update.*Update.tokens is -1"):
        collections.deque(map(simulate, taken), maxlen=0)
