"""Paths of programs that run piece by piece: kernels and options of a path are theirs, and arguments lie where one plans."""

import itertools
import logging
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import CompilationFailed, Target
from pcp.backends.arena.array import ArenaArray
from pcp.kernels import kernel_named, sites_of
from pcp.planning.paths.entries import NotAPath
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared

pytestmark = pytest.mark.cpu
WIDTH, LAYERS = 64, 8
WEIGHT = 4 * WIDTH * WIDTH
RNG = np.random.default_rng(5)


def stack(widths: tuple[int, ...] = (WIDTH,) * (LAYERS + 1)) -> pcp.Program:
    def run(x: pcp.Tensor, weights: list[pcp.Tensor]) -> pcp.Tensor:
        for each in weights:
            x = pcp.tanh(x @ each)
        return x

    shapes = itertools.pairwise(widths)
    return pcp.trace(run, pcp.spec((32, widths[0]), "f32"), [pcp.spec(each, "f32") for each in shapes])


def arguments(program: pcp.Program) -> tuple[Any, ...]:
    made = [RNG.normal(0, 0.2, entry.spec.shape).astype(np.float32) for entry in program.arguments]
    return made[0], made[1:]


def in_bfloat16(program: pcp.Program) -> Path:
    """All products in bfloat16."""
    sites = sites_of(prepared(program), "cpu")
    return Path.of(program, {site.key: kernel_named("product.bf16") for site in sites})


def test_the_kernels_of_a_path_run_in_its_pieces() -> None:
    program = stack()
    path = in_bfloat16(program)
    streamed = pcp.streamed(program, "cpu:0", 5 * WEIGHT, path)
    assert streamed.choices == path.choices
    plan = pcp.plan(program, "cpu:0", path=Path.from_json(streamed.to_json()))
    given = arguments(program)
    found, whole, plain = (
        np.asarray(each.run(*given)) for each in (plan, pcp.plan(program, path=path), pcp.plan(program))
    )
    np.testing.assert_allclose(found, whole, atol=1e-6)
    assert np.abs(found - plain).max() > 1e-4
    assert plan.path.choices == path.choices


def test_kernels_that_need_too_much_at_once_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    program = stack((WIDTH, WIDTH, 16 * WIDTH, WIDTH))
    path = in_bfloat16(program)
    with caplog.at_level(logging.INFO, "pcp.planning"):
        streamed = pcp.streamed(program, "cpu:0", 30 * WEIGHT, path)
    assert len(path.choices) == 3
    assert len(streamed.choices) == 1
    assert "kernel product.bf16 is left out, whose operands and results take more than half of" in caplog.text
    plan, given = pcp.plan(program, "cpu:0", path=streamed), arguments(program)
    np.testing.assert_allclose(plan.run(*given), pcp.plan(program).run(*given), atol=2e-2)


def test_arguments_and_results_lie_where_one_plans() -> None:
    program = stack()
    given = arguments(program)
    wanted = pcp.plan(program).run(*given)
    for away, home, kind in (("cpu:0", "arena:cpu", ArenaArray), ("arena:cpu", "cpu:0", type(wanted))):
        plan = pcp.plan(program, home, path=pcp.streamed(program, away, 5 * WEIGHT))
        found = plan.run(*given)
        assert type(found) is kind
        np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-5)


def test_options_of_the_target_are_those_of_the_pieces() -> None:
    program = stack()
    there = Target.of("cpu:0", {"xla_cpu_enable_fast_math": False})
    path = pcp.streamed(program, there, 5 * WEIGHT)
    assert path.options == there.options
    assert pcp.plan(program, "arena:cpu", path=path).path.options == there.options
    wrong = pcp.streamed(program, Target.of("cpu:0", {"no_such_option": True}), 5 * WEIGHT)
    with pytest.raises(CompilationFailed, match="no_such_option"):
        pcp.plan(program, "arena:cpu", path=wrong, cache=False)


def test_paths_of_other_programs_backends_and_options_are_refused() -> None:
    program = stack()
    path = in_bfloat16(program)
    with pytest.raises(PathMismatch, match="the path belongs to program"):
        pcp.streamed(stack((WIDTH,) * 3), "cpu:0", "1MiB", path)
    with pytest.raises(PathMismatch, match=r"the path was made for backend 'xla' .* or plan for arena:cpu:0"):
        pcp.streamed(program, "arena:cpu", "1MiB", path)
    with pytest.raises(PathMismatch, match=r"with options {}; .* has {'xla_cpu_enable_fast_math': False}"):
        pcp.streamed(program, Target.of("cpu:0", {"xla_cpu_enable_fast_math": False}), "1MiB", path)
    with pytest.raises(NotAPath, match="path is 'path'; expected a Path"):
        pcp.streamed(program, "cpu:0", "1MiB", "path")  # type: ignore[arg-type]  # no path
