"""The Shepherd's host under audit: states are looked at when they come, results are compared as numbers."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed.shepherd.scripted import Run, Worker

from pcp.distributed.algorithms import StreamingDiLoCo
from pcp.distributed.coordinator.effects import CompareStates
from pcp.distributed.messages import AskStates, Assign, Blob, Goodbye, Outcome, States, Update, UpdateReply
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, store_arrays
from pcp.distributed.round_arithmetic.inner_state import store_inner
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.shepherd.state_checks import StateChecks
from pcp.distributed.wire import BlobMissing, BlobStore
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe

ALGORITHM = StreamingDiLoCo(4, 2, 1, 0.5, upload="int4")


def test_a_worker_whose_states_are_none_is_kept_out(tmp_path: Path) -> None:
    run = Run(tmp_path, audit_rate=1.0)
    shepherd = run.shepherd()

    async def script(worker: Worker) -> None:
        async with await run.connected("bob"):  # who could repeat what ada trains
            await train(worker)

    async def train(worker: Worker) -> None:
        lease = await worker.lease()
        states = [store_arrays(worker.store, {"state": np.full(3, place, np.float32)}) for place in range(4)]
        push = store_arrays(worker.store, run.delta())
        await asyncio.to_thread(worker.bulk.push, push, worker.store)
        update = Update(
            lease.lease_id, worker.generation, 0, push, 3, 3 * run.recipe.tokens_per_step, (2.0,) * 3, 0.1,
            tuple(blob.digest for blob in states),
        )  # fmt: skip
        worker.connection.post(update)
        told = [await worker.next(AskStates, UpdateReply) for _ in range(2)]
        [asked] = [each for each in told if isinstance(each, AskStates)]
        assert UpdateReply(lease.lease_id, Outcome.ADMITTED, "") in told
        shown = [blob for digest in asked.digests for blob in states if blob.digest == digest]
        worker.connection.post(States(asked.audit, tuple(shown)))
        for blob in shown:
            await asyncio.to_thread(worker.bulk.push, blob, worker.store)
        goodbye = await worker.next(Goodbye)
        assert "barred: the state that it shows is unusable" in goodbye.reason
        assert "has other arrays than expected" in goodbye.reason
        shepherd.stop()

    assert not run.drive(script, shepherd)
    [verdict] = [record for record in run.records if record.get("event") == "audit"]
    assert verdict["verdict"] == "guilty"


def test_who_is_alone_is_not_audited(tmp_path: Path) -> None:
    run = Run(tmp_path, audit_rate=1.0)
    shepherd = run.shepherd()

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        push = store_arrays(worker.store, run.delta())
        await asyncio.to_thread(worker.bulk.push, push, worker.store)
        update = Update(
            lease.lease_id, worker.generation, 0, push, 3, 3 * run.recipe.tokens_per_step, (2.0,) * 3, 0.1,
            tuple(bytes([place]) * 32 for place in range(4)),
        )  # fmt: skip
        worker.connection.post(update)
        assert await worker.next(UpdateReply) == UpdateReply(lease.lease_id, Outcome.ADMITTED, "")
        assert isinstance(await worker.next(AskStates, Assign), Assign)
        shepherd.stop()

    assert not run.drive(script, shepherd)


class Checked:
    """A Shepherd's arithmetic, and the inner state of a worker that has only begun."""

    def __init__(self, recipe: Recipe, store: BlobStore) -> None:
        self.store = store
        merger = Merger(recipe, ALGORITHM, store)
        merger.compile()
        self.checks = StateChecks(recipe, ALGORITHM, store, merger)
        programs = worker_programs(inner_step(recipe, ALGORITHM), recipe.parameters, ALGORITHM)
        self.replica = Replica({name: plan(program) for name, program in programs.items()})
        self.replica.fresh(merger.partition.vectors(recipe.parameters), 0)
        self.replica.begin(0)
        self.state = store_inner(store, self.replica)
        self.payloads = [self.push(recipe, seed) for seed in range(2)]

    def push(self, recipe: Recipe, seed: int) -> Blob:
        """A push after a step on some batch."""
        self.replica.step(recipe.batches.batch(seed))
        payload = store_arrays(self.store, self.replica.push(0))
        self.replica.settle(0, Outcome.ADMITTED)
        return payload

    def moved(self, scale: float) -> Blob:
        """The first state, with its moments and parameters scaled."""
        inner: Any = map_tree(np.asarray, self.checks._load(self.state))
        inner["anchors"] = map_tree(lambda leaf: (leaf * scale).astype(leaf.dtype), inner["anchors"])
        return store_arrays(self.store, inner)


@pytest.fixture(scope="module")
def checked(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return Checked(recipe, BlobStore(tmp_path_factory.mktemp("blobs")))


def test_the_distance_is_that_of_the_array_that_differs_most(checked: Checked) -> None:
    checked.checks.check(checked.state)
    near, far = checked.moved(1.001), checked.moved(3.0)
    assert checked.checks.distance(CompareStates(1, (checked.state, checked.state), 0, None)) == 0
    assert np.isclose(
        checked.checks.distance(CompareStates(1, (checked.state, near), 0, None)), 0.001 / 1.001, rtol=1e-3
    )
    assert np.isclose(checked.checks.distance(CompareStates(1, (checked.state, far), 0, None)), 2 / 3)


@pytest.mark.parametrize("time", range(1, 6))
def test_a_state_that_is_deleted_while_it_is_looked_at_is_missing(
    checked: Checked, time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a worker which is kept out meanwhile: anything else would end the Shepherd."""
    state, times, where = checked.moved(1 + time / 10), itertools.count(1), checked.store.path

    def path(digest: bytes) -> Path:
        found = where(digest)
        if next(times) == time:
            found.unlink()
        return found

    monkeypatch.setattr(checked.store, "path", path)
    with pytest.raises(BlobMissing, match=f"blob {state.digest.hex()[:16]} of {state.size} bytes is not in"):
        checked.checks.check(state)


def test_pushes_are_compared_decoded(checked: Checked) -> None:
    one, other = checked.payloads
    assert checked.checks.distance(CompareStates(1, None, 0, (one, one))) == 0
    assert checked.checks.distance(CompareStates(1, None, 0, (one, other))) > 0.1


def test_a_state_fits_into_what_a_worker_may_upload(checked: Checked) -> None:
    assert checked.state.size < checked.checks.largest_bytes


def test_a_push_is_no_state(checked: Checked) -> None:
    with pytest.raises(ArraysRefused, match="has other arrays than expected"):
        checked.checks.check(checked.payloads[0])
