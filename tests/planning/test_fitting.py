"""Plans that fit in the memory that was asked for, as the compiler counts it, and compute the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.backends import OutOfMemory, Target
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.optimizers import sgd
from pcp.planning import PathMismatch
from pcp.planning.capacity import human, lower_bound
from pcp.planning.fitting import Fit, MemoryUnreachable, fitted
from pcp.planning.judging.oracle import widened
from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.path import Path
from pcp.tracing import spec, specs_of

# On a GPU these programs take less than the 32 MiB in which its library computes products.
pytestmark = pytest.mark.cpu
RANDOM = np.random.default_rng(0)
LAYERS, ROWS, WIDTH, HIDDEN = 4, 256, 16, 64


def loss(parameters: Any, x: Any) -> Any:
    for up, down in parameters:
        hidden = x @ up
        x = x + pcp.tanh(hidden * pcp.sigmoid(hidden)) @ down
    return pcp.mean(x * x)


def drawn(dtype: Any = np.float64, rows: int = ROWS) -> tuple[Any, Any]:
    def draw(*shape: int) -> Any:
        return (RANDOM.normal(size=shape) / 4).astype(dtype)

    return tuple((draw(WIDTH, HIDDEN), draw(HIDDEN, WIDTH)) for _ in range(LAYERS)), draw(rows, WIDTH)


@pytest.fixture(scope="module")
def program() -> pcp.Program:
    return pcp.value_and_grad(pcp.trace(loss, *drawn()))


@pytest.fixture(scope="module")
def whole(program: pcp.Program) -> int:
    return peak(pcp.plan(program))


def peak(plan: pcp.Plan) -> int:
    return plan.memory[str(plan.device)].peak


def assert_near(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        exact = np.asarray(other, np.float64)
        assert np.linalg.norm(np.asarray(one) - exact) <= tolerance * np.linalg.norm(exact)


@pytest.mark.parametrize("share", [0.7, 0.3])
def test_a_plan_stays_within_what_was_asked(program: pcp.Program, whole: int, share: float) -> None:
    plan = pcp.plan(program, memory=int(share * whole))
    assert peak(plan) <= int(share * whole)
    assert plan.fit is not None
    assert (plan.fit.asked, plan.fit.peak, plan.fit.without) == (int(share * whole), peak(plan), whole)
    assert plan.fit.remade > 0 or plan.fit.parts > 1
    assert plan.fit.more < 0.05
    given = drawn()
    assert_near(plan.run(*given), run(program, *given), 1e-12)


def test_what_fits_is_left_as_it_is_written(program: pcp.Program) -> None:
    plan = pcp.plan(program, memory="1GiB")
    assert plan.path.is_plain
    assert plan.fit is not None
    assert plan.fit.remade == 0
    assert "of 1.0 GiB that it may take: nothing is given up for that" in str(plan)
    assert pcp.plan(program).fit is None


def test_a_compiler_that_makes_values_again_by_itself_does_not_end_the_search(
    program: pcp.Program, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole takes less than half as its operations say; two parts then take more than it, and more parts less."""
    target = Target.of("cpu:0")

    def compiled(self: Target, one: pcp.Program, **named: Any) -> Any:
        use = compile_(self, one, **named).memory
        spared = int(0.55 * whole) if one.digest == program.digest else 0
        return SimpleNamespace(memory=replace(use, temporaries=use.temporaries - spared))

    compile_ = Target.compile
    monkeypatch.setattr(Target, "compile", compiled)
    found = fitted(program, Path.plain(program), target, int(0.35 * whole))
    assert found.without < 0.5 * whole
    assert found.parts > 2


