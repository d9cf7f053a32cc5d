"""What is judged of a training step: its loss, every gradient, every parameter's update."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.ir import InvalidProgram, Program
from pcp.optimizers import AdamW, Optimizer, adamw, nesterov
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.judging.tolerance import ResultError
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.subject import Subject
from pcp.planning.search.whole import Whole

CPU = Target.of("cpu:0")

RNG = np.random.default_rng(0)


def loss(w: Any, x: Any) -> Any:
    return ((x @ w["w"] + w["bias"]) ** 2).mean()


def made(optimizer: Optimizer) -> pcp.Program:
    params = {"w": np.ones((8, 4), np.float32), "bias": np.ones(4, np.float32)}
    return pcp.training_step(pcp.trace(loss, params, pcp.spec((16, 8), "f32")), optimizer)


STEP = made(adamw(1e-2))


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (
            adamw(1e-2, betas=(0.8, 0.99)),
            {"first.w": 0.8, "first.bias": 0.8, "second.w": 0.0, "second.bias": 0.0},
        ),
        (nesterov(1e-2, momentum=0.7), {"velocity.w": 0.7, "velocity.bias": 0.7}),
    ],
)
def test_an_optimizer_says_what_stays_of_its_state(
    optimizer: Optimizer, expected: dict[str, float], tmp_path: Path
) -> None:
    step = made(optimizer)
    step.save(tmp_path / "step.pcp")
    for program in (step, widened(step), pcp.load(tmp_path / "step.pcp")):
        found = {entry.name: entry.kept for entry in program.arguments if entry.kept != 1.0}
        assert found == {f"state.optimizer.{name}": factor for name, factor in expected.items()}


def test_a_factor_that_is_none() -> None:
    text = STEP.text.replace("pcp.kept = 9.000000e-01 : f64", 'pcp.kept = "most"', 1)
    with pytest.raises(InvalidProgram, match=r"is kept with the factor 'most'; expected a finite number"):
        _ = Program.parse(text).arguments


@dataclass
class Run:
    """A step's arguments after two steps, and its results, exact and plain."""

    program: Program
    arguments: list[Any]
    exact: list[Any]
    plain: list[Any]
    tolerance: float | None = None

    def errors(self, name: str, tampered: Any) -> dict[str, ResultError]:
        """All errors where one result is another one."""
        found = list(self.plain)
        index = [entry.name for entry in self.program.results].index(name)
        found[index] = tampered(found[index], self._before(index), self.exact[index])

        comparison = Comparison(Target.of())
        judge = Judge(self.program, self.arguments, self.exact, self.plain, comparison, self.tolerance)
        return {each.name: each for each in judge.errors(found)}

    def _before(self, index: int) -> Any:
        return next(
            a for e, a in zip(self.program.arguments, self.arguments, strict=True) if e.alias == index
        )


def run_of(program: Program) -> Run:
    def flat(of: Program, arrays: list[Any]) -> list[Any]:
        nested = pcp.plan(of, cache=False).run(*of.argument_tree.unflatten(arrays))
        return [np.asarray(leaf) for leaf in pcp.ir.tree.flatten(nested)[0]]

    arrays = random_arguments(program.arguments, Recipe(warm_calls=2), 0)
    for _ in range(2):
        results = flat(program, [np.array(a) for a in arrays])
        fresh = random_arguments(program.arguments, Recipe(warm_calls=2), 1)
        arrays = [
            fresh[i] if entry.alias is None else results[entry.alias]
            for i, entry in enumerate(program.arguments)
        ]
    exact = flat(widened(program), [np.array(a) for a in widened_arrays(program.arguments, arrays)])
    return Run(program, arrays, exact, flat(program, [np.array(a) for a in arrays]))


@pytest.fixture(scope="module")
def run() -> Run:
    return run_of(STEP)


def noise(like: Any, size: float) -> Any:
    return size * np.linalg.norm(like) / np.sqrt(like.size) * RNG.standard_normal(like.shape)


def test_the_plain_step_is_exact(run: Run) -> None:
    errors = run.errors("0.params.w", lambda y, before, exact: y)  # noqa: ARG005
    assert max(each.error for each in errors.values()) < 2e-5


def test_a_first_moment_is_as_wrong_as_its_gradient(run: Run) -> None:
    def tampered(y: Any, before: Any, exact: Any) -> Any:
        return y + noise(exact - 0.9 * before, 0.03)

    assert run.errors("0.optimizer.first.w", tampered)["0.optimizer.first.w"].error == pytest.approx(
        0.03, rel=0.3
    )


