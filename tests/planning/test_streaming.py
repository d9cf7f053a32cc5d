"""Paths of programs that run piece by piece: kernels and options of a path are theirs, and arguments lie where one plans."""

import itertools
import logging
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, set_strategy, tried_together

import pcp
from pcp.backends import CompilationFailed, Target
from pcp.backends.arena.array import ArenaArray
from pcp.kernels import kernel_named, sites_of
from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.search import ToleranceUnreachable
from pcp.planning.streaming import ToleranceAndPath

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
    return Path.of(program, {site.key: kernel_named("product.xla:bf16") for site in sites})


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
    assert (
        "kernel product.xla:bf16 is left out, whose operands and results take more than half of"
        in caplog.text
    )
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


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch, bench: FakeBench) -> FakeBench:
    """Two families, of which the first has a fast kernel and one that is more exact."""
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    set_strategy(monkeypatch, error_of_bits=1e-9)
    return bench


def logarithms() -> pcp.Program:
    return pcp.trace(lambda x: pcp.log1p(pcp.sin(x) + 1.0), pcp.spec((8, 8), "f32"))


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        (1e-1, {"sine.fast", "log1p.other"}),
        (1e-4, {"sine.middle", "log1p.other"}),
        (5e-6, {"log1p.other"}),
        (5e-7, set()),
    ],
)
def test_the_fastest_kernels_within_a_tolerance_are_streamed(
    tolerance: float, expected: set[str], levels: FakeBench, file: FilePath
) -> None:
    path = pcp.streamed(logarithms(), "cpu:0", "1MiB", tolerance=tolerance, database=file)
    assert {choice.kernel for choice in path.choices.values()} == expected
    assert path.placement is not None
    assert path.placement.streamed == ("xla:cpu:0", 1 << 20)
    assert all(each.placement is not None and each.placement.streamed for each in levels.wholes)


def test_kernels_that_are_not_faster_or_were_not_measured_are_not_streamed(
    levels: FakeBench, file: FilePath
) -> None:
    levels.seconds["tanh"] = 5.0
    program = logarithms()
    plain = pcp.streamed(program, "cpu:0", "1MiB")
    assert pcp.streamed(program, "cpu:0", "1MiB", tolerance=0.1, budget=0.0, database=file) == plain
    assert pcp.streamed(program, "cpu:0", "1MiB", tolerance=0.1, database=file) == plain
    assert len(levels.wholes) == 2


def test_a_tolerance_that_the_program_misses_is_refused(levels: FakeBench, file: FilePath) -> None:
    levels.errors["sine"] = 1e-3
    with pytest.raises(
        ToleranceUnreachable, match=r"misses the tolerance of 1e-06 as it is written: the error of"
    ):
        pcp.streamed(logarithms(), "cpu:0", "1MiB", tolerance=1e-6, database=file)
    with pytest.raises(ToleranceAndPath, match=r"both a path and a tolerance of 0\.1 were given"):
        pcp.streamed(logarithms(), "cpu:0", "1MiB", Path.plain(logarithms()), tolerance=0.1)


@pytest.mark.long
def test_a_real_search_streams_products_of_fewer_bits(file: FilePath) -> None:
    program = stack((256,) * 5)
    path = pcp.streamed(program, "cpu:0", "1MiB", tolerance=1e-2, database=file)
    plan, given = pcp.plan(program, "cpu:0", path=path), arguments(program)
    wanted = np.asarray(pcp.plan(program).run(*given))
    assert np.linalg.norm(plan.run(*given) - wanted) < 2e-2 * np.linalg.norm(wanted)
    assert path.choices or path == pcp.streamed(program, "cpu:0", "1MiB")
    assert len(pcp.ProfileDatabase(file).measurements()) >= 2


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
