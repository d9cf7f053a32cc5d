"""A Target names a backend, devices and options; a backend of one file, once registered, runs programs and is measured."""

from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.backends.eager import DEVICES, HostArray

import pcp
from pcp import Path, backends
from pcp.backends import Device, InvalidTarget, Target, UnknownBackend, UnknownDevice, device, registry
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import PathMismatch
from pcp.planning.plan import PlanConflict

PROGRAM = pcp.trace(lambda x: pcp.tanh(pcp.sin(x) * x), pcp.spec((3, 4), "f32"))
X = np.random.default_rng(0).standard_normal((3, 4), np.float32)
EXPECTED = np.tanh(np.sin(X) * X)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    backends.register_backend("eager", "tests.backends.eager:EagerBackend")
    return Target.of("cpu:0", backend="eager")


def test_a_registered_backend_runs_a_program_with_arrays_of_its_own(eager: Target) -> None:
    plan = pcp.plan(PROGRAM, eager)
    result = plan.run(X)
    assert isinstance(result, HostArray)
    np.testing.assert_allclose(np.asarray(result), EXPECTED, rtol=1e-6)
    assert isinstance(plan.run(result), HostArray)  # its own arrays are taken as they are
    assert (plan.target, plan.device, plan.backend.name) == (eager, DEVICES[0], "eager")
    assert plan.path.backend == "eager"
    assert " on cpu:0 by eager" in str(plan)


def test_a_path_of_a_backend_is_followed_by_that_backend(eager: Target, tmp_path: FilePath) -> None:
    pcp.plan(PROGRAM, eager).path.save(tmp_path / "path.json")
    path = Path.load(tmp_path / "path.json")
    plan = pcp.plan(PROGRAM, path=path)
    assert plan.backend.name == "eager"
    assert isinstance(plan.run(X), HostArray)
    assert plan.path == path
    with pytest.raises(
        PlanConflict, match=r"path is for backend 'eager', and the target names 'xla'; leave the target out"
    ):
        pcp.plan(PROGRAM, Target.of("cpu:0"), path=path)


def test_a_path_of_a_backend_that_is_not_here_is_refused() -> None:
    path = replace(Path.plain(PROGRAM), backend="soroban")
    with pytest.raises(
        PathMismatch,
        match=r"the path was made for backend 'soroban', which is not here; there are: arena, iree, torch, xla; "
        r"plan again for one of them, or register it with pcp.backends.register_backend",
    ):
        pcp.plan(PROGRAM, path=path)


def test_a_backend_is_measured_in_a_child_which_imports_it(
    eager: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FilePath(__file__).parents[2]), prepend=":")
    with Bench() as bench:
        row = bench.measure(Request(PROGRAM, PROGRAM, "itself", target=eager, timing_seconds=0.1))
        assert row.failure is None
        assert row.seconds
        assert (row.hardware, row.versions) == (hardware_of(eager).digest, versions("eager"))
        assert bench.measure(Request(PROGRAM, PROGRAM, "itself", timing_seconds=0.1)).versions == versions()
        assert bench.starts == 2  # a child for each backend


def test_a_search_keeps_the_rows_of_backends_apart(
    eager: Target, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FilePath(__file__).parents[2]), prepend=":")
    file = tmp_path / "profile.sqlite"
    plans = [pcp.plan(PROGRAM, target, 1e-3, database=file) for target in (eager, Target.of())]
    rows = pcp.ProfileDatabase(file).measurements()
    assert [plan.backend.name for plan in plans] == ["eager", "xla"]
    assert {row.versions for row in rows} == {versions("eager"), versions()}
    assert versions("eager").startswith("eager: eager 1, planetary-compute-protocol ")


@pytest.mark.cpu
def test_rows_and_paths_from_before_are_those_of_xla() -> None:
    old = (
        f'{{"format":1,"program":"{PROGRAM.digest}","prepared":"","backend":"xla","options":[["xla_cpu_enable_fast_math",false]],'
        '"choices":[],"hardware":"","versions":""}'
    )
    path = Path.from_json(old)
    assert path.to_json() == old
    target = path.target((backends.device("cpu:0"),))
    assert target == Target.of("cpu:0", {"xla_cpu_enable_fast_math": False})
    assert pcp.plan(PROGRAM, path=path).target == target
    assert versions().startswith("jaxlib ")  # as every row from before begins


@pytest.mark.parametrize(("backend", "tolerance"), [("xla", 1e-2), ("arena", None), ("arena", 1e-2)])
def test_a_backend_that_runs_on_one_device_refuses_several_before_anything_is_measured(
    backend: str, tolerance: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcp.planning.conditions.Bench", None)
    several = Target(backend, tuple(DEVICES))
    match = (
        r"the target has 2 devices: cpu:0, cpu:1; here a program is compiled for one: give "
        rf"{backend} a target with one, as pcp.Target.of\('{backend}:cpu:0'\)"
    )
    alone = [several] if backend == "arena" else []
    for places in (*alone, [several, Target.of()], [Target.of(), several]):
        if tolerance is not None or places is several:
            with pytest.raises(InvalidTarget, match=match):
                pcp.plan(PROGRAM, places, tolerance)
    with pytest.raises(InvalidTarget, match=match):
        several.compile(PROGRAM)
    with pytest.raises(InvalidTarget, match=match):
        several.runner.compile(PROGRAM, several, cache=False)  # whoever asks the backend itself


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        ((), "0 devices: none"),
        ((DEVICES[0], Device("cuda", 0, 1)), "2 devices: cpu:0, cuda:0"),
        ((DEVICES[0], DEVICES[0]), "2 devices: cpu:0, cpu:0"),
    ],
)
def test_a_target_has_devices_of_one_kind(devices: Any, shown: str) -> None:
    with pytest.raises(
        InvalidTarget, match=rf"the target has {shown}; expected one or more of one kind, each once: give"
    ):
        Target("xla", devices)


