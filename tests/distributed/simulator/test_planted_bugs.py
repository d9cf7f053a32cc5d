"""The simulator finds protocol bugs: each of these, planted on purpose, fails within the stated number of seeds."""

from collections.abc import Callable

import pytest

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import admission, data_ranges, leases, membership, rounds
from pcp.distributed.coordinator.records import UpdateAdmitted
from pcp.distributed.coordinator.run import Run
from pcp.distributed.coordinator.state import HeldLease, Turn
from pcp.distributed.messages import Blob, Update
from pcp.distributed.simulator import SimulationFailed, scenario_of, simulate
from pcp.distributed.simulator.memory_storage import MemoryStorage

Patch = pytest.MonkeyPatch


def generation_not_checked(patch: Patch) -> None:
    patch.setattr(admission, "same_generation", lambda member, update: True)  # noqa: ARG005


def content_not_checked(patch: Patch) -> None:
    patch.setattr(admission, "_judge_content", lambda state, lease, update: None)  # noqa: ARG005


def lease_not_given_again(patch: Patch) -> None:
    def release(turn: Turn, lease_id: int, reason: str) -> None:
        leases.forget(turn, lease_id, reason)

    patch.setattr(leases, "release", release)


def range_leased_twice(patch: Patch) -> None:
    patch.setattr(leases.data_ranges, "subtract", lambda ranges, piece: ranges)  # noqa: ARG005


def update_merged_twice(patch: Patch) -> None:
    def admit(turn: Turn, held: HeldLease, update: Update) -> None:
        # The lease stays on the books, so a repeated update is admitted again.
        lease = held.lease
        contribution = Contribution(
            held.worker_id,
            lease.lease_id,
            lease.data,
            update.pseudo_gradient,
            update.steps,
            update.tokens,
            0.0,
        )
        turn.append(UpdateAdmitted(lease.round, contribution))
        turn.send(turn.state.members[held.worker_id], admission.UpdateReply(lease.lease_id, True, ""))

    patch.setattr(admission, "admit", admit)


def numbers_reused_after_restart(patch: Patch) -> None:
    patch.setattr(membership, "EPOCH_STRIDE", 0)
    patch.setattr(leases, "EPOCH_STRIDE", 0)


def new_process_not_fenced(patch: Patch) -> None:
    patch.setattr(
        membership, "_next_generation", lambda turn: turn.state.run.epoch * membership.EPOCH_STRIDE + 1
    )


def merged_in_order_of_arrival(patch: Patch) -> None:
    patch.setattr(rounds, "merge_order", tuple)


def carried_ranges_dropped(patch: Patch) -> None:
    def next_ranges(run: Run) -> data_ranges.Ranges:
        size = run.config.batches_per_round
        fresh = min(size, run.config.total_batches - run.issued)
        return data_ranges.cut(run.issued, fresh, run.config.algorithm.inner_steps)

    patch.setattr(Run, "next_ranges", next_ranges)


def closing_not_synced(patch: Patch) -> None:
    append = Turn.append
    patch.setattr(Turn, "append", lambda turn, record, sync=False: append(turn, record, False))  # noqa: ARG005


def updates_deleted_too_early(patch: Patch) -> None:
    def blobs(run: Run) -> frozenset[Blob]:
        return frozenset({run.parameters, *([run.optimizer_state] if run.optimizer_state else [])})

    patch.setattr(Run, "blobs", blobs)


def torn_tail_kept(patch: Patch) -> None:
    patch.setattr(MemoryStorage, "truncate", lambda storage, segment, length: None)  # noqa: ARG005


def snapshot_without_admitted_updates(patch: Patch) -> None:
    encode = rounds.encode

    def forgetful(run: Run) -> bytes:
        admitted, run.admitted = run.admitted, ()
        try:
            return encode(run)
        finally:
            run.admitted = admitted

    patch.setattr(rounds, "encode", forgetful)


def leases_never_expire(patch: Patch) -> None:
    patch.setattr(leases, "expire", lambda turn: None)  # noqa: ARG005


def silence_not_noticed(patch: Patch) -> None:
    patch.setattr(membership, "give_up_silent", lambda turn: None)  # noqa: ARG005


PLANTED: list[tuple[Callable[[Patch], None], int]] = [
    (generation_not_checked, 150),
    (content_not_checked, 150),
    (lease_not_given_again, 20),
    (range_leased_twice, 20),
    (update_merged_twice, 20),
    (numbers_reused_after_restart, 20),
    (new_process_not_fenced, 20),
    (merged_in_order_of_arrival, 20),
    (carried_ranges_dropped, 60),
    (closing_not_synced, 20),
    (updates_deleted_too_early, 60),
    (torn_tail_kept, 150),
    (snapshot_without_admitted_updates, 150),
    (leases_never_expire, 100),
    (silence_not_noticed, 30),
]


@pytest.mark.parametrize(("plant", "seeds"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_found_within_so_many_seeds(
    plant: Callable[[Patch], None], seeds: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    for seed in range(seeds):
        try:
            simulate(scenario_of(seed))
        except SimulationFailed as failure:
            print(f"found by {failure}")
            return
    pytest.fail(f"{plant.__name__} was not found within {seeds} seeds")