def test_an_update_does_not_hide_behind_its_parameter(run: Run) -> None:
    def tampered(y: Any, before: Any, exact: Any) -> Any:
        return y + noise(exact - before, 0.03)

    assert run.errors("0.params.w", tampered)["0.params.w"].error == pytest.approx(0.03, rel=0.3)


def test_a_second_moment_is_judged_by_its_value(run: Run) -> None:
    """An error of its change shows in the update; that the moment is none at all must show here."""

    def slightly(y: Any, before: Any, exact: Any) -> Any:
        return y + noise(exact - before, 0.03)

    assert run.errors("0.optimizer.second.w", slightly)["0.optimizer.second.w"].error < 0.02
    assert run.errors("0.optimizer.second.w", lambda y, *_: 0 * y)["0.optimizer.second.w"].error == 1.0


def test_a_program_from_outside_is_judged_by_changes(run: Run) -> None:
    plain = Run(
        run.program.describing_state({e.name: 1.0 for e in STEP.arguments}, {}),
        run.arguments,
        run.exact,
        run.plain,
    )

    def tampered(y: Any, before: Any, exact: Any) -> Any:
        return y + noise(exact - before, 0.03)

    for name in ("0.optimizer.second.w", "0.optimizer.first.w"):
        assert plain.errors(name, tampered)[name].error == pytest.approx(0.03, rel=0.3)


def test_measurements_of_what_is_judged_otherwise_are_kept_apart() -> None:
    outside = STEP.describing_state({entry.name: 1.0 for entry in STEP.arguments}, {})
    assert STEP.digest == outside.digest
    nobodys = STEP.describing_state(
        {entry.name: 1.0 for entry in STEP.arguments}, {entry.name: "" for entry in STEP.arguments}
    )
    subjects = {Whole(each, 1e-2, CPU).subject for each in (STEP, outside, nobodys)}
    assert len(subjects) == 3
    assert nobodys.digest in subjects
    assert Whole(STEP, 0.0, CPU).subject == Whole(outside, 0.0, CPU).subject
    # At which tolerance it is judged says which gradients are judged on the scale of their group.
    assert Whole(STEP, 1e-2, CPU).subject != Whole(STEP, 1e-3, CPU).subject
    assert Whole(STEP, 1e-2, CPU).subject == Whole(STEP, float("inf"), CPU).subject
    assert Whole(STEP, 1e-2, CPU).subject != Whole(STEP, 1e-2, CPU, ignored=(0,)).subject


@dataclass(frozen=True)
class Wrong(AdamW):
    """AdamW with one thing wrong by some percent."""

    what: str = ""

    def update(self, gradients: Any, state: Any, parameters: Any, step: Any) -> Any:
        updated, new, reported = super().update(gradients, state, parameters, step)
        if self.what == "gradient":
            return super().update(
                {name: 1.02 * gradient for name, gradient in gradients.items()}, state, parameters, step
            )
        if self.what == "update":
            updated = {name: 1.02 * p - 0.02 * parameters[name] for name, p in updated.items()}
        if self.what == "second moment":
            changed = {name: 1.005 * v - 0.005 * state["second"][name] for name, v in new["second"].items()}
            new = {**new, "second": changed}
        return updated, new, reported


def test_calls_that_warm_up_moments_leave_parameters_as_they_begin(tmp_path: Path) -> None:
    recipe = Recipe(sets=1, warm_calls=2)
    drawn = random_arguments(STEP.arguments, recipe, 0)
    [placed] = Subject(Request(STEP, STEP, "path", widened(STEP), recipe, tolerance=1e-2), tmp_path).inputs
    moved = {
        entry.name
        for entry, before, now in zip(STEP.arguments, drawn, placed, strict=True)
        if not np.array_equal(before, np.asarray(now))
    }
    state = {entry.name for entry in STEP.arguments if entry.alias is not None}
    assert moved >= {name for name in state if not name.startswith("state.params")}
    assert not {name for name in moved if name.startswith("state.params")}


def test_steps_with_a_wrong_gradient_or_update_are_refused() -> None:
    recipe, exact = Recipe(sets=1, warm_calls=2), widened(STEP)
    found = {}
    with Bench() as bench:
        for what in ("gradient", "update", "second moment"):
            candidate = made(Wrong(1e-2, what=what))
            request = Request(STEP, candidate, what, exact, recipe, tolerance=4e-3, timing_seconds=0.0)
            found[what] = bench.measure(request)
    assert found["gradient"].failure is Failure.inaccurate
    assert found["update"].failure is Failure.inaccurate
    assert found["update"].error == pytest.approx(0.02, rel=0.05)
    assert "0.params" in found["update"].detail
    # Wrong by 5e-3 of its change, which is more than the tolerance, while the update is right.
    assert found["second moment"].failure is None
