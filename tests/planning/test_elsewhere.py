"""A plan for several places takes the fastest within the tolerance, also where that is another backend."""

from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, chain

import pcp
from pcp import backends
from pcp.backends import Target, registry
from pcp.planning.conditions import NoPlaces, places_of
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request
from pcp.planning.plan import PlanConflict

PLACES = ["cpu:0", "arena:cpu"]


@pytest.mark.cpu
def test_the_whole_program_is_taken_elsewhere_if_it_is_faster_there(bench: FakeBench, file: FilePath) -> None:
    bench.elsewhere = {"arena": (0.1, 1e-6)}
    program = chain()
    plan = pcp.plan(program, PLACES, tolerance=1e-2, database=file)
    assert (plan.backend.name, plan.path.backend, plan.error) == ("arena", "arena", 1e-6)
    assert plan.to_json()["backend"] == "arena"
    assert "path        plain by arena: 10.00 times as fast as the plain path" in str(plan)
    assert (
        "note        on cpu:0 by arena the whole takes 0.10 of the plain path's time, error 1.0e-06"
        in str(plan)
    )
    x = [np.full((size, size), 0.3, np.float32) for size in (4, 5, 6)]
    np.testing.assert_allclose(np.asarray(plan.run(*x)[0]), np.sin(np.sin(x[0]) + 1), rtol=1e-6)
    assert pcp.plan(program, path=plan.path).backend.name == "arena"
    count = len(bench.requests)
    again = pcp.plan(program, PLACES, tolerance=1e-2, database=file)
    assert (again.path, len(bench.requests)) == (plan.path, count)  # known


@pytest.mark.parametrize(
    ("slower", "error", "noted"),
    [
        (3.0, 1e-6, "the whole takes 3.00 of the plain path's time, error 1.0e-06"),
        (0.5, 1e-6, "the whole takes 0.50 of the plain path's time, error 1.0e-06"),  # kernels take a fifth
        (0.1, 0.5, "it was not measured, or does not count: inaccurate: the error of result 0 is 0.5"),
    ],
)
def test_it_stays_where_that_is_faster_or_more_exact(
    bench: FakeBench, file: FilePath, slower: float, error: float, noted: str
) -> None:
    bench.elsewhere = {"arena": (slower, error)}
    plan = pcp.plan(chain(), PLACES, tolerance=1e-2, database=file)
    assert (plan.backend.name, len(plan.path.choices)) == ("xla", 6)
    assert f"note        on cpu:0 by arena {noted}" in str(plan)


def test_the_fastest_of_three_is_taken(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    backends.register_backend("eager", "tests.backends.eager:EagerBackend")
    bench.elsewhere = {"eager": (0.05, 1e-6), "arena": (0.1, 1e-6)}
    program = pcp.trace(lambda x: pcp.sin(pcp.sin(x) * x), pcp.spec((4,), "f32"))
    for places in (["cpu:0", "eager:cpu", "arena:cpu"], ["cpu:0", "arena:cpu", "eager:cpu"]):
        assert pcp.plan(program, places, tolerance=1e-2, database=file).backend.name == "eager"


def test_any_is_what_every_installed_backend_has_first(monkeypatch: pytest.MonkeyPatch) -> None:
    locations = {"xla": registry._LOCATIONS["xla"], "arena": registry._LOCATIONS["arena"]}
    monkeypatch.setattr(registry, "_LOCATIONS", locations | {"absent": "no.such.module:Absent"})
    assert places_of("any") == (None, [Target.of("arena:cpu:0")])


def test_results_elsewhere_are_measured_and_judged_beside_those_of_xla() -> None:
    loss = pcp.trace(
        lambda w, x: ((x @ w) ** 2).mean(), np.zeros((3, 1), np.float32), pcp.spec((8, 3), "f32")
    )
    step = pcp.training_step(loss, pcp.optimizers.sgd(1e-2))  # whose state is donated
    request = Request(
        step,
        step,
        "elsewhere",
        exact=step,
        tolerance=1e-3,
        timing_seconds=0.05,
        elsewhere=Target.of("arena:cpu"),
    )
    with Bench() as real:
        row = real.measure(request)
    assert row.failure is None
    assert row.error is not None
    assert row.error < 1e-5
    assert min(len(row.seconds), len(row.plain_seconds)) >= 3


@pytest.mark.parametrize(
    ("places", "options", "error", "match"),
    [
        ([], {"tolerance": 1e-2}, NoPlaces, r"the list of devices is empty; give one or more, as \['cpu:0', 'iree:llvm-cpu'"),
        (
            PLACES, {}, PlanConflict,
            r"several devices were given \(\['cpu:0', 'arena:cpu'\]\) and no tolerance; .*: give a tolerance, or one device",
        ),
        (["cpu:0", "arena:gpu"], {"tolerance": 1e-2}, backends.UnknownDevice, "'gpu' is not a device of this machine"),
    ],
)  # fmt: skip
def test_places_that_cannot_be_compared_are_refused(
    places: Any, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        pcp.plan(chain(), places, **options)
