"""Plans of symbolic programs: one search in a bucket of sizes, its path at the other sizes, results as of static plans."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.backends.arena.backend import ArenaBackend
from pcp.ir import Program
from pcp.kernels import kernel_named, sites_of
from pcp.planning.by_size import InvalidBuckets, PathOfOneSize, SymbolicPlan
from pcp.planning.paths.preparation import prepared
from pcp.planning.plan import PlanConflict
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking
from pcp.symbolic import SizesRefused


def mlp(weights: Any, x: pcp.Tensor) -> pcp.Tensor:
    hidden = pcp.tanh(x @ weights["first"])
    return (hidden @ weights["second"]).mean(axis=0)


def weights_of(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "first": rng.normal(size=(64, 32)).astype(np.float32) / 8,
        "second": rng.normal(size=(32, 8)).astype(np.float32) / 5,
    }


@pytest.fixture
def program() -> Any:
    weights = {"first": pcp.spec((64, 32), "f32", "weight"), "second": pcp.spec((32, 8), "f32", "weight")}
    return pcp.trace(mlp, weights, pcp.spec(("batch", 64), "f32"))


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches that were searched at; each search finds bfloat16 for the first product."""
    found: list[int] = []

    def search(program: Program, tolerance: float, conditions: Any, *_: Any) -> Asking[tuple[Found, Target]]:
        found.append(program.arguments[-1].spec.shape[0])
        site = next(site for site in sites_of(prepared(program), "cpu") if site.family == "product")
        path = pcp.Path.of(
            program,
            {site.key: kernel_named("product.xla:bf16")},
            tolerance=tolerance,
            backend="arena",
        )
        return Found(path), conditions.target
        yield

    # `pcp.planning.plan` is the function, which hides the module of its name.
    monkeypatch.setattr(sys.modules["pcp.planning.plan"], "searched", search)
    return found


