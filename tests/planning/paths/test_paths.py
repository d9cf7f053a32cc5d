"""Tests of the enumeration of paths, of exploring them, and of following one exactly."""

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, add_family, chain, counted

import pcp
from pcp.backends import Target
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.exploration.best_first import best_first
from pcp.planning.exploration.exploration import combinations
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared
from pcp.planning.plan import PlanConflict
from pcp.planning.search.site_classes import site_classes
from pcp.planning.search.whole import Whole
from pcp.tensor import Tensor


@pytest.mark.usefixtures("bench")
def test_every_combination_of_kernels_is_a_path_and_so_is_the_plain_one(file: FilePath) -> None:
    found = list(pcp.paths(chain((4, 5)), database=file))
    assert len(found) == 4**4  # three kernels and the operation itself, at four sites
    assert len({path.digest for path in found}) == len(found)
    assert sum(path.is_plain for path in found) == 1
    uniform = list(pcp.paths(chain((4, 5)), database=file, uniform=True))
    assert len(uniform) == 4**2
    assert set(uniform) <= set(found)


@pytest.mark.usefixtures("bench")
def test_there_may_be_more_paths_than_can_be_listed(file: FilePath) -> None:
    some = list(itertools.islice(pcp.paths(chain(tuple(range(2, 32))), database=file), 20))  # of 4^60
    assert len(set(some)) == 20


BROKEN = Measurement("", "", "", "", failure=Failure.out_of_memory)
"""What came of a path that does not run."""


