"""Leases on stored fragments: plain steps, adoptions at their step, pushes that are settled; programs that are refused."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms import NoLoCo, StreamingDiLoCo
from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.gossip.offers import load_offer
from pcp.distributed.job import Job
from pcp.distributed.messages import Adoption, Blob, DataRange, Lease, Outcome
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector, store_vector
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.runtime import finished
from pcp.distributed.verification import ProgramRefused, _read
from pcp.distributed.wire import BlobMissing, BlobStore, DigestMismatch
from pcp.distributed.worker.effects import Adopt, Shorten
from pcp.distributed.worker.training import plans as plans_module
from pcp.distributed.worker.training.trainer import (
    InnerTrainer,
    LeaseAborted,
    LeaseRefused,
    Trained,
    make_trainer,
)
from pcp.ir import Program
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.planning import plan
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.run_data import DataKind
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.data.samples import SampleBatches, Samples, SamplesCorrupt
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.recipes.recipe import Recipe
from pcp.training.step import training_step
from tests.distributed.tiny_run import lease_of, store_job

STREAMING = StreamingDiLoCo(4, 2, 1, 0.5, upload="int4", download="int8")


def never() -> bool:
    return False


def ignore(_steps: int, _seconds: float) -> None:
    """Take progress and do nothing with it."""


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("blobs"))


@pytest.fixture(scope="module")
def trainer(recipe: Recipe, shared_store: BlobStore) -> InnerTrainer:
    """A trainer of one fragment. Its moments are those of the tests before, so a test compares with its own beginning."""
    return make_trainer(store_job(recipe, shared_store), shared_store, "cpu:0")


@pytest.fixture(scope="module")
def streaming(recipe: Recipe, shared_store: BlobStore) -> InnerTrainer:
    """A trainer of two fragments with codecs both ways."""
    return trusting(store_job(recipe, shared_store, STREAMING), shared_store)


def trusting(job: Job, store: BlobStore) -> InnerTrainer:
    """A trainer that does not verify in a child process; the one of the first fixture does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plans_module,
            "admit",
            lambda artifacts, *others: {
                name: _read(each, others[-1].get(name)) for name, each in artifacts.items()
            },
        )
        return make_trainer(job, store, "cpu:0")


@pytest.fixture(scope="module")
def steps(recipe: Recipe) -> OuterSteps:
    return OuterSteps(recipe, STREAMING, "cpu:0")


def vector_of(recipe: Recipe, parameters: Any = None) -> Any:
    given = recipe.parameters if parameters is None else parameters
    return partition(recipe.parameters, 1).vectors(given)[0]


def hand_over(trainer: InnerTrainer, lease: Lease) -> None:
    """Say that everything that a lease adopts is in the store."""
    for each in lease.adopt:
        blob = each.change or each.parameters
        assert blob is not None
        trainer.inbox.adopt(
            Adopt(lease.lease_id, each.fragment, each.version, each.step, blob, bool(each.change))
        )


def train(
    trainer: InnerTrainer,
    lease: Lease,
    progress: Callable[[int, float], None] = ignore,
    aborted: Callable[[], bool] = never,
) -> Trained:
    hand_over(trainer, lease)
    done = finished(trainer.train(lease, progress, aborted))
    assert done is not None
    trainer.inbox.settle(lease.lease_id, Outcome.ADMITTED)
    return done


def state_of(trainer: InnerTrainer) -> Any:
    return map_tree(np.asarray, trainer._replica.state)


def plain_steps(recipe: Recipe, state: Any, batches: range) -> tuple[Any, list[float]]:
    step = plan(recipe.step)
    losses = []
    for index in batches:
        state, metrics = step.run(map_tree(np.asarray, state), recipe.batches.batch(index))
        losses.append(float(metrics["loss"]))
    return map_tree(np.asarray, state), losses


