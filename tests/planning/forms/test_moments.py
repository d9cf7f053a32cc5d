"""Moments of an optimizer that a path keeps in bfloat16: the bits of the optimizer that does, the honest error, the search."""

import re
from pathlib import Path as FilePath
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.planning.fake_bench import use

import pcp
from pcp.backends import Target
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.optimizers import adamw, stored
from pcp.planning.arguments import ArgumentDTypeMismatch
from pcp.planning.binding import InvalidNarrows
from pcp.planning.forms.search import OFFERS
from pcp.planning.judging import comparison
from pcp.planning.judging.comparison import Comparison, same_bits
from pcp.planning.judging.judge import Judge
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.trial import tried
from pcp.planning.paths.kinds.stored import narrow_state, retyped
from pcp.planning.paths.path import Path
from pcp.rewrite.stored import NotStored, is_moment, with_narrow_state

pytestmark = pytest.mark.cpu
RNG = np.random.default_rng()
SIDE, ROWS = 96, 16
PARAMETERS = {
    name: RNG.normal(0.0, 0.1, (SIDE, SIDE)).astype("f") for name in ("first", "last")
}  # moments of 9,216 numbers
BATCH = [pcp.spec((ROWS, SIDE), "f32")] * 2


def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
    return pcp.mean((pcp.tanh(x @ p["first"]) @ p["last"] - y) ** 2)


STEP = pcp.training_step(loss, adamw(1e-2), PARAMETERS, *BATCH)
PLACES = [place for place, entry in enumerate(STEP.arguments) if is_moment(entry)]
NARROW = with_narrow_state(STEP, PLACES)
PATH = Path.of(STEP, forms=tuple(map(narrow_state, PLACES)))


def batch() -> tuple[Any, Any]:
    x, y = RNG.normal(size=(2, ROWS, SIDE)).astype("f")
    return x, y


@pytest.fixture(scope="module")
def plan() -> pcp.Plan:
    return pcp.plan(STEP, "cpu:0", path=PATH)


def test_a_step_has_the_bits_of_an_optimizer_that_keeps_its_moments_so() -> None:
    assert [STEP.arguments[place].name for place in PLACES] == [
        f"state.optimizer.{moment}.{name}" for moment in ("first", "second") for name in PARAMETERS
    ]
    theirs = pcp.training_step(loss, stored(adamw(1e-2), "bf16"), PARAMETERS, *BATCH)
    plans, states = [pcp.plan(NARROW), pcp.plan(theirs)], [theirs.initial_state(PARAMETERS) for _ in range(2)]
    for _ in range(3):
        given = batch()
        states = [plan.run(state, given)[0] for plan, state in zip(plans, states, strict=True)]
    leaves = [[np.asarray(leaf) for leaf in flatten(state)[0]] for state in states]
    assert all(map(same_bits, *leaves))
    assert np.asarray(states[0]["optimizer"]["first"]["first"]).dtype == ml_dtypes.bfloat16


def test_a_plan_says_what_it_takes_and_takes_float32_too(plan: pcp.Plan) -> None:
    kept = [str(entry.spec.dtype) for entry in plan.inputs]
    assert [place for place, dtype in enumerate(kept) if dtype == "bf16"] == PLACES
    assert [str(entry.spec.dtype) for entry in plan.outputs].count("bf16") == len(PLACES)
    assert "stored      4 moments from step to step in bfloat16, rounded by chance" in str(plan)
    plain = pcp.plan(STEP).memory["cpu:0"].arguments
    assert plan.memory["cpu:0"].arguments == plain - 2 * SIDE * SIDE * len(PLACES)
    state = STEP.initial_state(PARAMETERS)
    wide = {**state["optimizer"], "first": {name: np.zeros((SIDE, SIDE)) for name in PARAMETERS}}
    with pytest.raises(
        ArgumentDTypeMismatch, match=r"has element type float64; the plan expects bf16\[96,96\]"
    ):
        plan.run({**state, "optimizer": wide}, batch())
    with pytest.raises(ArgumentDTypeMismatch, match=r"state.params.first .*; the plan expects f32"):
        plan.run(
            {**state, "params": {n: p.astype(ml_dtypes.bfloat16) for n, p in PARAMETERS.items()}}, batch()
        )


def called(program: Program, arrays: list[Any]) -> list[Any]:
    entries = zip(arrays, program.arguments, strict=True)
    own = [np.array(array).astype(entry.spec.dtype.numpy) for array, entry in entries]
    results = pcp.plan(program).run(*program.argument_tree.unflatten(own))
    return [np.asarray(each) for each in flatten(results)[0]]


@pytest.mark.parametrize("on_device", [False, True])
def test_the_error_is_that_of_the_gradient_without_the_rounding_that_is_meant(
    on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "SMALL", 1)
    state, plain = STEP.initial_state(PARAMETERS), pcp.plan(STEP)
    for _ in range(3):
        state = {**plain.run(state, batch())[0], "params": {n: p.copy() for n, p in PARAMETERS.items()}}
    flat = [np.array(each) for each in STEP.flatten_arguments(state, batch())]
    exact, narrow = called(widened(STEP), flat), called(NARROW, flat)
    judge = Judge(STEP, flat, exact, called(STEP, flat), Comparison(Target.of("cpu:0"), on_device), 1e-2)
    errors = {each.name: each for each in judge.errors(narrow)}
    assert max(each.least_tolerance for each in errors.values()) < 8e-3
    assert max(errors[f"0.optimizer.first.{name}"].error for name in PARAMETERS) < 2e-3
    assert errors["0.optimizer.second.last"].error > 1e-3  # by its value, all rounding counts
    place = STEP.arguments[PLACES[0]].alias or 0
    new = exact[place] - 0.9 * flat[PLACES[0]]
    wrong = {
        "as it was": (flat[PLACES[0]], 1.0),
        "the gradient wrong": (exact[place] + 0.05 * new * RNG.choice((-1, 1), new.shape), 0.05),
        "nothing": (0.0 * new, 2.0),
    }
    for what, (result, error) in wrong.items():
        others = [*narrow]
        others[place] = result.astype(ml_dtypes.bfloat16)
        assert judge.errors(others)[place].error == pytest.approx(error, rel=0.1, abs=3e-3) or error == 2.0, (
            what
        )
        assert judge.errors(others)[place].error > error / 2