@pytest.mark.usefixtures("bench")
def test_what_is_banned_meanwhile_is_never_listed_again(
    file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thirty sites of one class, 4^30 combinations begin with a kernel that is banned: none of them is made."""
    counted_combinations = 0

    def counting(
        costs: Sequence[Sequence[float]], apart: Sequence[Collection[int]]
    ) -> Iterator[tuple[int, ...]]:
        nonlocal counted_combinations
        for each in best_first(costs, apart):
            counted_combinations += 1
            yield each

    monkeypatch.setattr(sys.modules[combinations.__module__], "best_first", counting)
    program = pcp.trace(_thirty_sines, pcp.spec((4, 4), "f32"))
    pcp.plan(program, tolerance=1e-2, database=file)
    target = Target.of()
    with evidence_of(Conditions(target, target.capacity, file, budget=0.0)) as evidence:
        [sites] = site_classes(prepared(program), target)
        found = combinations(Whole(program, math.inf, target), [sites], evidence, uniform=False)
        assert kernel_names(next(found)) == {"sine.fast"}
        assert kernel_names(found.send(BROKEN)) == {"sine.middle"}
        some = [found.send(BROKEN), *itertools.islice(found, 4)]
    assert [kernel_names(path) for path in some] == [{"sine.bitwise"}] * 5
    assert len({path.digest for path in some}) == 5
    assert counted_combinations == 1 + 1 + 5


@pytest.mark.usefixtures("bench")
def test_what_was_given_before_a_ban_is_not_given_again(file: FilePath) -> None:
    program = chain((4, 5))
    pcp.plan(program, tolerance=1e-2, database=file)
    target = Target.of()
    with evidence_of(Conditions(target, target.capacity, file, budget=0.0)) as evidence:
        classes = site_classes(prepared(program), target)
        own = {site.key for site in classes[0].sites}
        found = combinations(Whole(program, math.inf, target), classes, evidence, uniform=False)
        before = []
        for path in found:
            before.append(path)
            if path.choices.keys() == own and kernel_names(path) == {"sine.bitwise"}:
                break
        after = [found.send(BROKEN), *found]
    assert len({path.digest for path in [*before, *after]}) == len(before) + len(after)
    assert not any(
        choice.kernel == "sine.bitwise" and site in own
        for path in after
        for site, choice in path.choices.items()
    )
    assert len({*before, *after}) >= 4**2 * 3**2  # all that are not banned


def _thirty_sines(x: Tensor) -> Tensor:
    for _ in range(30):
        x = pcp.sin(x) + 1.0
    return x


def kernel_names(path: Path) -> set[str]:
    return {choice.kernel for choice in path.choices.values()}


@pytest.mark.usefixtures("bench")
def test_measured_paths_come_best_first(file: FilePath) -> None:
    program = chain((4, 5))
    pcp.plan(program, tolerance=1e-2, database=file)
    found = list(pcp.paths(program, database=file))
    seconds = FakeBench().seconds
    times = [
        sum(count * seconds[name] for name, count in counted(path.applied(program)).items()) for path in found
    ]
    assert times == pytest.approx(sorted(times))
    assert times[0] == pytest.approx(0.8)


@pytest.mark.usefixtures("bench")
def test_paths_that_are_known_to_be_too_wrong_are_left_out(file: FilePath) -> None:
    program = chain((4, 5))
    pcp.plan(program, tolerance=1e-4, database=file)
    assert len(list(pcp.paths(program, tolerance=1e-4, database=file))) == 3**4  # without the fast kernel
    assert len(list(pcp.paths(program, tolerance=0.0, database=file))) == 2**4  # the bitwise one


def test_exploring_measures_every_path_once_and_goes_on_where_it_stopped(
    bench: FakeBench, file: FilePath
) -> None:
    program = chain((4, 5))
    first = list(itertools.islice(pcp.explore(program, database=file), 3))
    assert all(each.is_new for each in first)
    ratios = [each.measurement.ratio for each in first]
    assert ratios == sorted(ratios)
    everything = list(pcp.explore(program, database=file))
    assert [each.is_new for each in everything] == [False] * 3 + [True] * 13
    bench.requests.clear()
    assert not any(each.is_new for each in pcp.explore(program, database=file))
    assert bench.requests == []
    assert pcp.plan(program, tolerance=1e-2, database=file, budget=0).path == first[0].path


def test_exploring_ends_with_its_budget(bench: FakeBench, file: FilePath) -> None:
    assert list(pcp.explore(chain((4,)), database=file, budget=0)) == []
    assert bench.requests == []


@pytest.mark.usefixtures("bench")
def test_a_path_survives_its_file(file: FilePath, tmp_path: FilePath) -> None:
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    plan.path.save(tmp_path / "path.json")
    again = pcp.plan(chain(), path=Path.load(tmp_path / "path.json"))
    assert again.path == plan.path
    assert "as given: 6 sine.fast" in str(again)


@pytest.mark.usefixtures("bench")
def test_a_path_of_another_program(file: FilePath) -> None:
    path = pcp.plan(chain(), tolerance=1e-2, database=file).path
    with pytest.raises(
        PathMismatch, match=r"belongs to program \w{12}; the program given is \w{12}: plan it instead"
    ):
        pcp.plan(chain((3,)), path=path)


@pytest.mark.usefixtures("bench")
def test_a_path_of_other_hardware_or_versions(file: FilePath) -> None:
    path = pcp.plan(chain(), tolerance=1e-2, database=file).path
    with pytest.raises(PathMismatch, match=r"made on hardware abc, and here is .* follow it anyway as"):
        pcp.plan(chain(), path=replace(path, hardware="abc"))
    with pytest.raises(PathMismatch, match=r"made on versions jaxlib 0\.1, and here is jaxlib"):
        pcp.plan(chain(), path=replace(path, versions="jaxlib 0.1"))
    assert pcp.plan(chain(), path=replace(path, hardware="abc").made_on("", "")).path == path


@pytest.mark.usefixtures("bench")
def test_a_path_of_another_version_of_a_kernel(file: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pcp.plan(chain(), tolerance=1e-2, database=file).path
    add_family(monkeypatch)  # anew, with another version
    from pcp.kernels import FAMILIES

    FAMILIES["sine"].kernels["sine.fast"] = replace(FAMILIES["sine"].kernels["sine.fast"], version=2)
    with pytest.raises(PathMismatch, match=r"version 1 of kernel sine\.fast, which is 2 here; plan again"):
        pcp.plan(chain(), path=path)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)  # the known path is not followed
    assert {choice.version for choice in plan.path.choices.values()} == {2}


@pytest.mark.usefixtures("bench")
def test_wishes_that_exclude_each_other(file: FilePath) -> None:
    path = pcp.plan(chain(), tolerance=1e-2, database=file).path
    with pytest.raises(PlanConflict, match=r"both a path and a tolerance of 0\.01 were given"):
        pcp.plan(chain(), path=path, tolerance=1e-2)
    with pytest.raises(PlanConflict, match=r"are not those of the path, \{\}; leave them out"):
        pcp.plan(chain(), path=path, options={"xla_cpu_enable_fast_math": True})


def test_a_file_that_holds_no_path(tmp_path: FilePath) -> None:
    (tmp_path / "path.json").write_text("{}")
    with pytest.raises(
        NotAPath, match=r"path\.json: this is not a path: '\{\}'; expected JSON as Path\.save writes it"
    ):
        Path.load(tmp_path / "path.json")


def rounded(program: pcp.Program) -> Path:
    """A path with products of bfloat16."""
    from pcp.kernels import kernel_named, sites_of

    sites = sites_of(prepared(program), "cpu")
    return Path.of(program, {site.key: kernel_named("product.xla:bf16") for site in sites})


def test_plain_forms_are_sites_too() -> None:
    """What no training step named before its gradient was taken, as in a prompt's logits, is named when it is planned."""

    def function(x: Tensor, scale: Tensor) -> Tensor:
        return pcp.nn.layer_norm(pcp.softmax(x), scale)

    program = pcp.trace(function, pcp.spec((8, 16), "f32"), pcp.spec((16,), "f32"))
    for tolerance in (0.0, 1e-2):
        families = {each.family for each in site_classes(prepared(program, tolerance), "cpu")}
        assert families == {"softmax", "normalisation"}


def test_a_pinned_path_has_the_same_bits_in_another_process(tmp_path: FilePath) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return pcp.tanh(x @ w) @ w

    program = pcp.trace(function, pcp.spec((48, 64), "f32"), pcp.spec((64, 64), "f32"))
    plan = pcp.plan(program, path=rounded(program))
    program.save(tmp_path / "program.pcp")
    plan.path.save(tmp_path / "path.json")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((48, 64), np.float32), rng.standard_normal((64, 64), np.float32)
    np.savez(tmp_path / "inputs.npz", x=x, w=w)
    code = """
import sys, numpy as np, pcp
folder = sys.argv[1]
plan = pcp.plan(pcp.load(f"{folder}/program.pcp"), path=pcp.Path.load(f"{folder}/path.json"), cache=False)
given = np.load(f"{folder}/inputs.npz")
np.save(f"{folder}/result.npy", np.asarray(plan.run(given["x"], given["w"])))
"""
    source = str(FilePath(pcp.__file__).parents[1])
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, env=os.environ | {"PYTHONPATH": source})
    here = np.asarray(plan.run(x, w))
    assert here.tobytes() == np.load(tmp_path / "result.npy").tobytes()
    assert here.tobytes() != np.asarray(pcp.plan(program).run(x, w)).tobytes()