def test_leases_are_plain_steps(recipe: Recipe, shared_store: BlobStore, trainer: InnerTrainer) -> None:
    """Two leases: the second adopts other parameters and has a later step number, but the moments of the first."""
    began = vector_of(recipe)
    first = train(trainer, lease_of(1, DataRange(4, 3), store_vector(shared_store, began)))
    state, losses = plain_steps(recipe, recipe.step.initial_state(recipe.parameters), range(4, 7))
    pushed = load_vector(shared_store, first.payload, began.size)
    np.testing.assert_array_equal(pushed, began - vector_of(recipe, state["params"]))
    assert (first.tokens, first.losses) == (3 * 2 * 8, tuple(losses))
    assert 0 < first.overhead_seconds < first.seconds

    anchor = map_tree(lambda p: (p * np.float32(0.9)).astype(np.float32), state["params"])
    lease = lease_of(2, DataRange(20, 2), store_vector(shared_store, vector_of(recipe, anchor)), 9)
    second = train(trainer, replace(lease, fresh=False))
    state, losses = plain_steps(recipe, state | {"params": anchor, "step": np.int32(9)}, range(20, 22))
    pushed = load_vector(shared_store, second.payload, began.size)
    np.testing.assert_array_equal(pushed, vector_of(recipe, anchor) - vector_of(recipe, state["params"]))
    assert second.losses == tuple(losses)


def test_a_step_that_travels_as_a_symbolic_program_trains_alike(
    recipe: DecoderRecipe, shared_store: BlobStore
) -> None:
    model, ids = recipe.model, spec(("batch", recipe.model.context), "i32")
    loss = trace(lambda *of: decoder.loss(*of, model), specs_of(recipe.parameters), ids, ids)
    step = training_step(loss, recipe.optimizer, clip_norm=recipe.config.clip_norm or None)
    job = store_job(recipe, shared_store, step=step.artifact())
    with pytest.raises(ProgramRefused, match="it is a symbolic program of batch"):
        trusting(job, shared_store)
    symbolic = trusting(replace(job, sizes={"step": {"batch": recipe.config.batch}}), shared_store)
    lease = lease_of(1, DataRange(4, 3), store_vector(shared_store, vector_of(recipe)))
    _, losses = plain_steps(recipe, recipe.step.initial_state(recipe.parameters), range(4, 7))
    assert train(symbolic, lease).losses == pytest.approx(losses, rel=1e-6)


def test_progress_is_told_after_every_step(
    recipe: Recipe, shared_store: BlobStore, trainer: InnerTrainer
) -> None:
    told: list[tuple[int, float]] = []
    lease = lease_of(1, DataRange(0, 4), store_vector(shared_store, vector_of(recipe)))
    train(trainer, lease, lambda steps, seconds: told.append((steps, seconds)))
    assert [steps for steps, _ in told] == [1, 2, 3]
    assert all(seconds > 0 for _, seconds in told)


def test_after_an_abort_in_the_middle_a_fresh_lease_has_the_moments(
    recipe: Recipe, shared_store: BlobStore, trainer: InnerTrainer
) -> None:
    parameters = store_vector(shared_store, vector_of(recipe))
    train(trainer, lease_of(1, DataRange(0, 1), parameters))
    before = state_of(trainer)
    asked = iter([False, False, True])
    with pytest.raises(LeaseAborted):
        train(trainer, lease_of(2, DataRange(1, 5), parameters), aborted=lambda: next(asked))
    done = train(trainer, lease_of(3, DataRange(7, 2), parameters, first_step=2))
    begun = before | {"params": recipe.parameters, "step": np.int32(0)}
    state, _ = plain_steps(recipe, begun, range(1, 3))
    state, losses = plain_steps(recipe, state | {"params": recipe.parameters}, range(7, 9))
    assert done.losses == tuple(losses)


def test_a_push_without_steps_says_what_is_left(
    recipe: Recipe, shared_store: BlobStore, trainer: InnerTrainer
) -> None:
    """What a worker pushed and the round closed without is in its next push, also in one of no batches."""
    parameters = store_vector(shared_store, vector_of(recipe))
    lease = lease_of(1, DataRange(3, 2), parameters)
    hand_over(trainer, lease)
    late = finished(trainer.train(lease, ignore, never))
    assert late is not None
    trainer.inbox.settle(1, Outcome.CARRIED)
    empty = replace(lease_of(2, DataRange(0, 0), parameters), fresh=False, adopt=())
    again = train(trainer, empty)
    assert (again.payload, again.losses, again.tokens) == (late.payload, (), 0)
    assert not load_vector(
        shared_store, train(trainer, replace(empty, lease_id=3)).payload, vector_of(recipe).size
    ).any()


