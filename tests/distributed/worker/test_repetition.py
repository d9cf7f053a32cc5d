"""Pieces of real leases, repeated by another trainer: equal to the bit where the worker did what it says, and only there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms import StreamingDiLoCo
from pcp.distributed.messages import Adoption, Blob, DataRange, Lease, Outcome, Repeat, Settlement
from pcp.distributed.pieces import borders
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import store_vector
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.inner_state import relative_distance
from pcp.distributed.runtime import finished
from pcp.distributed.wire import BlobStore
from pcp.distributed.worker.training.repetition import RepetitionAborted, RepetitionRefused
from pcp.distributed.worker.training.trainer import InnerTrainer, Trained
from pcp.ir.tree import map_tree
from pcp.training.recipes.recipe import Recipe
from tests.distributed.tiny_run import store_job
from tests.distributed.worker.test_trainer import hand_over, ignore, never, trusting

ALGORITHM = StreamingDiLoCo(12, 2, 1, 0.5, upload="int4")
PIECES = 3


class Audited:
    """A worker that has done three leases of two fragments, and another that may repeat them."""

    def __init__(self, recipe: Recipe, store: BlobStore) -> None:
        self.store = store
        job = replace(store_job(recipe, store, ALGORITHM), pieces=PIECES)
        self.worker, self.auditor = trusting(job, store), trusting(job, store)
        parts = partition(recipe.parameters, 2)
        generator = np.random.default_rng(1)

        def version(number: int, scale: float) -> Blob:
            vector = parts.vectors(recipe.parameters)[number]
            noise = scale * generator.standard_normal(vector.size)
            return store_vector(store, (vector + noise).astype(np.float32))

        began = tuple(Adoption(number, 0, 0, version(number, 0.0), None) for number in range(2))
        self.leases = [
            Lease(1, 1, 0, DataRange(0, 6), 0, 0, (), True, began, 60.0),
            # Adopts in the middle, and its data may not move fragment 0.
            Lease(
                2,
                1,
                1,
                DataRange(6, 6),
                6,
                1,
                (1,),
                False,
                (Adoption(0, 1, 3, version(0, 0.01), None),),
                60.0,
            ),
            Lease(
                3,
                1,
                2,
                DataRange(12, 0),
                12,
                0,
                (),
                False,
                (Adoption(1, 1, 0, version(1, 0.01), None),),
                60.0,
            ),
        ]
        self.done: list[Trained] = []
        for lease, outcome in zip(
            self.leases, (Outcome.CARRIED, Outcome.ADMITTED, Outcome.ADMITTED), strict=True
        ):
            hand_over(self.worker, lease)
            done = finished(self.worker.train(lease, ignore, never))
            assert done is not None
            self.done.append(done)
            self.worker.inbox.settle(lease.lease_id, outcome)

    def opening(self, number: int) -> Repeat:
        """The beginning of a lease."""
        before = self.done[number - 1].states[-1] if number else None
        return Repeat(1, self.leases[number], before, (), 0, 0, opening=True, push=False)

    def pieces(self, number: int) -> list[Repeat]:
        """The pieces of a lease."""
        lease, done = self.leases[number], self.done[number]
        cuts = borders(lease.data.count, PIECES)
        last = len(cuts) - 2
        return [
            Repeat(
                1,
                lease,
                done.states[place],
                done.settled if place == last else (),
                cuts[place],
                cuts[place + 1] - cuts[place],
                opening=False,
                push=place == last,
            )
            for place in range(last + 1)
        ]


@pytest.fixture(scope="module")
def audited(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    return Audited(recipe, BlobStore(tmp_path_factory.mktemp("blobs")))


@pytest.mark.parametrize("number", range(3))
def test_an_honest_lease_is_repeated_to_the_bit(number: int, audited: Audited) -> None:
    done = audited.done[number]
    assert finished(audited.auditor.repeat(audited.opening(number), never)) == (done.states[0], None)
    for place, piece in enumerate(audited.pieces(number)):
        payload = done.payload if piece.push else None
        assert finished(audited.auditor.repeat(piece, never)) == (done.states[place + 1], payload)


def test_what_a_worker_was_told_is_part_of_its_push(audited: Audited) -> None:
    # The first push was carried: the third of the same fragment holds it.
    assert audited.done[2].settled == (Settlement(1, Outcome.ADMITTED),)
    assert audited.done[1].settled == (Settlement(0, Outcome.CARRIED),)
    piece = replace(audited.pieces(1)[-1], settled=(Settlement(0, Outcome.ADMITTED),))
    assert finished(audited.auditor.repeat(piece, never))[0] != audited.done[1].states[-1]


def test_a_step_that_was_left_out_shows(audited: Audited) -> None:
    honest = audited.pieces(0)[0]
    lazy = replace(honest, steps=honest.steps - 1)
    states = [finished(audited.auditor.repeat(piece, never))[0] for piece in (honest, lazy)]
    loaded: list[Any] = [inner(audited, each) for each in states]
    assert relative_distance(loaded[0], loaded[0]) == 0
    assert relative_distance(*loaded) > 1e-3


def inner(audited: Audited, blob: Blob) -> Any:
    return audited.auditor._repeater.shelf.inner(blob)


def test_distances_between_states_of_other_parts_are_infinite(audited: Audited) -> None:
    first, last = (inner(audited, each) for each in (audited.done[0].states[0], audited.done[0].states[-1]))
    assert relative_distance(first, last) == np.inf
    smaller = map_tree(lambda leaf: np.atleast_1d(leaf)[:1], first)
    assert relative_distance(first, smaller) == np.inf


def test_a_blob_that_is_no_state_is_refused(audited: Audited) -> None:
    other = store_arrays(audited.store, {"state": np.zeros(3, np.float32)})
    with pytest.raises(ArraysRefused, match="has other arrays than expected"):
        finished(audited.auditor.repeat(replace(audited.pieces(0)[0], before=other), never))


def test_a_repetition_stops_when_it_is_given_up(audited: Audited) -> None:
    with pytest.raises(RepetitionAborted):
        finished(audited.auditor.repeat(audited.pieces(0)[0], lambda: True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": 5}, "steps 5 to 7 were asked for of lease 1, which has 6"),
        ({"before": None}, "no state was named to begin with; only the opening of a fresh lease needs none"),
    ],
)
def test_a_piece_that_makes_no_sense_is_refused(
    changes: dict[str, Any], message: str, audited: Audited
) -> None:
    with pytest.raises(RepetitionRefused, match=message):
        finished(audited.auditor.repeat(replace(audited.pieces(0)[0], **changes), never))


def test_leases_that_name_what_is_not_there_are_refused(audited: Audited) -> None:
    piece = audited.pieces(0)[0]
    with pytest.raises(RepetitionRefused, match="lease 1 names fragment 7; the run has 2"):
        finished(audited.auditor.repeat(replace(piece, lease=replace(piece.lease, fragment=7)), never))
    opening = audited.opening(0)
    some = replace(opening.lease, adopt=opening.lease.adopt[:1])
    with pytest.raises(RepetitionRefused, match=r"begins afresh from fragments \[0\]; expected each of 2"):
        finished(audited.auditor.repeat(replace(opening, lease=some), never))
    unmerged = replace(opening.lease.adopt[1], parameters=None)
    hidden = replace(opening.lease, adopt=(opening.lease.adopt[0], unmerged))
    with pytest.raises(RepetitionRefused, match="fragment 1 of version 0 is not named"):
        finished(audited.auditor.repeat(replace(opening, lease=hidden), never))


def test_states_of_old_leases_are_let_go(recipe: Recipe, tmp_path: Path) -> None:
    audited = Audited(recipe, BlobStore(tmp_path / "blobs"))
    lease = replace(audited.leases[2], lease_id=4)
    hand_over(audited.worker, lease)
    finished(audited.worker.train(lease, ignore, never))
    assert not any(audited.store.has(each) for each in audited.done[0].states[:-1])
    assert all(audited.store.has(each) for each in audited.done[1].states)


def test_without_audits_no_state_is_stored(recipe: Recipe, tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    trainer: InnerTrainer = trusting(store_job(recipe, store, ALGORITHM), store)
    parts = partition(recipe.parameters, 2).vectors(recipe.parameters)
    began = tuple(Adoption(number, 0, 0, store_vector(store, parts[number]), None) for number in range(2))
    lease = Lease(1, 1, 0, DataRange(0, 1), 0, 0, (), True, began, 60.0)
    hand_over(trainer, lease)
    done = finished(trainer.train(lease, ignore, never))
    assert done is not None
    assert done.states == ()