@pytest.fixture
def by_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena searches in buckets, as XLA does, which would compile."""
    monkeypatch.setattr(ArenaBackend, "chooses_once", False)


@pytest.mark.usefixtures("by_buckets")
def test_a_bucket_is_searched_once(program: Any, searched: list[int]) -> None:
    plan: Any = pcp.plan(program, "arena:cpu", tolerance=2e-2)
    assert isinstance(plan, SymbolicPlan)
    rng = np.random.default_rng()
    weights = weights_of(rng)
    for batch in (100, 128, 100, 129):
        x = rng.normal(size=(batch, 64)).astype(np.float32)
        exact = (np.tanh(x.astype(float) @ weights["first"]) @ weights["second"]).mean(axis=0)
        got = np.asarray(plan.run(weights, x))
        assert np.linalg.norm(got - exact) < 2e-2 * np.linalg.norm(exact)
        [choice] = plan.at(batch=batch).path.choices.values()
        assert choice.kernel == "product.xla:bf16"
    assert searched == [100, 129]
    assert plan.searches == 2
    assert "2 searches; compiled for (batch=128), (batch=100), (batch=129)" in str(plan)


@pytest.mark.usefixtures("by_buckets")
def test_where_the_path_misses_the_tolerance_there_is_another_search(
    program: Any, searched: list[int]
) -> None:
    plan: Any = pcp.plan(
        program, "arena:cpu", tolerance=1e-6
    )  # bfloat16 misses it; the made-up search does not look
    for batch in (100, 90, 80):
        plan.at(batch=batch)
    assert searched == [100, 90, 80]


@pytest.mark.parametrize("bounds", [["batch <= 2048"], []])
def test_the_arena_searches_once_for_all_sizes(program: Any, searched: list[int], bounds: list[str]) -> None:
    rng = np.random.default_rng()
    weights = weights_of(rng)
    specs = {name: pcp.spec(each.shape, "f32", "weight") for name, each in weights.items()}
    program = pcp.trace(mlp, specs, pcp.spec(("batch", 64), "f32"), constraints=bounds)
    plan: Any = pcp.plan(program, "arena:cpu", tolerance=2e-2)
    plan.at(batch=64)
    judged = plan.judgements
    for batch in (65, 66, 100, 700, 2048):
        x = rng.normal(size=(batch, 64)).astype(np.float32)
        here = plan.at(batch=batch)
        assert [choice.kernel for choice in here.path.choices.values()] == ["product.xla:bf16"]
        fresh = pcp.plan(program.at(batch=batch), "arena:cpu", path=here.path)
        np.testing.assert_array_equal(plan.run(weights, x), fresh.run(weights, x))
    assert searched == [64]
    assert (judged, plan.judgements) == (
        (1, 1) if bounds else (0, 3)
    )  # at 2048; or in (64, 128], (512, 1024], (1024, 2048]


def test_a_path_that_is_wrong_at_the_upper_end_is_that_of_a_bucket(searched: list[int]) -> None:
    specs = {"first": pcp.spec((64, 32), "f32", "weight"), "second": pcp.spec((32, 8), "f32", "weight")}
    bounded = pcp.trace(mlp, specs, pcp.spec(("batch", 64), "f32"), constraints=["batch <= 256"])
    plan: Any = pcp.plan(bounded, "arena:cpu", tolerance=1e-6)  # bfloat16 misses it
    for batch in (64, 65):
        plan.at(batch=batch)
    assert searched == [64, 65]


def test_results_that_are_ignored_do_not_start_another_search(program: Any, searched: list[int]) -> None:
    def two(weights: Any, x: pcp.Tensor) -> dict[str, pcp.Tensor]:
        return {"wrong": pcp.call(program, weights, x), "right": x * 2}

    specs = {"first": pcp.spec((64, 32), "f32", "weight"), "second": pcp.spec((32, 8), "f32", "weight")}
    plan: Any = pcp.plan(
        pcp.trace(two, specs, pcp.spec(("batch", 64), "f32")),
        "arena:cpu",
        tolerance=1e-6,
        judge={"wrong": "ignore"},
    )
    for batch in (100, 90, 80):
        plan.at(batch=batch)
    assert searched == [100]


def test_buckets_of_ones_own(program: Any, searched: list[int]) -> None:
    plan: Any = pcp.plan(program, "arena:cpu", tolerance=2e-2, buckets={"batch": [10, 1000]})
    for batch in (5, 10, 11, 1000, 1001):
        plan.at(batch=batch)
    assert searched == [5, 11, 1001]
    assert plan.bucket_of({"batch": 11}) == (1000,)


def test_without_a_tolerance_nothing_is_searched_and_weights_are_bound_once(
    program: Any, searched: list[int]
) -> None:
    rng = np.random.default_rng()
    weights = weights_of(rng)
    plan: Any = pcp.plan(program, "arena:cpu")
    bound = plan.bind(weights)
    for batch in (1, 7, 300):
        x = rng.normal(size=(batch, 64)).astype(np.float32)
        exact = (np.tanh(x.astype(float) @ weights["first"]) @ weights["second"]).mean(axis=0)
        np.testing.assert_allclose(bound.run(x), exact, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(bound(x), plan.run(weights, x))
    assert searched == []
    with pytest.raises(
        SizesRefused, match=r"argument x is f32\[batch,64\], whose size is a symbol, and was given to bind"
    ):
        bound.bind(x)


def test_a_training_step_whose_batch_changes() -> None:
    def loss(weights: Any, x: pcp.Tensor, y: pcp.Tensor) -> pcp.Tensor:
        return ((x @ weights - y) ** 2).mean()

    batch = pcp.spec(("batch", 3), "f32"), pcp.spec(("batch", 1), "f32")
    step: Any = pcp.training_step(
        pcp.trace(loss, pcp.spec((3, 1), "f32", "weight"), *batch), pcp.optimizers.adamw(5e-2)
    )
    plan: Any = pcp.plan(step, "arena:cpu")
    state = step.at(batch=2).initial_state(np.zeros((3, 1), np.float32))
    rng = np.random.default_rng()
    for number in range(200):
        x = rng.normal(size=(5 + number % 4, 3)).astype(np.float32)
        state, metrics = plan.run(state, (x, x.sum(axis=1, keepdims=True)))
    assert float(metrics["loss"]) < 1e-2
    np.testing.assert_allclose(state["params"], 1.0, atol=0.1)


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        (
            {"length": [8]},
            "buckets were given for 'length'; the symbols of the program are batch: expected one",
        ),
        ({"batch": [8, 4]}, r"the buckets of batch are \[8, 4\]; expected the largest size of each, growing"),
        ({"batch": []}, r"the buckets of batch are \[\]"),
        ({"batch": [1.5]}, r"the buckets of batch are \[1.5\]"),
    ],
)
def test_buckets_that_are_none(program: Any, buckets: Any, message: str) -> None:
    with pytest.raises(InvalidBuckets, match=message):
        pcp.plan(program, buckets=buckets)


def test_wishes_that_are_for_other_programs(program: Any) -> None:
    static = program.at(batch=3)
    with pytest.raises(
        PathOfOneSize,
        match="a path was given for a symbolic program; expected none, because",
    ):
        pcp.plan(program, path=pcp.Path.plain(static))
    with pytest.raises(PlanConflict, match="buckets of sizes were given for a program without symbols"):
        pcp.plan(static, buckets={"batch": [8]})


@pytest.mark.long
def test_a_path_that_was_really_searched_for_is_followed(program: Any, tmp_path: Path) -> None:
    plan: Any = pcp.plan(program, "cpu:0", tolerance=2e-2, budget=10, database=tmp_path / "profile.sqlite")
    rng = np.random.default_rng()
    weights = weights_of(rng)
    for batch in (2000, 1500, 1025):
        x = rng.normal(size=(batch, 64)).astype(np.float32)
        exact = (np.tanh(x.astype(float) @ weights["first"]) @ weights["second"]).mean(axis=0)
        assert np.linalg.norm(np.asarray(plan.run(weights, x)) - exact) < 2e-2 * np.linalg.norm(exact)
    assert plan.searches == 1
