"""Options of the compiler are moves of a path: whoever makes one asks the backend what suits the program."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from tests.backends.eager import DEVICES, TunedBackend

import pcp
from pcp import Path, backends
from pcp.backends import Target, registry
from pcp.planning.paths.path import PathMismatch
from pcp.planning.plan import PlanConflict
from pcp.planning.search.whole import Whole

X = np.random.default_rng(0).standard_normal((3, 4), np.float32)
PROGRAM = pcp.trace(lambda x: pcp.sin(x) * x, X)
PLAIN = pcp.trace(lambda x: x + x, X)
SUITS = (("slow", True), ("wide", 2))


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    monkeypatch.setenv("PYTHONPATH", str(FilePath(__file__).parents[3]), prepend=":")
    backends.register_backend("tuned", "tests.backends.eager:TunedBackend")
    TunedBackend.told.clear()
    yield Target.of("tuned:cpu:0")
    TunedBackend.told.clear()


def test_a_plan_has_the_options_that_suit_its_program_and_shows_them(tuned: Target) -> None:
    plan = pcp.plan(PROGRAM, tuned)
    assert plan.path.options == plan.target.options == SUITS
    assert TunedBackend.told == [(PROGRAM.digest, dict(SUITS))]
    assert "\n  option      slow=True, wide=2" in str(plan)
    assert json.loads(plan.path.to_json())["options"] == [["slow", True], ["wide", 2]]
    assert plan.path.digest != Path.plain(PROGRAM, backend="tuned").digest
    assert plan.path.is_plain
    assert pcp.plan(PLAIN, tuned).path.options == ()
    assert "  option " not in str(pcp.plan(PLAIN, tuned))


def test_options_of_the_user_win_over_them(tuned: Target) -> None:
    for plan in (
        pcp.plan(PROGRAM, "tuned:cpu:0", options={"wide": 1, "more": "yes"}),
        pcp.plan(PROGRAM, tuned.with_options({"wide": 1, "more": "yes"})),
    ):
        assert dict(plan.path.options) == {"slow": True, "wide": 1, "more": "yes"}
    assert pcp.plan(PROGRAM, path=plan.path).path == plan.path
    assert pcp.plan(PROGRAM, tuned, path=plan.path, options={"wide": 1}).path == plan.path
    with pytest.raises(
        PlanConflict, match=r"the options \{'wide': 2\} are not those of the path, \{'more': 'yes', 'slow'"
    ):
        pcp.plan(PROGRAM, tuned, path=plan.path, options={"wide": 2})


@pytest.mark.usefixtures("tuned")
def test_a_file_from_before_is_followed_with_the_options_that_its_program_was_compiled_with(
    tmp_path: FilePath,
) -> None:
    for options in ([], [["wide", 1]]):
        old = (
            f'{{"format":1,"program":"{PROGRAM.digest}","prepared":"","backend":"tuned","options":{json.dumps(options)},'
            '"choices":[],"hardware":"","versions":""}'
        )
        (tmp_path / "old.json").write_text(old)
        TunedBackend.told.clear()
        plan = pcp.plan(PROGRAM, path=Path.load(tmp_path / "old.json"))
        wanted = dict(SUITS) | {name: value for name, value in options}
        assert TunedBackend.told == [(PROGRAM.digest, wanted)]
        assert dict(plan.path.options) == wanted
        plan.path.save(tmp_path / "new.json")
        again = Path.load(tmp_path / "new.json")
        assert again == plan.path
        assert pcp.plan(PROGRAM, path=again).path == again


def test_a_search_measures_paths_with_their_options_and_the_plain_program_with_its_own(
    tuned: Target, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "profile.sqlite"
    asked = []
    measure = pcp.planning.measuring.bench.Bench.measure
    monkeypatch.setattr(
        "pcp.planning.measuring.bench.Bench.measure",
        lambda self, request: (asked.append(request), measure(self, request))[1],
    )
    plan = pcp.plan(PROGRAM, tuned, 1e-2, database=database, budget=5)
    assert plan.path.options == SUITS
    whole = [each for each in asked if each.site is None]
    assert whole
    assert all(each.target.options == SUITS for each in whole)
    assert all(each.options == each.target_for(each.candidate).options == SUITS for each in whole)
    np.testing.assert_allclose(np.asarray(plan.run(X)), np.sin(X) * X, rtol=1e-6)
    rows = pcp.ProfileDatabase(database).measurements()
    assert plan.path.digest in {row.path for row in rows}


def test_a_candidate_without_a_path_has_the_options_that_suit_it_alone(tuned: Target) -> None:
    from pcp.planning.measuring.request import Request

    request = Request(PROGRAM, PLAIN, "kernel", target=tuned)
    assert request.target_for(PLAIN).options == ()
    assert request.target_for(PROGRAM).options == SUITS
    assert replace(request, options=(("slow", False),)).target_for(PROGRAM).options == (("slow", False),)


def test_a_path_that_cannot_be_applied_says_so_where_it_is(tuned: Target) -> None:
    path = replace(Path.plain(PROGRAM, {"wide": 1}, "tuned"), prepared="0" * 64)
    assert path.suited(PROGRAM, tuned) == path
    with pytest.raises(PathMismatch, match="the path was made for the program simplified to 000000000000"):
        pcp.plan(PROGRAM, path=path)


def test_paths_are_asked_for_the_program_that_they_have_compiled(tuned: Target) -> None:
    whole = Whole(
        pcp.trace(lambda x: x * 1.0 + x, X), 1e-2, tuned
    )  # the product is gone once it is simplified
    assert whole.plain.options == (("wide", 2),)
    assert whole.path({}).options == ()
    assert whole.plain_on(replace(tuned, devices=tuple(DEVICES))).options == (("wide", 2),)
    assert whole.plain_on(Target.of("cpu:0")).options == ()