class Stream:
    """Two fragments of the tiny model, stored, and what they become."""

    def __init__(self, recipe: Recipe, store: BlobStore, steps: OuterSteps) -> None:
        self.vectors = partition(recipe.parameters, 2).vectors(recipe.parameters)
        self.store, self.steps = store, steps
        self.lease = replace(
            lease_of(1, DataRange(0, 2), Blob(b"", 0)),
            adopt=tuple(
                Adoption(each, 0, 0, store_vector(store, vector), None)
                for each, vector in enumerate(self.vectors)
            ),
        )

    def merged(self, fragment: int, seed: int) -> tuple[Any, Any]:
        """The next version of a fragment, and the change that leads to it."""
        mean = np.random.default_rng(seed).normal(0, 1e-2, self.vectors[fragment].size).astype(np.float32)
        first = self.steps.first(fragment)[1]
        stepped = self.steps.take(fragment, self.vectors[fragment], first, mean, 0, 1.0)
        return np.asarray(stepped.shadow), store_arrays(self.store, stepped.change)


def test_a_change_that_comes_late_is_waited_for_at_its_step(
    recipe: Recipe, shared_store: BlobStore, streaming: InnerTrainer, steps: OuterSteps
) -> None:
    stream = Stream(recipe, shared_store, steps)
    train(streaming, stream.lease)
    before = state_of(streaming)
    version, change = stream.merged(0, 3)
    lease = replace(
        stream.lease,
        lease_id=2,
        data=DataRange(2, 2),
        first_step=2,
        fragment=1,
        fresh=False,
        adopt=(Adoption(0, 1, 1, None, None),),
    )
    stepped = threading.Event()
    losses: list[float] = []

    def run() -> None:
        done = finished(streaming.train(lease, lambda *_: None, waiting(stepped)))
        assert done is not None
        losses.extend(done.losses)

    running = threading.Thread(target=run)
    running.start()
    assert stepped.wait(30.0)
    streaming.inbox.adopt(Adopt(2, 0, 1, 1, change, True))
    running.join(30.0)
    streaming.inbox.settle(2, Outcome.ADMITTED)

    state, first = plain_steps(recipe, before, range(2, 3))
    parts = partition(recipe.parameters, 2)
    mine = parts.vectors(state["params"])
    mixed = np.float32(0.5) * mine[0] + np.float32(0.5) * version
    state, second = plain_steps(recipe, state | {"params": parts.parameters([mixed, mine[1]])}, range(3, 4))
    np.testing.assert_allclose(losses, first + second, rtol=1e-5)
    np.testing.assert_allclose(
        parts.vectors(state_of(streaming)["params"])[0], parts.vectors(state["params"])[0], atol=2e-6
    )


def waiting(asked: threading.Event) -> Callable[[], bool]:
    """Says that a trainer asks again and again whether to stop, as it does while it waits."""
    count = iter(range(10**6))

    def given_up() -> bool:
        if next(count) >= 1:
            asked.set()
        return False

    return given_up


def test_who_waits_can_be_stopped(
    recipe: Recipe, shared_store: BlobStore, streaming: InnerTrainer, steps: OuterSteps
) -> None:
    stream = Stream(recipe, shared_store, steps)
    lease = replace(stream.lease, adopt=(*stream.lease.adopt, Adoption(0, 1, 1, None, None)))
    hand_over(streaming, replace(lease, adopt=stream.lease.adopt))
    asked, stop = threading.Event(), threading.Event()
    inner = waiting(asked)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            finished(streaming.train(lease, ignore, lambda: inner() or stop.is_set()))
        except LeaseAborted as error:
            raised.append(error)

    running = threading.Thread(target=run)
    running.start()
    assert asked.wait(30.0)
    stop.set()
    streaming.inbox.wake()
    running.join(30.0)
    assert len(raised) == 1


