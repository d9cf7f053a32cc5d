"""A search is a function of its strategy and its evidence: on recorded rows it chooses what it chose then."""

import itertools
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.planning.fake_bench import tried_together
from tests.planning.search.recorded import (
    NotRecorded,
    Replay,
    add_sines,
    kernels,
    recorded,
    search_by,
)

from pcp.kernels import Kernel
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.found import Found
from pcp.planning.search.strategy import Step, Strategy


@pytest.fixture(autouse=True)
def sines(monkeypatch: pytest.MonkeyPatch) -> None:
    add_sines(monkeypatch)
    monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", lambda _: None)
    clock = itertools.count()
    monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda: next(clock) / 100)


def replayed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, strategy: Strategy
) -> tuple[Found, list[tuple[str, str]]]:
    rows, _ = recorded()
    replay = Replay(rows)
    return search_by(replay, folder, monkeypatch, strategy), replay.asked


def test_a_recorded_search_asks_the_same_and_chooses_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, chosen = recorded()
    found, asked = replayed(tmp_path, monkeypatch, Strategy())
    assert asked == [(row.subject, row.path) for row in rows]
    assert kernels(found) == chosen
    assert chosen  # the recorded search was one that found something
    assert found.measured == len(rows)
    assert found.complete


@pytest.mark.parametrize(("most_kept_back", "sites"), [(0.3, 2), (0.0, 0)])
def test_by_recorded_times_the_fastest_path_is_verified_before_the_budget_ends(
    most_kept_back: float, sites: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, chosen = recorded()
    replay, now = Replay(rows), [0.0]
    alone = {(row.subject, row.path): replace(row, seconds=(), plain_seconds=()) for row in rows}
    verified = []

    def measure(request: Request) -> Measurement:
        """From the recorded rows, in the time that they took; a site is verified as when the kernel was timed alone."""
        kernel, at_its_site, _ = request.path.partition(" at its site")
        if at_its_site:
            verified.append(request)
            row = alone[request.subject.digest, kernel]
        else:
            row = replay.measure(request)
        now[0] += 0.5 + sum(row.seconds) + sum(row.plain_seconds)
        return row

    monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Kernel, "is_added", True)  # one of PCP's own may count by the whole alone
    tried_together(monkeypatch, "sine.f32")
    strategy = Strategy(large_seconds=0.0, for_whole=0.0, most_kept_back=most_kept_back)
    found = search_by(SimpleNamespace(measure=measure), tmp_path, monkeypatch, strategy, budget=4.0)
    assert len(verified) == sites
    assert kernels(found) == (chosen if sites else [])
    assert any("was not verified" in note for note in found.notes) is not bool(sites)


def test_a_real_search_uses_nothing_that_was_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with the time that passes
    with pytest.MonkeyPatch.context() as patch, Bench() as bench:
        add_sines(patch)
        patch.setattr(Kernel, "is_added", True)
        tried_together(patch, "sine.f32")
        found = search_by(
            bench, tmp_path, patch, Strategy(large_seconds=0.0, steps=(Step.plain, Step.everywhere)), 60.0
        )
        database = ProfileDatabase(tmp_path / "profile.sqlite")
        held = {
            row.path.partition(" at its site ")[0]  # then the digest of what the kernel is there
            for row in database.measurements()
            if row.failure is None and not row.seconds and " at its site " in row.path
        }
    if not found.path.is_plain:
        assert kernels(found) == ["sine.f32"] * 4
    assert found.path.is_plain == (held != {"sine.f32@1"})


def test_steps_are_taken_in_the_order_of_the_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing, asked = replayed(tmp_path / "a", monkeypatch, Strategy(steps=(Step.plain,)))
    assert (kernels(nothing), len(asked)) == ([], 1)
    alone, asked = replayed(tmp_path / "b", monkeypatch, Strategy(steps=(Step.classes,)))
    assert kernels(alone) == []  # no whole program was measured
    assert {path.partition("@")[0] for _, path in asked} == {"sine.f32", "sine.bf16"}
    last, late = replayed(tmp_path / "c", monkeypatch, Strategy(steps=(Step.classes, Step.plain)))
    assert late == [*asked, late[-1]]
    assert kernels(last) == []


def test_another_number_is_another_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choosy, _ = replayed(tmp_path / "a", monkeypatch, Strategy(margin=0.99, gaps=(), expected=100.0))
    assert kernels(choosy) == []  # nothing takes a hundredth of the time
    with pytest.raises(
        NotRecorded, match=r"was not measured in recorded_search.jsonl as often; .*record again"
    ):
        replayed(tmp_path / "b", monkeypatch, Strategy(margin=0.99))  # so all is in doubt


def test_a_strategy_is_a_value_whose_every_number_is_explained() -> None:
    assert Strategy() == replace(Strategy(tie=2.0), tie=1.05)
    with pytest.raises(FrozenInstanceError):
        Strategy().tie = 2.0  # type: ignore[misc]  # it is frozen
    told = Strategy.__doc__ or ""
    for field in fields(Strategy):
        assert f"{field.name}:" in told or f"{field.name}, " in told or f", {field.name}:" in told, field.name