def test_what_a_plan_says_of_it(program: pcp.Program, whole: int) -> None:
    plan = pcp.plan(program, memory=whole // 2)
    fit = plan.fit
    assert fit is not None
    assert f"  {human(peak(plan))} of {human(whole // 2)} that it may take: " in str(plan)
    assert (
        f"{fit.remade} operations run again, {fit.more:.1%} more floating-point operations; without that"
        in str(plan)
    )
    assert f"path        {plan.path.digest[:12]}: as it is written, in less memory" in str(plan)
    assert plan.to_json()["fit"] == {
        "asked": whole // 2, "peak": peak(plan), "without": whole, "parts": fit.parts, "remade": fit.remade, "more": fit.more
    }  # fmt: skip


def test_words_for_what_is_given_up() -> None:
    fit = Fit(pcp.Path(""), 2**20, 2**19, 2**21, parts=4, remade=3, more=0.015)
    assert str(fit) == (
        "512.0 KiB of 1.0 MiB that it may take: the batch is computed in 4 parts, 3 operations run again, 1.5% more "
        "floating-point operations; without that 2.0 MiB"
    )


@pytest.mark.parametrize(
    ("rows", "help_"),
    [
        (
            7,
            "of this, arguments and results take the most: use a smaller model, optimizer state in fewer bytes",
        ),
        (251, "a smaller batch or shorter sequences take less, as do more micro-batches"),
    ],
)
def test_what_cannot_fit_names_the_least_and_what_would_help(rows: int, help_: str) -> None:
    program = pcp.value_and_grad(pcp.trace(loss, *drawn(rows=rows)))
    held = sum(entry.spec.bytes for entry in (*program.arguments, *program.results))
    message = (
        r"nothing that was tried runs program [0-9a-f]{12} in .* KiB: the least takes .* [KM]iB \(arguments and results "
        r".* KiB, temporaries .* KiB\), and .* [KM]iB as it is written; give memory of at least (\d+) bytes, or: "
    )
    with pytest.raises(MemoryUnreachable, match=message + help_) as caught:
        pcp.plan(program, memory=held + 1000)
    least = caught.value.least
    assert held < least
    assert f"at least {least} bytes" in str(caught.value)


def test_arguments_alone_may_be_too_large(program: pcp.Program) -> None:
    with pytest.raises(
        OutOfMemory, match=r"the program needs at least .* KiB on cpu:0, which has 1000 bytes"
    ):
        pcp.plan(program, memory=1000)


def test_the_path_is_followed_again(program: pcp.Program, whole: int, tmp_path: FilePath) -> None:
    plan = pcp.plan(program, memory=whole // 2)
    plan.path.save(tmp_path / "path.json")
    again = pcp.plan(program, path=pcp.Path.load(tmp_path / "path.json"))
    assert again.path == plan.path
    assert peak(again) == peak(plan)
    given = drawn()
    for one, other in zip(flatten(again.run(*given))[0], flatten(plan.run(*given))[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_path_whose_numbers_mean_something_else_is_refused(program: pcp.Program, whole: int) -> None:
    text = pcp.plan(program, memory=whole // 2).path.to_json()
    entry = json.loads(text)
    entry["recomputation"]["kept"] = entry["recomputation"]["kept"][:1]
    with pytest.raises(
        PathMismatch, match=r"makes values again by their numbers, .* plan again with the same memory"
    ):
        pcp.plan(program, path=pcp.Path.from_json(json.dumps(entry)))


@pytest.mark.parametrize(
    "changed", [{"kept": [-1]}, {"kept": 3}, {"begin": "x"}, {"makes": "0"}, {"parts": 0}]
)
def test_what_is_no_recomputation(program: pcp.Program, whole: int, changed: Any) -> None:
    entry = json.loads(pcp.plan(program, memory=whole // 2).path.to_json())
    entry["recomputation"] |= changed
    with pytest.raises(
        NotAPath, match=r"the recomputation of the path is .* expected parts, begin and kept, numbers from 0"
    ):
        pcp.Path.from_json(json.dumps(entry))


def _of_jax() -> tuple[pcp.Program, tuple[Any, ...]]:
    """A gradient that JAX made: nothing says where its backward pass begins."""

    def function(parameters: Any, x: Any) -> Any:
        for up, down in parameters:
            hidden = x @ up
            x = x + jax.numpy.tanh(hidden * jax.nn.sigmoid(hidden)) @ down
        return (x * x).mean()

    given = drawn(np.float32)
    return pcp.from_jax(jax.value_and_grad(function), *given), given


def _of_gpt2() -> tuple[pcp.Program, tuple[Any, ...]]:
    """A training step: gradients that a judge sees as first moments."""
    config = gpt2_config(vocabulary=64, context=64, layers=2, heads=2, width=32)
    parameters = decoder.initial_parameters(config)
    tokens = spec((4, 64), "i32")
    traced = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), specs_of(parameters), tokens, tokens)
    step = pcp.training_step(traced, sgd(1.0))
    batch = tuple(RANDOM.integers(0, 64, (2, 4, 64)).astype(np.int32))
    return step, (step.initial_state(parameters), batch)


@pytest.mark.parametrize("make", [_of_jax, pytest.param(_of_gpt2, marks=pytest.mark.long)])
def test_any_program_with_a_gradient_fits(make: Callable[[], tuple[pcp.Program, tuple[Any, ...]]]) -> None:
    program, given = make()
    size = int(0.6 * peak(pcp.plan(program)))
    plan = pcp.plan(program, memory=size)
    assert peak(plan) <= size
    wide = map_tree(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, given)
    exact = flatten(run(widened(program), *wide))[0]
    for found, expected in zip(flatten(plan.run(*given))[0], exact, strict=True):
        assert np.linalg.norm(np.asarray(found) - np.asarray(expected)) <= 1e-4 * np.linalg.norm(expected)


def test_what_does_not_fit_on_the_device_is_made_to_fit_unasked(
    program: pcp.Program, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCP_MEMORY_LIMIT", str(whole // 2))
    plan = pcp.plan(program)
    assert plan.fit is not None
    assert peak(plan) <= whole // 2
    assert f"{human(peak(plan))} of {human(whole // 2)} that it may take: " in str(plan)
    arguments = drawn(np.float64)
    monkeypatch.delenv("PCP_MEMORY_LIMIT")
    near = [
        np.allclose(a, b, rtol=1e-12)
        for a, b in zip(flatten(plan.run(*arguments))[0], flatten(run(program, *arguments))[0], strict=True)
    ]
    assert all(near)


def test_a_refusal_says_what_was_tried(
    program: pcp.Program, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = lower_bound(program).peak + 1024
    monkeypatch.setenv("PCP_MEMORY_LIMIT", str(least))
    message = (
        rf"the program needs {human(whole)} on cpu:0, which has {human(least)}: (.|\n)*largest values inside: (.|\n)*"
        r"where values are made again, and the batch is computed in parts, it takes at least \d+\.\d [KM]iB"
    )
    with pytest.raises(OutOfMemory, match=message):
        pcp.plan(program)
