"""What a Worker computes: leases against plain steps, aborts, and programs that do not fit together."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.distributed.array_blobs import ArraysRefused, load_arrays, store_arrays
from pcp.distributed.job import Job
from pcp.distributed.merger import layout
from pcp.distributed.messages import Blob, DataRange
from pcp.distributed.programs import worker_programs
from pcp.distributed.trainer import InnerTrainer, LeaseAborted, LeaseRefused, Trained, check_fit
from pcp.distributed.verification import ProgramRefused
from pcp.distributed.wire import BlobMissing, BlobStore, DigestMismatch
from pcp.ir import Program
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.data import DataKind, Shape
from pcp.training.recipe import Recipe
from pcp.training.safetensors_file import write_arrays
from pcp.training.samples import SampleBatches, Samples, SamplesCorrupt
from tests.distributed.tiny_run import assert_equal_arrays, lease_of, store_job


def never() -> bool:
    return False


def ignore(_steps: int, _seconds: float) -> None:
    """Take progress and do nothing with it."""


def tokens_of(batch: int, context: int) -> list[Shape]:
    return [((batch, context), np.dtype(np.int32))] * 2


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("blobs"))


@pytest.fixture
def trainer(recipe: Recipe, shared_store: BlobStore) -> InnerTrainer:
    return InnerTrainer(store_job(recipe, shared_store), shared_store, "cpu:0")


@pytest.fixture(scope="module")
def any_trainer(recipe: Recipe, shared_store: BlobStore) -> InnerTrainer:
    """A trainer for leases that never begin."""
    return InnerTrainer(store_job(recipe, shared_store), shared_store, "cpu:0")


def delta_of(store: BlobStore, recipe: Recipe, trained: Trained) -> Any:
    return load_arrays(store, trained.pseudo_gradient, *layout(recipe.parameters))


def plain_steps(recipe: Recipe, state: Any, batches: range) -> tuple[Any, list[float]]:
    step = plan(recipe.step)
    losses = []
    for index in batches:
        state, metrics = step.run(state, recipe.batches.batch(index))
        losses.append(float(metrics["loss"]))
    return map_tree(np.asarray, state), losses


def test_leases_are_plain_steps(trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore) -> None:
    """Two leases: the second begins with other parameters and a later step number, but with the moments of the first."""
    first = trainer.train(
        lease_of(1, DataRange(4, 3), store_arrays(shared_store, recipe.parameters)), ignore, never
    )
    state, losses = plain_steps(recipe, recipe.step.initial_state(recipe.parameters), range(4, 7))
    expected = map_tree(lambda a, b: a - b, recipe.parameters, state["params"])
    assert_equal_arrays(delta_of(shared_store, recipe, first), expected)
    assert (first.tokens, first.losses) == (3 * 2 * 8, tuple(losses))
    assert 0 < first.overhead_seconds < first.seconds

    anchor = map_tree(lambda p: (p * np.float32(0.9)).astype(np.float32), state["params"])
    second = trainer.train(
        lease_of(2, DataRange(20, 2), store_arrays(shared_store, anchor), first_step=9), ignore, never
    )
    state, losses = plain_steps(recipe, state | {"params": anchor, "step": np.int32(9)}, range(20, 22))
    assert_equal_arrays(
        delta_of(shared_store, recipe, second), map_tree(lambda a, b: a - b, anchor, state["params"])
    )
    assert second.losses == tuple(losses)


def test_progress_is_told_after_every_step(
    trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore
) -> None:
    told: list[tuple[int, float]] = []
    lease = lease_of(1, DataRange(0, 4), store_arrays(shared_store, recipe.parameters))
    trainer.train(lease, lambda steps, seconds: told.append((steps, seconds)), never)
    assert [steps for steps, _ in told] == [1, 2, 3]
    assert all(seconds > 0 for _, seconds in told)


def test_an_abort_in_the_middle_leaves_a_usable_trainer(
    trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore
) -> None:
    parameters = store_arrays(shared_store, recipe.parameters)
    asked = iter([False, False, True])
    with pytest.raises(LeaseAborted):
        trainer.train(lease_of(1, DataRange(0, 5), parameters), ignore, lambda: next(asked))
    done = trainer.train(lease_of(2, DataRange(7, 2), parameters, first_step=2), ignore, never)
    state, _ = plain_steps(recipe, recipe.step.initial_state(recipe.parameters), range(2))
    state, losses = plain_steps(recipe, state | {"params": recipe.parameters}, range(7, 9))
    assert done.losses == tuple(losses)


def test_a_lease_that_fails_leaves_a_usable_trainer(
    trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore
) -> None:
    parameters = store_arrays(shared_store, recipe.parameters)
    trainer.train(lease_of(1, DataRange(0, 1), parameters), ignore, never)

    def broken(_steps: int, _seconds: float) -> None:
        raise RuntimeError("something nobody foresaw")

    with pytest.raises(RuntimeError, match="nobody foresaw"):
        trainer.train(lease_of(2, DataRange(0, 3), parameters), broken, never)
    done = trainer.train(lease_of(3, DataRange(1, 2), parameters), ignore, never)
    # The state in the middle of the broken lease was donated, so the worker begins anew.
    _, losses = plain_steps(recipe, recipe.step.initial_state(recipe.parameters), range(1, 3))
    assert done.losses == tuple(losses)


@pytest.mark.parametrize(("count", "first"), [(0, 0), (3, 2**31 - 2), (1, 2**40)])
def test_a_lease_of_no_possible_steps_is_refused(
    any_trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore, count: int, first: int
) -> None:
    parameters = store_arrays(shared_store, recipe.parameters)
    message = f"lease 8 asks for {count} steps from step {first} on; expected at least one, and none beyond 2147483647"
    with pytest.raises(LeaseRefused, match=message):
        any_trainer.train(lease_of(8, DataRange(0, count), parameters, first), ignore, never)


def test_parameters_of_another_model_are_refused(any_trainer: InnerTrainer, shared_store: BlobStore) -> None:
    other = store_arrays(shared_store, {"w": np.ones(3, np.float32)})
    with pytest.raises(ArraysRefused, match="other arrays than expected"):
        any_trainer.train(lease_of(1, DataRange(0, 1), other), ignore, never)


def test_parameters_with_nan_are_refused(
    any_trainer: InnerTrainer, recipe: Recipe, shared_store: BlobStore
) -> None:
    broken = recipe.parameters | {"wpe": np.full_like(recipe.parameters["wpe"], np.inf)}
    with pytest.raises(ArraysRefused, match=r"array 'wpe' .* holds infinities or NaN"):
        any_trainer.train(lease_of(1, DataRange(0, 1), store_arrays(shared_store, broken)), ignore, never)


def test_a_program_that_is_missing_or_was_changed_is_not_run(recipe: Recipe, store: BlobStore) -> None:
    job = store_job(recipe, store)
    path = store.path(job.programs["step"].digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(DigestMismatch, match="was changed; remove it and fetch it again"):
        InnerTrainer(job, store, "cpu:0")
    with pytest.raises(BlobMissing, match="is not in"):
        InnerTrainer(replace(job, programs=job.programs | {"step": Blob(b"s" * 32, 5)}), store, "cpu:0")


def test_a_program_with_native_code_is_refused_before_anything_runs(recipe: Recipe, store: BlobStore) -> None:
    evil = Program.parse(
        "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {"
        "%0 = stablehlo.custom_call @evil(%a) : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } }"
    )
    with pytest.raises(ProgramRefused, match=r"'step' is refused: .*custom_call"):
        InnerTrainer(store_job(recipe, store, step=evil.artifact()), store, "cpu:0")


def scalar(value: pcp.Tensor) -> pcp.Tensor:
    return value * 2


def _without_loss(state: Any, batch: Any) -> Any:
    return state, {"cost": batch[0].sum()}


def _vector_loss(state: Any, batch: Any) -> Any:
    return state, {"loss": batch[0] * 1.0}


def _only_state(state: Any, batch: Any) -> Any:  # noqa: ARG001 - the signature of a step
    return state


Change = Callable[[Recipe, dict[str, Program]], Program]


def _traced(function: Callable[..., Any]) -> Change:
    def change(recipe: Recipe, programs: dict[str, Program]) -> Program:
        start = programs["start"]
        state = start.result_tree.unflatten([pcp.spec(e.spec.shape, e.spec.dtype) for e in start.results])
        tokens = pcp.spec((recipe.config.batch, recipe.model.context), "i32")
        return pcp.trace(function, state, (tokens, tokens))

    return change


SCALAR: Change = lambda _r, _p: pcp.trace(scalar, pcp.spec((), "f32"))  # noqa: E731 - a row of the table


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("start", SCALAR, "'start' does not take parameters and a step number"),
        ("start", lambda _r, p: p["delta"], "'start' does not take parameters and a step number"),
        ("adopt", SCALAR, "'adopt' does not take what the others hand on"),
        ("adopt", lambda _r, p: p["start"], "'adopt' does not take what the others hand on"),
        ("delta", lambda _r, p: p["adopt"], "'delta' does not take what the others hand on"),
        ("step", SCALAR, "'step' does not return a state and metrics with a loss"),
        ("step", lambda _r, p: p["delta"], "'step' does not return a state and metrics with a loss"),
        ("step", _traced(_only_state), "'step' does not return a state and metrics with a loss"),
        ("step", _traced(_without_loss), "'step' does not return a state and metrics with a loss"),
        (
            "step",
            _traced(_vector_loss),
            r"the loss that the program 'step' returns is f32\[2,8\]; expected a scalar",
        ),
    ],
)
def test_programs_that_do_not_fit_together_are_refused(
    recipe: Recipe, name: str, change: Change, message: str
) -> None:
    made = worker_programs(recipe.step, recipe.parameters)
    programs = {each: getattr(made, each) for each in ("start", "adopt", "step", "delta")}
    check_fit(programs, tokens_of(2, 8))
    programs[name] = change(recipe, programs)
    with pytest.raises(ProgramRefused, match=message):
        check_fit(programs, tokens_of(2, 8))


def test_a_batch_of_another_size_does_not_fit(recipe: Recipe) -> None:
    made = worker_programs(recipe.step, recipe.parameters)
    programs = {each: getattr(made, each) for each in ("start", "adopt", "step", "delta")}
    with pytest.raises(ProgramRefused, match="'step' does not take what the others hand on"):
        check_fit(programs, tokens_of(3, 8))


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
    lease = lease_of(1, DataRange(30, 3), store_arrays(store, recipe.parameters))
    done = InnerTrainer(job, store, "cpu:0").train(lease, ignore, never)
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
        InnerTrainer(job, store, "cpu:0")
    with pytest.raises(SamplesCorrupt, match="holds no samples"):
        InnerTrainer(on_samples(recipe, store, tmp_path / "s", {"x": ids}), store, "cpu:0")
