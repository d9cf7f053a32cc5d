"""The simulator finds protocol bugs: each of these, planted on purpose, is found within some hundred seeds."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pcp import ops
from pcp.distributed.compression import top_k as top_k_codec
from pcp.distributed.compression.int4 import Int4
from pcp.distributed.coordinator import membership, state
from pcp.distributed.coordinator.audit import books as audit_books
from pcp.distributed.coordinator.audit.books import AuditBooks
from pcp.distributed.coordinator.log import checkpoints
from pcp.distributed.coordinator.peers import PeersPace
from pcp.distributed.coordinator.rounds import admission, adoptions, leases
from pcp.distributed.coordinator.rounds import lifecycle as rounds
from pcp.distributed.coordinator.rounds.cells import Pending
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.run import Run
from pcp.distributed.coordinator.state import HeldLease, Member, Turn
from pcp.distributed.merging import default
from pcp.distributed.merging.accumulation import Accumulator
from pcp.distributed.merging.radial import Radial
from pcp.distributed.messages import Blob, Lease, Merged, Outcome
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.shepherd.arrivals import ArrivingBlob
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.simulator import SimulationFailed, scenario, scenario_of, shepherd_process, simulate
from pcp.distributed.simulator.arrays import course
from pcp.distributed.simulator.machines.memory_storage import MemoryStorage
from pcp.distributed.wire.bulk.permissions import Announcements
from pcp.distributed.worker import adoptions as worker_adoptions
from pcp.distributed.worker import pushes
from pcp.distributed.worker.connection import Turn as WorkerTurn
from pcp.distributed.worker.effects import UploadUpdate

Patch = pytest.MonkeyPatch
SEEDS = 340


def generation_not_checked(patch: Patch) -> None:
    judge = admission.judge
    patch.setattr(
        admission,
        "judge",
        lambda state, member, update: judge(state, member, replace(update, generation=member.generation)),
    )


def content_not_checked(patch: Patch) -> None:
    patch.setattr(admission, "_judge_content", lambda state, lease, update: None)  # noqa: ARG005


def lease_not_given_again(patch: Patch) -> None:
    withdraw, put = leases.withdraw, Pending.put

    def forgetful(turn: Turn, member: Member, *arguments: Any, **keywords: Any) -> None:
        patch.setattr(Pending, "put", lambda pending, cells: None)  # noqa: ARG005
        withdraw(turn, member, *arguments, **keywords)
        patch.setattr(Pending, "put", put)

    patch.setattr(leases, "withdraw", forgetful)


def range_leased_twice(patch: Patch) -> None:
    patch.setattr(Pending, "take", lambda pending, cells: None)  # noqa: ARG005


def numbers_reused_after_restart(patch: Patch) -> None:
    patch.setattr(membership, "EPOCH_STRIDE", 0)
    patch.setattr(leases, "EPOCH_STRIDE", 0)


def new_process_not_fenced(patch: Patch) -> None:
    patch.setattr(
        membership, "_next_generation", lambda turn: turn.state.run.epoch * membership.EPOCH_STRIDE + 1
    )


def merged_in_order_of_arrival(patch: Patch) -> None:
    patch.setattr(rounds, "merge_order", tuple)


def outstanding_cells_forgotten_by_a_restart(patch: Patch) -> None:
    patch.setattr(state, "pending_of", lambda run: Pending([0] * len(run.fragments)))


def closing_not_synced(patch: Patch) -> None:
    append = Turn.append
    patch.setattr(Turn, "append", lambda turn, record, sync=False: append(turn, record, False))  # noqa: ARG005


def updates_deleted_too_early(patch: Patch) -> None:
    patch.setattr(Run, "blobs", Run.state_blobs)


def torn_tail_kept(patch: Patch) -> None:
    patch.setattr(MemoryStorage, "truncate", lambda storage, segment, length: None)  # noqa: ARG005


def snapshot_without_rounds_in_flight(patch: Patch) -> None:
    encode = checkpoints.encode

    def forgetful(run: Run) -> bytes:
        in_flight, run.in_flight = run.in_flight, ()
        try:
            return encode(run)
        finally:
            run.in_flight = in_flight

    patch.setattr(checkpoints, "encode", forgetful)


def leases_never_expire(patch: Patch) -> None:
    patch.setattr(leases, "expire", lambda turn: None)  # noqa: ARG005


def peers_do_not_bound_a_lease(patch: Patch) -> None:
    patch.setattr(Turn, "peers", lambda turn, without=0: PeersPace())  # noqa: ARG005


def a_failed_upload_is_tried_at_every_tick(patch: Patch) -> None:
    def upload_again(turn: WorkerTurn) -> None:
        for lease_id, push in turn.state.pushes.items():
            if push.upload_attempts:
                turn.effects.append(UploadUpdate(lease_id, push.update.payload))

    patch.setattr(pushes, "upload_again", upload_again)


def silence_not_noticed(patch: Patch) -> None:
    patch.setattr(membership, "give_up_silent", lambda turn: None)  # noqa: ARG005


def carried_cells_counted_twice(patch: Patch) -> None:
    admit = admission.admit

    def generous(turn: Turn, held: HeldLease) -> None:
        kept = [(each, set(each.fragments)) for each in held.pushing]
        admit(turn, held)
        carried = turn.state.members[held.worker_id].carried
        for each, fragments in kept:
            each.fragments |= fragments
            if each not in carried:
                carried.append(each)

    patch.setattr(admission, "admit", generous)


def carried_cells_lost_with_their_worker(patch: Patch) -> None:
    withdraw = leases.withdraw

    def forgetful(turn: Turn, member: Member, *arguments: Any, **keywords: Any) -> None:
        member.carried.clear()
        withdraw(turn, member, *arguments, **keywords)

    patch.setattr(leases, "withdraw", forgetful)


def mask_ignored(patch: Patch) -> None:
    patch.setattr(leases, "Lease", lambda **values: Lease(**values | {"fragments": ()}))


def adoption_skipped(patch: Patch) -> None:
    found = adoptions.adoptions

    def skipping(turn: Turn, member: Member, round: Round, steps: int) -> tuple[Any, ...]:
        fresh, adopted = member.fresh, found(turn, member, round, steps)
        return adopted if fresh else adopted[:-1]

    patch.setattr(adoptions, "adoptions", skipping)


def late_push_admitted_into_the_next_round(patch: Patch) -> None:
    carry = admission.carry

    def generous(turn: Turn, held: HeldLease) -> None:
        later = [each for each in turn.state.run.in_flight if not each.closed]
        if later:
            held.lease = replace(held.lease, round=later[0].number)
            admission.admit(turn, held)
        else:
            carry(turn, held)

    patch.setattr(admission, "carry", generous)


def flush_rounds_forgotten(patch: Patch) -> None:
    following = rounds._next_fragment
    patch.setattr(rounds, "_next_fragment", lambda turn: following(turn) if turn.state.run.unissued else None)


def change_applied_to_any_version(patch: Patch) -> None:
    merged, resolve = adoptions._merged, worker_adoptions._resolve

    def eager(turn: Turn, member: Member, round: Round, number: int) -> Any:
        for each in merged(turn, member, round, number):
            yield each if member.fresh else replace(each, change=turn.state.run.fragments[number].change)

    def trusting(turn: Any, task: Any, found: Any) -> None:
        if not task.lease.fresh:
            turn.state.versions[found.fragment] = found.version - 1
        resolve(turn, task, found)

    patch.setattr(adoptions, "_merged", eager)
    patch.setattr(worker_adoptions, "_resolve", trusting)


def residual_dropped_after_carried(patch: Patch) -> None:
    settle = Replica.settle
    patch.setattr(
        Replica,
        "settle",
        lambda replica, fragment, outcome: settle(replica, fragment, Outcome.ADMITTED),  # noqa: ARG005
    )


def residual_kept_by_a_fresh_lease(patch: Patch) -> None:
    fresh = Replica.fresh

    def clinging(replica: Replica, vectors: Any, step: int) -> None:
        residuals = replica._residuals
        fresh(replica, vectors, step)
        replica._residuals = residuals or replica._residuals

    patch.setattr(Replica, "fresh", clinging)


def round_merged_before_the_one_before(patch: Patch) -> None:
    close = rounds._close
    patch.setattr(rounds, "_close", lambda turn, round: close(turn, turn.state.run.in_flight[-1]))  # noqa: ARG005


def merge_not_told_after_a_restart(patch: Patch) -> None:
    merged = adoptions.merged
    patch.setattr(
        adoptions, "merged", lambda turn, number: merged(turn, number) if turn.state.run.epoch < 2 else None
    )


def merge_told_once_and_never_again(patch: Patch) -> None:
    def hasty(turn: Turn, number: int) -> None:
        fragment = turn.state.run.fragments[number]
        for lease_id in sorted(turn.state.adopting):
            member = turn.state.members[turn.state.leases[lease_id].worker_id]
            turn.send(member, Merged(number, fragment.version, fragment.parameters, fragment.change))
        turn.state.adopting.clear()

    patch.setattr(adoptions, "merged", hasty)


def withdrawn_worker_not_begun_afresh(patch: Patch) -> None:
    withdraw = leases.withdraw

    def lenient(turn: Turn, member: Member, *arguments: Any, **keywords: Any) -> None:
        withdraw(turn, member, *arguments, **keywords)
        member.fresh = False

    patch.setattr(leases, "withdraw", lenient)


def carried_cells_never_flushed(patch: Patch) -> None:
    patch.setattr(Member, "to_push", lambda member: {})  # noqa: ARG005


def equal_push_deleted(patch: Patch) -> None:
    def delete(turn: Turn, candidates: frozenset[Blob], needed: frozenset[Blob]) -> None:
        turn.effects += [state.DeleteBlob(blob) for blob in candidates - needed]

    patch.setattr(Turn, "delete", delete)


def auditor_not_told_what_was_settled(patch: Patch) -> None:
    patch.setattr(AuditBooks, "settled", lambda books, worker_id, fragment, outcome: None)  # noqa: ARG005


def beginning_believed_after_a_lost_lease(patch: Patch) -> None:
    patch.setattr(AuditBooks, "ended", lambda books, worker_id, lease_id: None)  # noqa: ARG005


def audits_that_wait_for_nobody(patch: Patch) -> None:
    patch.setattr(audit_books, "PATIENCE", 0.2)


def arrival_not_told(patch: Patch) -> None:
    patch.setattr(ArrivingBlob, "finish", lambda arriving: arriving._partial.finish())


def anybody_may_push(patch: Patch) -> None:
    patch.setattr(Announcements, "check_push", lambda known, peer, blob: None)  # noqa: ARG005


# The seed that finds each: other schedules, once they are drawn otherwise, are tried after it.
PLANTED = [
    (generation_not_checked, 40),
    (content_not_checked, 12),
    (lease_not_given_again, 0),
    (range_leased_twice, 0),
    (numbers_reused_after_restart, 3),
    (new_process_not_fenced, 0),
    (merged_in_order_of_arrival, 0),
    (outstanding_cells_forgotten_by_a_restart, 6),
    (closing_not_synced, 0),
    (updates_deleted_too_early, 0),
    (torn_tail_kept, 4),
    (snapshot_without_rounds_in_flight, 13),
    (leases_never_expire, 29),
    (peers_do_not_bound_a_lease, 30),
    (silence_not_noticed, 9),
    (a_failed_upload_is_tried_at_every_tick, 6),
    (carried_cells_counted_twice, 0),
    (carried_cells_lost_with_their_worker, 0),
    (mask_ignored, 1),
    (adoption_skipped, 0),
    (late_push_admitted_into_the_next_round, 11),
    (flush_rounds_forgotten, 1),
    (change_applied_to_any_version, 7),
    (residual_dropped_after_carried, 11),
    (residual_kept_by_a_fresh_lease, 6),
    (round_merged_before_the_one_before, 2),
    (merge_not_told_after_a_restart, 17),
    (merge_told_once_and_never_again, 2),
    (withdrawn_worker_not_begun_afresh, 4),
    (carried_cells_never_flushed, 1),
    (equal_push_deleted, 19),
    (auditor_not_told_what_was_settled, 11),
    (beginning_believed_after_a_lost_lease, 61),
    (audits_that_wait_for_nobody, 11),
    (arrival_not_told, 11),
    (anybody_may_push, 24),
]


def a_contribution_not_merged(patch: Patch) -> None:
    total = Accumulator.total
    patch.setattr(
        Accumulator,
        "total",
        lambda own, loaders, factors: total(own, loaders[:1], factors[:1]),
    )


def nibbles_swapped(patch: Patch) -> None:
    unpacked = Int4._unpacked
    patch.setattr(
        Int4,
        "_unpacked",
        lambda own, packed: ops.concatenate(ops.split(unpacked(own, packed), 2, 1)[::-1], 1),
    )


def momentum_forgotten(patch: Patch) -> None:
    patch.setattr(Merger, "_state", lambda merger, fragment, blob: merger._first(fragment))  # noqa: ARG005


def radial_norms_not_weighted(patch: Patch) -> None:
    merge = Radial.merge
    patch.setattr(
        Radial,
        "merge",
        lambda own, loaders, weights, state: merge(own, loaders, np.ones_like(weights), state),
    )


def clipping_forgotten(patch: Patch) -> None:
    patch.setattr(default, "clipped", lambda norms, bound: 2.0 * np.ones_like(norms))  # noqa: ARG005


def top_k_in_one_magnitude(patch: Patch) -> None:
    two = top_k_codec._two_means

    def one(size: Any) -> Any:
        magnitudes, larger = two(size)
        return ops.concatenate([magnitudes[:, :1]] * 2, 1), larger

    patch.setattr(top_k_codec, "_two_means", one)


DILOCO, SPARSE, DECOUPLED, INT4 = range(4)  # kinds of schedules on arrays, in turn

# Bugs of what runs on arrays only; the kind of schedules that finds them, and how many of these.
ON_ARRAYS = [
    (a_contribution_not_merged, DECOUPLED, 2),
    (nibbles_swapped, INT4, 2),
    (momentum_forgotten, INT4, 2),
    (radial_norms_not_weighted, DECOUPLED, 2),
    (top_k_in_one_magnitude, SPARSE, 2),
    (clipping_forgotten, DILOCO, 2),
]


def found(plant: Callable[[Patch], None], seeds: Iterable[int], patch: Patch) -> None:
    # What the coordinator knows of itself does not help: this is about what can be seen from outside.
    patch.setattr(shepherd_process, "check_books", lambda state: None)  # noqa: ARG005
    plant(patch)
    for seed in seeds:
        try:
            simulate(scenario_of(seed))
        except SimulationFailed as failure:
            print(f"found by {failure}")
            return
    pytest.fail(f"{plant.__name__} was not found within {seeds}")


@pytest.mark.parametrize(("plant", "seed"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], seed: int, monkeypatch: Patch) -> None:
    found(plant, [seed, *range(SEEDS)], monkeypatch)


@pytest.mark.parametrize(
    ("plant", "kind", "schedules"), ON_ARRAYS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_bug_is_found_on_arrays(
    plant: Callable[[Patch], None], kind: int, schedules: int, monkeypatch: Patch
) -> None:
    changes_programs = plant in (nibbles_swapped, top_k_in_one_magnitude)
    if changes_programs:
        course.forget()
    every = scenario.ON_ARRAYS
    try:
        turns = range(kind, kind + 6 * schedules, 6)
        found(plant, [turn * every + every - 1 for turn in turns], monkeypatch)
    finally:
        if changes_programs:
            course.forget()
