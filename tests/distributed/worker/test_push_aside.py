"""Pushes that are made while the next lease is trained."""

import queue
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pcp.distributed.algorithms import StreamingDiLoCo
from pcp.distributed.messages import Adoption, Blob, DataRange, Lease, Outcome
from pcp.distributed.round_arithmetic.flat_blobs import store_vector
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.runtime import finished
from pcp.distributed.wire import BlobStore
from pcp.distributed.wire.blob_files import StoreFull
from pcp.distributed.worker.offer import ProgramStopped
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.repetition import StoredArrays
from pcp.distributed.worker.training.trainer import NOT_MADE, InnerTrainer, Trained
from pcp.distributed.worker.training.work import Work
from pcp.training.recipes.recipe import Recipe
from tests.distributed.tiny_run import lease_of, store_job
from tests.distributed.worker.test_trainer import hand_over, ignore, never, trusting
from tests.distributed.worker.test_training_process import DONE, started


def test_a_push_is_made_while_the_next_lease_is_trained_and_says_the_same(
    recipe: Recipe, tmp_path: Path
) -> None:
    """With another lease to follow, `train` returns before the push is made; nothing that comes of it is another."""
    told: list[tuple[Blob, ...]] = []
    for ahead in (False, True):
        store = BlobStore(tmp_path / str(ahead))
        trainer = trusting(store_job(recipe, store, StreamingDiLoCo(4, upload="int4")), store)
        vectors = partition(recipe.parameters, 2).vectors(recipe.parameters)
        adopt = tuple(Adoption(number, 0, 0, store_vector(store, vectors[number]), None) for number in (0, 1))
        first = Lease(1, 1, 0, DataRange(0, 2), 0, 0, (), True, adopt, 60.0)
        leases = [first] + [
            replace(
                first,
                lease_id=number,
                fragment=fragment,
                fresh=False,
                adopt=(),
                data=DataRange(2 * number, 2),
            )
            for number, fragment in ((2, 1), (3, 0))
        ]
        made: dict[int, Trained | Exception] = {}
        for lease in leases:
            hand_over(trainer, lease)
            if ahead:
                trainer.inbox.follow(lease.lease_id)
            later = partial(made.__setitem__, lease.lease_id)
            done = finished(trainer.train(lease, ignore, never, later=later))
            assert (done is None) is ahead
            if done is not None:
                made[lease.lease_id] = done
            trainer.inbox.settle(lease.lease_id, Outcome.ADMITTED)
        finished(trainer._end_push())
        found = [made[lease.lease_id] for lease in leases]
        assert all(isinstance(each, Trained) for each in found), found
        told.append(tuple(each.payload for each in found if isinstance(each, Trained)))
        assert all(store.has(blob) for blob in told[-1])
    assert told[0] == told[1]
    assert len(set(told[0])) == 3


def test_a_push_that_cannot_be_stored_is_told_and_ends_the_next_lease(
    recipe: Recipe, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trusting(store_job(recipe, store, StreamingDiLoCo(4)), store)
    vectors = partition(recipe.parameters, 2).vectors(recipe.parameters)
    adopt = tuple(Adoption(number, 0, 0, store_vector(store, vectors[number]), None) for number in (0, 1))
    first = Lease(1, 1, 0, DataRange(0, 1), 0, 0, (), True, adopt, 60.0)

    def full(_: object) -> Blob:
        raise StoreFull("no room")

    monkeypatch.setattr(StoredArrays, "put_push", lambda _, payload: full(payload))
    made: list[Trained | Exception] = []
    hand_over(trainer, first)
    trainer.inbox.follow(1)
    assert finished(trainer.train(first, ignore, never, later=made.append)) is None
    with pytest.raises(StoreFull, match="no room"):
        finished(trainer.train(replace(first, lease_id=2, fragment=1, fresh=False, adopt=()), ignore, never))
    assert [type(each) for each in made] == [StoreFull]
    hand_over(trainer, replace(first, lease_id=3))
    monkeypatch.undo()
    assert finished(trainer.train(replace(first, lease_id=3), ignore, never)) is not None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"error": "StoreFull", "reason": "no room"', "no room"),
        ('"bug": "Traceback"', "Traceback"),
        ('"payload": ["' + "cd" * 32 + '", 7], ' + DONE[: DONE.index(', "number"')], "made no file"),
    ],
)
def test_a_process_tells_later_what_kept_a_push_from_being_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, message: str
) -> None:
    script = f"""say('{{"prepared": true, "number": 1}}'); read(); say('{{"later": true, "number": 2}}'); read()
say('{{"lease": 7, "payload": 3}}'); say('{{"lease": 1, ' + {line!r} + '}}'); time.sleep(60)"""
    process = started(monkeypatch, tmp_path, script)
    told, lease = queue.SimpleQueue[Trained | Exception](), lease_of(1, DataRange(0, 1), Blob(b"p" * 32, 1))
    try:
        assert finished(process.train(lease, ignore, never, told.put)) is None
        process.follow(1)
        assert message in str(told.get(timeout=30.0)), (
            "what it says of a lease that it was not asked for is ignored"
        )
    finally:
        process.close()


def test_a_process_that_tells_later_what_makes_no_sense_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = """say('{"prepared": true, "number": 1}'); read(); say('{"later": true, "number": 2}')
say('{"lease": 1, "payload": 3}'); time.sleep(60)"""
    process = started(monkeypatch, tmp_path, script)
    lease = lease_of(1, DataRange(0, 1), Blob(b"p" * 32, 1))

    def trained_twice() -> None:
        for _ in range(2):  # the nonsense may be read together with what came before it
            assert finished(process.train(lease, ignore, never, lambda _: None)) is None

    with pytest.raises(ProgramStopped, match="the process that runs programs said b"):
        trained_twice()
    process.close()


def test_a_push_whose_states_are_kept_is_made_before_the_next_lease() -> None:
    """The last state that an audit may ask for is that after the push."""
    kept: list[tuple[Blob, ...]] = []
    before, after, pushed = (Blob(bytes([number]) * 32, number) for number in (1, 2, 3))
    trainer = InnerTrainer(
        cast(Any, SimpleNamespace(begin_push=lambda _: SimpleNamespace(run=dict), end_push=lambda *_: {})),
        cast(
            Any,
            SimpleNamespace(shelf=SimpleNamespace(put_push=lambda _: pushed, put_inner=lambda _: after)),
        ),
        cast(Any, None),
        cast(Any, SimpleNamespace(keep=kept.append)),
        2,
        Inbox(),
        ready=cast(Any, None),
    )
    trainer.inbox.follow(1)
    work = Work(lease_of(1, DataRange(0, 1), before), never, lambda: 0.0)
    trained = Trained(NOT_MADE, 1, (1.0,), 0.0, 0.0, states=(before,))
    made = trainer._push(work, trained, ignore)
    assert made is not None
    assert (made.payload, made.states) == (pushed, (before, after))
    assert kept == [(before, after)]
