"""Programs of a run that fit together, and every way in which they may not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.distributed.algorithms import DataParallel, StreamingDiLoCo
from pcp.distributed.compression import codec
from pcp.distributed.round_arithmetic.program_fit import check_fit
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.verification import ProgramRefused
from pcp.ir import Program
from pcp.training.data.run_data import Shape
from pcp.training.recipes.recipe import Recipe

STREAMING = StreamingDiLoCo(4, 2, 1, 0.5, upload="int4", download="int8")


def tokens_of(batch: int, context: int) -> list[Shape]:
    return [((batch, context), np.dtype(np.int32))] * 2


@pytest.fixture(scope="module")
def made(recipe: Recipe) -> dict[str, Program]:
    return worker_programs(inner_step(recipe, STREAMING), recipe.parameters, STREAMING)


def test_what_travels_is_read_from_the_programs(made: dict[str, Program]) -> None:
    fragments = check_fit(made, tokens_of(2, 8))
    assert len(fragments) == 2
    for each in fragments:
        [vector] = each.vector.specs
        expected = codec("int4").payload_specs(vector.size)
        assert dict(zip(each.payload.tree.keys, each.payload.specs, strict=True)) == expected
        assert each.change is not None
        assert set(each.change.tree.keys) == set(codec("int8").payload_specs(vector.size))


def test_data_parallel_programs_fit(recipe: Recipe) -> None:
    algorithm = DataParallel()
    programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
    [fragment] = check_fit(programs, tokens_of(2, 8))
    assert fragment.change is None
    assert "clear" in programs


def test_a_step_takes_the_arrays_that_the_run_holds_and_no_others() -> None:
    def loss(p: Any, held: Any, x: Any) -> Any:
        return ((x @ p["w"] + x @ held["m"]) ** 2).mean()

    arrays = {"w": np.ones((3, 2), np.float32)}
    x = pcp.spec((4, 3), "f32")
    program = pcp.trace(loss, arrays, pcp.specs_of({"m": arrays["w"]}), x)
    step = pcp.training_step(program, pcp.optimizers.adamw(1e-2), bound=True)
    programs = worker_programs(step, arrays, StreamingDiLoCo(1, 1, 0, 0.0))
    batch = [((4, 3), np.dtype(np.float32))]
    check_fit(programs, batch, {"m": ((3, 2), np.dtype(np.float32))})
    for held in ({"m": ((2, 3), np.dtype(np.float32))}, {"n": ((3, 2), np.dtype(np.float32))}, {}):
        with pytest.raises(ProgramRefused, match="does not take the arrays that the run holds for it"):
            check_fit(programs, batch, held)
    with pytest.raises(ProgramRefused, match="do not fit together: 'step' does not take"):
        check_fit(programs, batch)


def _without_loss(state: Any, batch: Any) -> Any:
    return state, {"cost": batch[0].sum()}


def _vector_loss(state: Any, batch: Any) -> Any:
    return state, {"loss": batch[0] * 1.0}


def _only_state(state: Any, batch: Any) -> Any:  # noqa: ARG001 - the signature of a step
    return state


def _bare_payload(own: Any, reference: Any, residual: Any) -> Any:
    return own, reference, residual


Programs = dict[str, Program]
Change = Callable[[Programs], Program | None]


def _on_state(function: Callable[..., Any], *more: Any) -> Change:
    def change(programs: Programs) -> Program:
        start = programs["start"]
        state = start.result_tree.unflatten([pcp.spec(e.spec.shape, e.spec.dtype) for e in start.results])
        return pcp.trace(function, state, *more)

    return change


TOKENS = (pcp.spec((2, 8), "i32"), pcp.spec((2, 8), "i32"))
SCALAR: Change = lambda _: pcp.trace(lambda value: value * 2, pcp.spec((), "f32"))  # noqa: E731 - a row of the table
VECTOR = pcp.spec((7,), "f32")
GONE: Change = lambda _: None  # noqa: E731 - a row of the table


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("restart", GONE, "the run lacks the program 'restart'"),
        ("put.1", GONE, "the run lacks the program 'put.1'"),
        ("push.0", GONE, "the run lacks the program 'push.0'"),
        ("flat.2", SCALAR, "the run has a program 'flat.2', but only 2 fragments"),
        ("start", SCALAR, "'start' does not take flat fragments and a step number"),
        ("start", lambda p: p["put.0"], "'start' does not take flat fragments and a step number"),
        ("restart", lambda p: p["start"], "'restart' does not take what the others hand on"),
        ("flat.0", lambda p: p["flat.1"], "'flat.0' does not return what the others hand on"),
        ("put.1", lambda p: p["put.0"], "'put.1' does not take what the others hand on"),
        ("mix.1", lambda p: p["flat.1"], "'mix.1' does not take what the others hand on"),
        ("push.0", lambda p: p["push.1"], "'push.0' does not take what the others hand on"),
        (
            "push.0",
            lambda _: pcp.trace(_bare_payload, VECTOR, VECTOR, VECTOR),
            "'push.0' does not return a payload and two vectors",
        ),
        ("push.0", lambda p: p["flat.0"], "'push.0' does not return a payload and two vectors"),
        ("receive.1", lambda p: p["receive.0"], "'receive.1' does not take what the others hand on"),
        ("receive.1", SCALAR, "'receive.1' does not take a vector and a change"),
        ("step", SCALAR, "'step' does not return a state and metrics with a loss"),
        ("step", lambda p: p["flat.0"], "'step' does not return a state and metrics with a loss"),
        ("step", _on_state(_only_state, TOKENS), "'step' does not return a state and metrics with a loss"),
        ("step", _on_state(_without_loss, TOKENS), "'step' does not return a state and metrics with a loss"),
        (
            "step",
            _on_state(_vector_loss, TOKENS),
            r"the loss that the program 'step' returns is f32\[2,8\]; expected a scalar",
        ),
    ],
)
def test_programs_that_do_not_fit_together_are_refused(
    made: Programs, name: str, change: Change, message: str
) -> None:
    programs = dict(made)
    changed = change(programs)
    if changed is None:
        del programs[name]
    else:
        programs[name] = changed
    with pytest.raises(ProgramRefused, match=message):
        check_fit(programs, tokens_of(2, 8))


def test_a_batch_of_another_size_does_not_fit(made: Programs) -> None:
    with pytest.raises(ProgramRefused, match="'step' does not take what the others hand on"):
        check_fit(made, tokens_of(3, 8))