def test_what_cannot_be_adopted_is_refused(
    recipe: Recipe, shared_store: BlobStore, streaming: InnerTrainer, trainer: InnerTrainer, steps: OuterSteps
) -> None:
    stream = Stream(recipe, shared_store, steps)
    _, change = stream.merged(0, 5)
    first, second = stream.lease.adopt
    changed = replace(stream.lease, adopt=(replace(first, change=change), second))
    with pytest.raises(LeaseRefused, match="a change of fragment 0 was sent; a beginning is whole"):
        train(streaming, changed)
    with pytest.raises(
        LeaseRefused, match=r"lease 1 begins afresh from fragments \[1\]; expected each of 2 once"
    ):
        train(streaming, replace(stream.lease, adopt=(second,)))
    with pytest.raises(LeaseRefused, match="lease 1 names fragment 2; the run has 2, from 0 on"):
        train(streaming, replace(stream.lease, fragment=2))
    swapped = (replace(first, parameters=second.parameters), replace(second, parameters=first.parameters))
    with pytest.raises(ArraysRefused, match="array 'values' of blob"):
        train(streaming, replace(stream.lease, adopt=swapped))
    other = store_arrays(shared_store, {"w": np.ones(3, np.float32)})
    with pytest.raises(ArraysRefused, match="other arrays than expected"):
        train(trainer, lease_of(1, DataRange(0, 1), other))
    broken = store_vector(shared_store, np.full_like(vector_of(recipe), np.inf))
    with pytest.raises(ArraysRefused, match=r"array 'values' .* holds infinities or NaN"):
        train(trainer, lease_of(1, DataRange(0, 1), broken))
    lease = replace(
        lease_of(2, DataRange(0, 1), broken), fresh=False, adopt=(Adoption(0, 1, 0, None, change),)
    )
    train(trainer, lease_of(1, DataRange(0, 1), store_vector(shared_store, vector_of(recipe))))
    with pytest.raises(ArraysRefused, match="a change of fragment 0 was sent, but no program that takes it"):
        train(trainer, lease)


def test_a_lease_that_fails_leaves_a_usable_trainer(
    trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore
) -> None:
    parameters = store_vector(shared_store, vector_of(recipe))

    def broken(_steps: int, _seconds: float) -> None:
        raise RuntimeError("something nobody foresaw")

    with pytest.raises(RuntimeError, match="nobody foresaw"):
        train(trainer, lease_of(2, DataRange(0, 3), parameters), broken)
    assert len(train(trainer, lease_of(3, DataRange(1, 2), parameters)).losses) == 2


@pytest.mark.parametrize(("count", "first"), [(-1, 0), (3, 2**31 - 2), (1, 2**40)])
def test_a_lease_of_no_possible_steps_is_refused(trainer: InnerTrainer, count: int, first: int) -> None:
    message = f"lease 8 asks for {count} steps from step {first} on; expected none or more, and none beyond 2147483647"
    with pytest.raises(LeaseRefused, match=message):
        train(trainer, lease_of(8, DataRange(0, count), Blob(b"", 0), first))


