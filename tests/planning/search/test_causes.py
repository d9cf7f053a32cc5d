"""Which sites spoil a result: those that it depends on most directly; and a search that makes these more exact, not all."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import pytest
from tests.planning.fake_bench import FakeBench, chain, counted_in, kernels, set_strategy, tried_together

import pcp
from pcp.kernels import FAMILIES, Kernel, sites_of
from pcp.kernels.storage import TF32
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.search.causes import Causes, in_all_layers, mixed, part_of
from pcp.planning.search.everywhere import together, try_everywhere
from pcp.planning.search.question import Asking
from pcp.planning.search.site_classes import SiteClass, site_classes
from pcp.planning.search.strategy import Strategy

pytestmark = pytest.mark.usefixtures("bench")

LAYERS, SIZE = 4, 4


def layers() -> pcp.Program:
    """A chain of sines, and what is made of each of them: result 0 after one, result 3 after four."""

    def function(x: pcp.Tensor) -> tuple[pcp.Tensor, ...]:
        results = []
        for _ in range(LAYERS):
            x = pcp.sin(x) + 1.0
            results.append(pcp.log1p(x) * 2.0)
        return tuple(results)

    return pcp.trace(function, pcp.spec((SIZE, SIZE), "f32"))


def classes_of(program: pcp.Program) -> list[SiteClass]:
    return [each for each in site_classes(program, "cpu") if each.family in ("sine", "log1p")]


def depth(program: pcp.Program, distances: dict[str, int], family: str) -> list[int | None]:
    """The distances of the sites of a family, in the order of the program."""
    return [distances.get(site.key) for site in sites_of(program, "cpu") if site.family == family]


def test_a_site_is_as_far_from_a_result_as_there_are_others_between() -> None:
    program = layers()
    causes = Causes(program, sites_of(program, "cpu"))
    last, first = causes.distances([3]), causes.distances([0])
    assert depth(program, last, "sine") == [4, 3, 2, 1]
    assert depth(program, last, "log1p") == [None, None, None, 0]
    assert depth(program, first, "sine") == [1, None, None, None]
    assert depth(program, causes.distances([1, 3]), "sine") == [2, 1, 2, 1]
    assert causes.distances([]) == {}


def test_a_result_that_is_an_argument_depends_on_no_site() -> None:
    program = pcp.trace(lambda x: (x, pcp.sin(x)), pcp.spec((SIZE,), "f32"))
    causes = Causes(program, sites_of(program, "cpu"))
    assert causes.distances([0]) == {}
    assert list(causes.distances([1]).values()) == [0]


def test_kernels_are_more_exact_at_blamed_sites_alone_and_those_without_one_stay_plain() -> None:
    program = layers()
    classes = classes_of(program)
    sine, log1p = ({each.family: each for each in classes}[name] for name in ("sine", "log1p"))
    quick, slow = (FAMILIES["sine"].kernels[f"sine.{name}"] for name in ("fast", "middle"))
    other = FAMILIES["log1p"].kernels["log1p.other"]
    fast, exact = {sine.digest: quick, log1p.digest: other}, {sine.digest: slow}
    blamed = {sine.sites[0].key, log1p.sites[0].key}
    chosen = mixed(classes, fast, exact, blamed)
    assert [chosen[site.key] for site in sine.sites] == [slow, *[quick] * (LAYERS - 1)]
    assert [chosen.get(site.key) for site in log1p.sites] == [None, *[other] * (LAYERS - 1)]
    assert part_of(classes, fast, exact, blamed) == pytest.approx(1 / LAYERS)
    assert part_of(classes, fast, fast, blamed) == 1.0, "nothing would be more exact"


def test_results_of_other_layers_differ_by_numbers_alone() -> None:
    every = [
        "loss",
        "first.layer.0.key.weight",
        "first.layer.11.key.weight",
        "first.layer.11.key.bias",
        "second.layer.1.key.weight",
    ]
    assert in_all_layers(["first.layer.11.key.weight"], every) == set(every[1:3])
    assert in_all_layers(["loss"], every) == {"loss"}
    assert in_all_layers([], every) == set()


def spoilt(
    bench: FakeBench, monkeypatch: pytest.MonkeyPatch, error: Callable[[Request], tuple[float, list[str]]]
) -> None:
    """Let whole programs be as wrong as this says, in the results that it names."""
    measure = bench.measure

    def measured(request: Request) -> Measurement:
        row = measure(request)
        if not request.tolerance or not sum(counted_in(request)[name] for name in ("tanh", "logistic")):
            return row
        size, missed = error(request)
        is_wrong = size > request.tolerance
        return replace(
            row,
            error=size,
            seconds=() if is_wrong else row.seconds,
            plain_seconds=() if is_wrong else row.plain_seconds,
            failure=Failure.inaccurate if is_wrong else None,
            judgement=Judgement(missed[0] if missed else "3", missed=tuple((each, size) for each in missed)),
        )

    monkeypatch.setattr(bench, "measure", measured)


def fast_sines(request: Request) -> list[bool]:
    """Of each sine of the chain, whether the fast kernel stands there."""
    assert isinstance(request.candidate, pcp.Program)
    text = request.candidate.text
    return [
        "stablehlo.tanh" in line
        for line in text.splitlines()
        if any(f"stablehlo.{name} " in line for name in ("tanh", "logistic", "sine"))
    ]


def test_what_spoils_one_result_is_made_more_exact_and_everything_else_stays_fast(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0, settled_on=("cpu",))
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    spoilt(bench, monkeypatch, lambda request: (2e-2, ["3"]) if fast_sines(request)[-1] else (1e-3, []))
    plan = pcp.plan(layers(), tolerance=1e-2, database=file)
    assert [fast_sines(each) for each in bench.wholes] == [[True] * 4, [True, True, True, False]]
    assert kernels(plan) == {"sine.fast": 3, "sine.middle": 1, "log1p.other": 4}


def test_where_the_first_guess_is_not_enough_sites_further_away_count_too_in_all_layers_alike(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0, few_causes=1.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    spoilt(
        bench,
        monkeypatch,
        lambda request: (5e-3 * (1 + sum(fast_sines(request))), ["3"] if any(fast_sines(request)) else []),
    )
    pcp.plan(layers(), tolerance=9e-3, database=file)
    assert [sum(fast_sines(each)) for each in bench.wholes][:3] == [4, 3, 0]


@pytest.mark.parametrize("missed", [["0", "1", "2", "3"], ["3"]])
def test_where_many_sites_are_to_blame_or_it_hardly_helps_the_next_level_is_tried_everywhere(
    missed: list[str], bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    spoilt(bench, monkeypatch, lambda request: (2e-2, missed) if any(fast_sines(request)) else (1e-3, []))
    pcp.plan(layers(), tolerance=1e-2, database=file)
    found = [sum(fast_sines(each)) for each in bench.wholes]
    assert found[: 2 if len(missed) > 1 else 3] == ([4, 0] if len(missed) > 1 else [4, 3, 0])


def test_where_there_is_time_for_one_more_whole_it_is_the_next_level(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    spoilt(bench, monkeypatch, lambda request: (2e-2, ["3"]) if fast_sines(request)[-1] else (1e-3, []))
    now, measure = [0.0], bench.measure

    def measured(request: Request) -> Measurement:
        now[0] += 10.0
        return measure(request)

    monkeypatch.setattr(bench, "measure", measured)
    monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda: now[0])
    plan = pcp.plan(layers(), tolerance=1e-2, database=file, budget=35.0)
    assert [sum(fast_sines(each)) for each in bench.wholes][:2] == [4, 0]
    assert kernels(plan)["sine.middle"] == 4
    bench.requests.clear()
    pcp.plan(layers(), tolerance=1e-2, database=file, budget=1e3)
    assert 3 not in [sum(fast_sines(each)) for each in bench.wholes[:1]], (
        "what was finished is not begun anew"
    )


def levels_tried(forms: tuple[str, ...], too_wrong: set[tuple[int, int]]) -> tuple[list[str], bool, Any]:
    """Which kernels of sines are tried together of a program in which only the exact ones hold, and whether that is all."""
    classes = classes_of(layers())
    sine = next(each for each in classes if each.family == "sine")
    asked = []

    def measured(kernels: Mapping[str, Kernel], *_: Any, **__: Any) -> Asking[Measurement]:
        asked.append(kernels[sine.sites[0].key].name)
        yield from ()
        is_right = asked[-1] != "sine.fast"
        times = ((1.0,) * 5, (2.0,) * 5) if is_right else ((), ())
        failure = None if is_right else Failure.inaccurate
        return Measurement("", "", "", "", *times, error=1e-3 if is_right else 2e-2, failure=failure)

    whole: Any = SimpleNamespace(
        tolerance=1e-2,
        forms=forms,
        path=lambda kernels: kernels,
        measured=measured,
        measured_again=measured,
        is_exact_enough=lambda row: row.failure is None,
        is_broken=lambda row: row.error is None,
    )
    evidence: Any = SimpleNamespace(strategy=Strategy(), too_wrong=too_wrong, measured=0)
    walk = try_everywhere(whole, classes, evidence)
    try:
        next(walk)
    except StopIteration as end:
        return asked, end.value, evidence
    raise AssertionError


def test_another_form_begins_with_what_was_not_too_wrong_in_the_program_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    asked, is_all, evidence = levels_tried((), set())
    assert asked[:2] == ["sine.fast", "sine.middle"]
    assert not is_all
    assert evidence.too_wrong == {TF32.exactness}
    assert levels_tried(("stored",), evidence.too_wrong)[:2] == (["sine.middle"], True)
    assert levels_tried(("stored",), set())[0][:2] == ["sine.fast", "sine.middle"]
    assert levels_tried((), evidence.too_wrong)[0][:2] == ["sine.fast", "sine.middle"], "as it is written"


def test_a_chain_whose_results_are_all_too_wrong_has_no_few_causes() -> None:
    program = chain()
    distances = Causes(program, sites_of(program, "cpu")).distances([0, 1, 2])
    assert sorted(distances.values()) == [0, 0, 0, 1, 1, 1]


def test_where_next_to_no_time_is_spent_nothing_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    tried_together(monkeypatch, "sine.bitwise", "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    sines, logarithms = sorted(classes_of(layers()), key=lambda each: each.family, reverse=True)

    def strongest(seconds: float) -> list[str]:
        classes = [replace(sines, estimate=seconds), replace(logarithms, estimate=1.0)]
        level = next(together(classes, 0.5, negligible=0.1))
        return sorted(kernel.name for kernel in level.values())

    assert strongest(1.0) == ["log1p.other", "sine.fast"]
    assert strongest(0.01) == ["log1p.other", "sine.bitwise"]