def test_a_backend_that_runs_on_several_devices_is_given_all_of_them(
    eager: Target, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FilePath(__file__).parents[2]), prepend=":")
    both = replace(eager, devices=tuple(DEVICES))
    for plan in (
        pcp.plan(PROGRAM, both),
        pcp.plan(PROGRAM, both, 1e-2, database=tmp_path / "p.sqlite", budget=5),
    ):
        result = plan.run(X)
        assert result.devices == tuple(DEVICES)
        np.testing.assert_allclose(np.asarray(result), EXPECTED, rtol=1e-6)
        assert isinstance(plan.run(result), HostArray)
        assert list(plan.memory) == ["cpu:0", "cpu:1"]
        assert f" on {both}\n" in str(plan)
        assert plan.to_json()["device"] == "cpu:0, cpu:1"
    assert plan.measurement is not None
    assert both.capacity == min(each.capacity for each in DEVICES)
    with pytest.raises(InvalidTarget, match="the target has 2 devices"):
        _ = plan.device


def test_the_environment_may_name_a_device_of_any_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    for named, backend in (("arena:cpu", "arena"), ("cpu", "xla"), ("xla:cpu:0", "xla"), ("", "xla")):
        monkeypatch.setenv("PCP_DEVICE", named)
        assert (Target.of().backend, str(Target.of().device)) == (backend, "cpu:0")
        assert device() == Target.of().device
    assert Target.of(backend="arena").backend == "arena"
    monkeypatch.setenv("PCP_DEVICE", "toaster:3")
    with pytest.raises(UnknownDevice, match="'toaster:3' is not a device of this machine"):
        Target.of()


def test_options_are_given_once() -> None:
    target = Target.of("cpu:0", {"xla_cpu_enable_fast_math": False})
    assert pcp.plan(PROGRAM, target).path.options == (("xla_cpu_enable_fast_math", False),)
    assert pcp.plan(PROGRAM, target, options={"xla_cpu_enable_fast_math": False}).target == target
    with pytest.raises(
        InvalidTarget,
        match=r"options \{'a': 1\} were given beside a target with \{'xla_cpu_en.* in the target",
    ):
        pcp.plan(PROGRAM, target, options={"a": 1})


def test_what_is_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    with pytest.raises(
        UnknownBackend,
        match=r"'abacus' is not a backend here; there are: arena, iree, torch, xla; choose one of them, or register",
    ):
        pcp.plan(PROGRAM, Target("abacus", (DEVICES[0],)))
    with pytest.raises(
        UnknownBackend, match=r"location 'somewhere'; expected a name, and `module:Class` of a Backend"
    ):
        backends.register_backend("abacus", "somewhere")
    with pytest.raises(
        UnknownBackend,
        match=r"'xla' is registered from pcp.backends.xla:XLABackend already; give a:B another",
    ):
        backends.register_backend("xla", "a:B")
    backends.register_backend("abacus", "no.such.module:Abacus")
    with pytest.raises(
        UnknownBackend, match=r"'abacus' cannot be imported from no.such.module:Abacus: No module .*install"
    ):
        backends.backend("abacus")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu:0", False),
        ("cpu", False),
        ("arena", False),
        ("arena:cpu", False),
        ("arena:cpu:0", False),
        ("xla:cpu:0", False),
        ("xla:cuda:1", True),
        ("cuda:0", True),
        ("rocm", True),
        ("iree:llvm-cpu", False),
        ("iree:llvm-cpu:0", False),
        ("iree:vulkan", True),
        ("iree:cuda:0", True),
        ("of-somebody:else", True),
    ],
)
def test_a_processor_needs_no_driver(name: str, expected: bool) -> None:
    assert backends.needs_driver(name) is expected


def test_what_one_backend_measured_says_nothing_of_another() -> None:
    xla, arena = (hardware_of(Target.of(name)) for name in ("cpu:0", "arena:cpu"))
    assert xla.digest_by("xla") == xla.digest
    assert arena.digest_by("arena") == f"arena-{arena.digest}"


def test_targets_are_values() -> None:
    target = Target.of("cpu:0", {"b": 1, "a": 2})
    assert target == Target.of("cpu:0", {"a": 2, "b": 1})
    assert len({target, target.with_options({"a": 2, "b": 1})}) == 1
    assert Target.from_description(target.described()) == target
    assert str(target) == "cpu:0 by xla"