def test_a_program_that_is_missing_or_was_changed_is_not_run(recipe: Recipe, store: BlobStore) -> None:
    job = store_job(recipe, store)
    path = store.path(job.programs["step"].digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(DigestMismatch, match="was changed; remove it and fetch it again"):
        make_trainer(job, store, "cpu:0")
    with pytest.raises(BlobMissing, match="is not in"):
        make_trainer(replace(job, programs=job.programs | {"step": Blob(b"s" * 32, 5)}), store, "cpu:0")


def test_a_program_with_native_code_is_refused_before_anything_runs(recipe: Recipe, store: BlobStore) -> None:
    evil = Program.parse(
        "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {"
        "%0 = stablehlo.custom_call @evil(%a) : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } }"
    )
    with pytest.raises(ProgramRefused, match=r"'step' is refused: .*custom_call"):
        make_trainer(store_job(recipe, store, step=evil.artifact()), store, "cpu:0")


def on_samples(recipe: Recipe, store: BlobStore, path: Path, arrays: dict[str, Any]) -> Job:
    """The job with other data: samples in place of a text."""
    with path.open("wb") as file:
        write_arrays(file, arrays)
    data = store.put(path.read_bytes())
    return replace(store_job(recipe, store), data=data, kind=DataKind.samples, context=0, vocabulary=0)


def test_samples_that_are_windows_of_tokens_train_alike(
    recipe: Recipe, store: BlobStore, tmp_path: Path
) -> None:
    windows = np.random.default_rng(3).integers(0, 11, (40, 9)).astype(np.int32)
    job = on_samples(recipe, store, tmp_path / "s", {"0": windows[:, :-1].copy(), "1": windows[:, 1:].copy()})
    lease = lease_of(1, DataRange(30, 3), store_vector(store, vector_of(recipe)))
    done = train(trusting(job, store), lease)
    batches = SampleBatches(Samples.open(tmp_path / "s"), 2, 5)
    state, step, losses = recipe.step.initial_state(recipe.parameters), plan(recipe.step), []
    for index in range(30, 33):
        state, metrics = step.run(state, batches.batch(index))
        losses.append(float(metrics["loss"]))
    assert (done.losses, done.tokens) == (tuple(losses), 3 * 2)


def test_samples_that_the_step_does_not_take_are_refused(
    recipe: Recipe, store: BlobStore, tmp_path: Path
) -> None:
    ids = np.zeros((40, 8), np.int32)
    job = on_samples(recipe, store, tmp_path / "s", {"0": ids, "1": ids[:, :7].copy()})
    with pytest.raises(ProgramRefused, match="'step' does not take what the others hand on"):
        trusting(job, store)
    with pytest.raises(SamplesCorrupt, match="holds no samples"):
        make_trainer(on_samples(recipe, store, tmp_path / "s", {"x": ids}), store, "cpu:0")


def test_a_run_that_exchanges_brings_the_program_for_it(recipe: Recipe, store: BlobStore) -> None:
    job = replace(store_job(recipe, store), exchange_every=3)
    with pytest.raises(
        ProgramRefused, match=r"the workers of the run exchange, but the run lacks the program 'gossip\.0'"
    ):
        trusting(job, store)


def test_a_worker_exchanges_every_few_steps_and_pushes_its_weights(recipe: Recipe, store: BlobStore) -> None:
    job = replace(store_job(recipe, store, NoLoCo(2, 4)), exchange_every=2)
    trainer = trusting(job, store)
    parameters = store_vector(store, partition(recipe.parameters, 1).vectors(recipe.parameters)[0])
    trainer.inbox.adopt(Adopt(1, 0, 0, 0, parameters, False))
    offers: list[tuple[int, Blob]] = []

    def offered(number: int, offer: Blob | None, loss: float) -> None:
        if offer is None:
            trainer.inbox.met(Exchanged(number))
            return
        assert 0 < loss < 10
        offers.append((number, offer))
        trainer.inbox.met(Exchanged(number, "b", offer))  # as another that trained the same

    done = finished(trainer.train(lease_of(1, DataRange(0, 4), parameters), ignore, never, offered))
    assert done is not None
    assert [number for number, _ in offers] == [1, 2]
    size = partition(recipe.parameters, 1).size(0)
    (theta, slow), (last, second) = (load_offer(store, offer, size) for _, offer in offers)
    momentum = 0.7 * (theta - slow)
    np.testing.assert_allclose(second, slow + momentum, rtol=0, atol=1e-6)
    expected = second + 0.5 * momentum + 0.7 * (last - second)
    found = load_vector(store, done.payload, size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert done.waited_seconds >= 0


def test_a_worker_stops_at_the_exchange_after_it_heard_that_it_should(
    recipe: Recipe, store: BlobStore
) -> None:
    trainer = trusting(replace(store_job(recipe, store, NoLoCo(2, 4)), exchange_every=2), store)
    parameters = store_vector(store, partition(recipe.parameters, 1).vectors(recipe.parameters)[0])
    trainer.inbox.adopt(Adopt(1, 0, 0, 0, parameters, False))
    told: list[int] = []
    numbers: list[int] = []

    def offered(number: int, offer: Blob | None, _: float) -> None:
        if offer is not None:
            numbers.append(number)
        trainer.inbox.met(Exchanged(number))

    def progress(steps: int, _: float, batches: int = 0) -> None:
        if steps == 2:
            trainer.inbox.shorten(Shorten(1, 2, 8))
        if batches:
            told.append(batches)

    lease = replace(lease_of(1, DataRange(0, 4), parameters), further=(DataRange(7, 4),), last_step=8)
    done = finished(trainer.train(lease, progress, never, offered))
    assert done is not None
    assert (told, numbers, done.batches, len(done.losses)) == ([4], [1, 2], 4, 4)
    assert done.tokens == 4 * recipe.tokens_per_step