def test_what_a_plan_says_of_its_operations_is_what_it_runs() -> None:
    program = pcp.trace(lambda x: x @ x, pcp.spec((8, 8), "f32"))
    plan = pcp.plan(program, path=rounded(program))
    assert [operation.name for operation in plan.operations].count("convert") == 2
    x = np.full((8, 8), 3e38, np.float32)
    with pytest.raises(pcp.planning.NaNFound, match=r"convert|dot_general"):
        plan.run(x, check=True)
    assert any("convert" in str(timed) for timed in plan.profile(x).times)


def test_errors_of_a_plan_on_given_arguments() -> None:
    program = pcp.trace(lambda x: x @ x, pcp.spec((32, 32), "f32"))
    x = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    [error] = pcp.plan(program, path=rounded(program)).errors(x)
    assert 1e-4 < error.error < 1e-2
    assert error.plain < 1e-6
    [error] = pcp.plan(program).errors(x)
    assert error.error == error.plain


def test_a_real_search_of_a_small_program(file: FilePath) -> None:
    program = pcp.trace(lambda x, w: x @ w, pcp.spec((128, 512), "f32"), pcp.spec((512, 256), "f32"))
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    assert plan.error is not None
    assert plan.error <= 1e-2
    assert plan.plain_error is not None
    assert 0 < plan.plain_error < 1e-5
    assert "product.xla:bf16" in str(plan)
    again = pcp.plan(program, tolerance=1e-2, database=file)
    assert again.to_json()["measurements"] == 0
    assert again.path == plan.path
    exact = pcp.plan(program, tolerance=0.0, database=file)
    assert exact.path.is_plain
