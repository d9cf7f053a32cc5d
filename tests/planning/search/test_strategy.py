"""A search is a function of its strategy and its evidence: on recorded rows it chooses what it chose then."""

from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
from tests.planning.search.recorded import (
    NotRecorded,
    Replay,
    add_sines,
    kernels,
    recorded,
    search_by,
)

from pcp.planning.search.search import Found
from pcp.planning.search.strategy import Step, Strategy


@pytest.fixture(autouse=True)
def sines(monkeypatch: pytest.MonkeyPatch) -> None:
    add_sines(monkeypatch)
    monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", lambda _: None)
    monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda: 0.0)


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
