"""Whole runs under audit: who cheats is found, who is honest is not, and nothing is lost of the data."""

import pytest
from benchmarks.distributed.audits.auditing import AuditedRun, Outcome, study
from benchmarks.distributed.audits.cheating import CHEATS

from pcp.distributed.algorithms import Algorithm, DiLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.coordinator import replay
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.messages import DataRange

ALGORITHMS: list[Algorithm] = [
    DiLoCo(8),
    SparseLoCo(8),
    StreamingDiLoCo(4, 1, 1),
    StreamingDiLoCo(12, 3, 2),
]
OF_WHICH = pytest.mark.parametrize(
    "algorithm", ALGORITHMS, ids=["diloco", "sparse", "overlapped", "streaming"]
)


def finished(run: AuditedRun) -> Outcome:
    """The outcome of a run, which has merged every batch and follows from its log."""
    outcome = run.run()
    state = run.coordinator.state
    assert all(each.merged == (DataRange(0, state.run.issued),) for each in state.run.fragments)
    assert state.run.complete
    replayed = replay(run.log)
    assert replayed is not None
    assert replayed.digest() == state.run.digest()
    return outcome


@OF_WHICH
@pytest.mark.parametrize("seed", range(2))
def test_nobody_honest_is_kept_out_whatever_connections_break(algorithm: Algorithm, seed: int) -> None:
    outcome = finished(
        AuditedRun("honest", AuditPolicy(1.0, seed=seed), seed, rounds=3, algorithm=algorithm, accidents=0.05)
    )
    assert outcome.barred == {}
    assert sum(each.verdict == "confirmed" for each in outcome.verdicts) > 15


@OF_WHICH
@pytest.mark.parametrize("cheat", [cheat for cheat in CHEATS if cheat != "honest"])
def test_who_cheats_is_kept_out(cheat: str, algorithm: Algorithm) -> None:
    run = AuditedRun(cheat, AuditPolicy(1.0, seed=4), 4, rounds=4, algorithm=algorithm)
    outcome = finished(run)
    assert list(outcome.barred) == ["worker 1"]
    assert "two workers that repeated" in outcome.barred["worker 1"]
    assert "worker 1" not in {member.worker for member in run.coordinator.state.members.values()}


def test_who_is_kept_out_adds_nothing_to_open_rounds() -> None:
    run = AuditedRun("stale", AuditPolicy(0.3, seed=2), 2, rounds=6)
    finished(run)
    dropped = [record for record in run.log if b"ContributionsDropped" in record]
    assert dropped, "the case that this test is for does not occur"


@pytest.mark.parametrize("seed", range(3))
def test_who_contradicts_the_honest_is_kept_out(seed: int) -> None:
    run = AuditedRun("honest", AuditPolicy(0.5, seed=seed), seed, rounds=6, liars=frozenset({"worker 3"}))
    outcome = finished(run)
    assert list(outcome.barred) == ["worker 3"]
    assert "which a third worker confirms" in outcome.barred["worker 3"]


def test_two_workers_cannot_decide_who_is_wrong() -> None:
    run = AuditedRun("sign flip", AuditPolicy(1.0, seed=4), 4, workers=2, rounds=8)
    outcome = finished(run)
    assert outcome.barred == {}
    undecided = any(each.verdict == "undecided" for each in outcome.verdicts)
    waiting = run.coordinator.state.audits.audits.values()
    assert undecided or any(audit.contradicted for audit in waiting)


def test_without_audits_nobody_is_asked() -> None:
    outcome = finished(AuditedRun("lazy", AuditPolicy(0.0), 1, rounds=3))
    assert (outcome.barred, outcome.verdicts) == ({}, ())


def test_more_audits_find_more_and_sooner() -> None:
    (rarely, late), (always, soon) = (study("stale", rate, 3) for rate in (0.02, 0.5))
    assert rarely <= always == 1.0
    assert soon < late
