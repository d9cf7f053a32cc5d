"""What bound arguments alone decide is split off; what would only take more memory, or is free, stays where it is."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import Program, Role
from pcp.ir.operations import operations_of
from pcp.rewrite.binding import bind_stage
from pcp.rewrite.pieces import Segments
from pcp.tracing import trace


def stage_of(function: Callable[..., Any], *arguments: Any, bound: int = 1) -> Segments | None:
    return bind_stage(trace(function, *arguments), tuple(range(bound)))


def names(program: Program) -> Counter[str]:
    return Counter(op.name for op in operations_of(program))


W, X = pcp.spec((8, 8), "f32"), pcp.spec((2, 8), "f32")


def test_a_product_of_weights_is_split_off() -> None:
    stage = stage_of(lambda w, x: x @ (w["a"] @ w["b"]), {"a": W, "b": W}, X, bound=2)
    assert stage is not None
    first, rest = stage.sequence
    assert first.takes == (0, 1)
    assert rest.takes == (2, *first.makes) or rest.takes == (*first.makes, 2)
    assert names(first.program) == names(rest.program) == {"dot_general": 1}


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda w, x: x @ w, (W, X)),
        (lambda w, x: x @ w.T, (W, X)),
        (lambda w, x: x @ w.reshape(4, 16)[:, :8].reshape(8, 4), (W, X)),
        (lambda w, x: x @ w.astype("f32"), (pcp.spec((1024, 1024), "i8"), pcp.spec((2, 1024), "f32"))),
        (lambda w, x: (x @ w, w), (W, X)),
        (lambda w, x: (x @ (t := pcp.tanh(w)), t), (W, X)),
        (lambda w, x: pcp.tanh(x) @ w, (W, X)),
        (lambda _, x: pcp.tanh(x), (W, X)),
    ],
    ids=["as it is", "turned", "views", "stored", "returned", "made and returned", "of both", "unused"],
)
def test_nothing_is_split_off(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    assert stage_of(function, *arguments) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda w: w.astype("bf16"),
        lambda w: pcp.tanh(w),
        lambda w: w / pcp.sqrt((w * w).sum(axis=0)),
        lambda w: pcp.concatenate([w, w[:2]], axis=0)[:8] * 2,
        lambda w: (w.T.astype("bf16")).T,
    ],
    ids=["rounded", "elementwise", "normalised", "joined", "turned and rounded"],
)
def test_values_of_weights_are_split_off(make: Callable[[Any], Any]) -> None:
    stage = stage_of(lambda w, x: x.astype(make(w).dtype) @ make(w), W, X)
    assert stage is not None
    first, rest = stage.sequence
    assert first.takes == (0,)
    assert 0 not in rest.takes


def test_programs_of_several_sizes_have_one_stage() -> None:
    def turned(w: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
        table = pcp.sin(pcp.arange(x.shape[0]).astype("f32")).reshape(-1, 1)
        return x @ (pcp.tanh(w) * pcp.cos(pcp.arange(8).astype("f32"))) + table

    stages = [stage_of(turned, W, pcp.spec((rows, 8), "f32")) for rows in (2, 5)]
    firsts = {stage.sequence[0].program.digest for stage in stages if stage is not None}
    assert len(firsts) == 1
    assert stages[0] is not None
    assert names(stages[0].sequence[0].program)["cosine"] == 1
    assert names(stages[0].sequence[1].program)["sine"] == 1


def test_donated_arguments_are_donated_to_the_rest() -> None:
    cache = pcp.spec((2, 8), "f32", Role.state)
    program = trace(lambda w, c, x: (c + x @ pcp.tanh(w), x), W, cache, X)
    stage = bind_stage(program, (0,))
    if stage is not None:
        assert all(entry.alias is None for entry in stage.sequence[0].program.arguments)
        assert sum(entry.alias is not None for entry in stage.sequence[1].program.arguments) == sum(
            entry.alias is not None for entry in program.arguments
        )


def test_a_program_that_draws_numbers_runs_as_a_whole() -> None:
    text = str(trace(lambda w, x: x @ pcp.tanh(w), W, W).module())
    end = text.index("    return %")
    name = text[end:].split()[1]
    drawn = (
        "    %low = stablehlo.constant dense<0.0> : tensor<f32>\n    %high = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "    %shape = stablehlo.constant dense<8> : tensor<2xi64>\n"
        "    %drawn = stablehlo.rng %low, %high, %shape, distribution = UNIFORM "
        ": (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<8x8xf32>\n"
        f"    %sum = stablehlo.add {name}, %drawn : tensor<8x8xf32>\n"
    )
    assert bind_stage(Program.parse(text), (0,)) is not None
    assert bind_stage(Program.parse(text[:end] + drawn + text[end:].replace(name, "%sum", 1)), (0,)) is None


def test_segments_compute_what_the_whole_does() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(8, 8)).astype("f"), rng.normal(size=(2, 8)).astype("f")
    program = trace(lambda w, x: (x @ pcp.tanh(w), x * 2), w, x)
    stage = bind_stage(program, (0,))
    assert stage is not None
    values: dict[int, Any] = {0: w, 1: x}
    for each in stage.sequence:
        plan = pcp.plan(each.program, cache=False)
        made = plan.run(*(values[number] for number in each.takes))
        values |= dict(zip(each.makes, made if isinstance(made, tuple) else (made,), strict=True))
    np.testing.assert_allclose(values[stage.results[0]], x @ np.tanh(w), rtol=1e-5)