def test_a_candidate_that_takes_other_types_is_tried_beside_the_plain_program(tmp_path: FilePath) -> None:
    types = retyped((), PATH.moves)
    request = Request(
        STEP, PATH.applied(STEP), PATH.digest, widened(STEP), Recipe(sets=1, warm_calls=2), tolerance=1e-2,
        judged_at=1e-2, calls=2, timing_seconds=1e-3, options=(), retyped=types,
    )  # fmt: skip
    row = tried(Subject(request, tmp_path), request, lambda _: None)
    assert (row.failure, row.error is not None and 1e-4 < row.error < 1e-2) == (None, True)
    assert row.seconds
    other = Request(STEP, NARROW, "", inputs=Recipe(sets=1), timing_seconds=0.0, options=())
    assert tried(Subject(other, tmp_path), other, lambda _: None).failure is Failure.wrong_dtype
    assert {str(dtype) for dtype in types.values()} == {"bf16"}
    assert {str(dtype) for dtype in retyped(PATH.moves, ()).values()} == {"f32"}


class Bench:
    """A step takes as long as its moments are wide, and those are too wrong of which it is told."""

    def __init__(self, wrong: str = "nothing", gain: float = 0.1) -> None:
        self.wrong, self.gain, self.paths = wrong, gain, list[str]()

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        assert isinstance(request.candidate, Program)
        self.paths.append(request.path)
        names = [request.subject.results[place].name for place in range(len(request.subject.results))]
        narrow = [request.subject.arguments[place].alias or 0 for place in request.retyped]
        missed = tuple((names[place], 0.5) for place in narrow if self.wrong in names[place])
        calls = () if missed else (1.0, 1.004, 0.997, 1.002, 0.999)
        mine = tuple((1.0 - self.gain * len(narrow)) * each for each in calls)
        peak = sum(entry.spec.bytes for entry in request.candidate.arguments)
        return Measurement(
            request.subject.digest, request.path, hardware_of(Target.of()).digest, versions(), mine, calls,
            0.5 if missed else 1e-4, 1e-7, peak, Failure.inaccurate if missed else None, when=1.0,
            judgement=Judgement("0", missed=missed),
        )  # fmt: skip


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> Any:
    """Plans without kernels, and without other forms."""
    monkeypatch.setattr("pcp.kernels.sites.family_of", lambda _: None)
    monkeypatch.setattr("pcp.kernels.sites.groups_in", lambda _: [])
    monkeypatch.delitem(OFFERS, "equal")
    monkeypatch.setattr("pcp.planning.chosen.difference_here", lambda *_: None)

    def plan(bench: Bench, **options: Any) -> pcp.Plan:
        use(bench, monkeypatch)  # type: ignore[arg-type]  # it measures, too
        return pcp.plan(STEP, tolerance=1e-2, database=tmp_path / "profile.sqlite", **options)

    return plan


def narrowed(plan: pcp.Plan) -> list[int]:
    return [place for place, entry in enumerate(plan.inputs) if str(entry.spec.dtype) == "bf16"]


def test_a_search_narrows_what_it_may(planned: Any) -> None:
    assert narrowed(planned(Bench())) == []
    assert narrowed(planned(Bench(), narrows=("state.optimizer",))) == PLACES
    assert narrowed(planned(Bench(), narrows=["state.optimizer.first.last"])) == PLACES[1:2]
    assert narrowed(planned(Bench())) == []  # though the database knows better


def test_moments_that_are_too_wrong_so_stay_wide(planned: Any) -> None:
    assert narrowed(planned(bench := Bench("second"), narrows=("state",))) == PLACES[:2]
    assert len(bench.paths) >= 2
    assert narrowed(planned(Bench("first.last"), narrows=("state.optimizer.first.last",))) == []


@pytest.mark.parametrize("gain", [0.1, -0.02])
def test_where_memory_is_short_moments_are_narrower(planned: Any, gain: float) -> None:
    memory = pcp.plan(STEP).memory["cpu:0"].peak
    limit = memory - SIDE * SIDE * len(PLACES)
    plan = planned(Bench(gain=gain), narrows=("state.optimizer",), memory=limit)
    assert narrowed(plan) == PLACES
    assert plan.memory["cpu:0"].peak <= limit


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("state", r"narrows is 'state'; expected a tuple of names of state, as \('state.optimizer',\)"),
        (
            ("state.params",),
            r"narrows names 'state.params', in which no optimizer keeps moments of 4096 numbers",
        ),
        (
            ("state.optim",),
            r"the program has state.optimizer.first, state.optimizer.second: give names of these",
        ),
    ],
)
def test_names_that_are_none(names: Any, message: str) -> None:
    with pytest.raises(InvalidNarrows, match=message):
        pcp.plan(STEP, narrows=names)


@pytest.mark.parametrize("place", [0, 5, 99])
def test_what_is_no_moment(place: int) -> None:
    message = rf"argument {place}.* is kept in bfloat16, and is no moment of 4096 numbers of float32 or more: plan again"
    with pytest.raises(NotStored, match=message):
        with_narrow_state(STEP, [place])
    assert re.search("state.params", STEP.arguments[5].name)
