"""Measurements of others: checked, merged, bounded; they order what is tried, and nothing else."""

import math
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.backends import Target
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.measurement_text import InvalidRows
from pcp.planning.profile import database as database_module
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import MOST_ROWS, RECEIVED, checked, merged, shared_of

REGION, OTHER = "a" * 64, "b" * 64


def row(path: str, ratio: float, **changes: Any) -> Measurement:
    given: dict[str, Any] = {"subject": REGION, "path": path, "hardware": "c" * 16, "versions": "v"}
    return Measurement(**given | {"seconds": (ratio,), "plain_seconds": (1.0,)} | changes)


def test_what_others_are_told() -> None:
    failed = row("softmax.other@2", 1.0, seconds=(), failure=Failure.crash, detail="a name of a file here")
    rows = [row("softmax.fused@1", 0.5), failed, row("d" * 64, 0.1), row("plain", 1.0), row("x@1", 1e9)]
    assert shared_of(rows) == [
        (REGION, "softmax.fused@1", 0.5),
        (REGION, "softmax.other@2", math.inf),
        (REGION, "x@1", 1e6),
    ]
    assert checked(shared_of(rows)) == shared_of(rows)
    assert len(shared_of(row(f"k@{number}", 0.5) for number in range(2000))) == MOST_ROWS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(REGION, "k@1", 0.5)] * (MOST_ROWS + 1), "it holds 513 rows; expected at most 512"),
        ([(REGION, "k@1")], "expected 64 hexadecimal digits, a kernel and a number"),
        ([None], "a row is None; expected 64 hexadecimal digits"),
        ([(REGION.upper(), "k@1", 0.5)], "expected 64 hexadecimal digits"),
        ([(REGION, "k" * 200 + "@1", 0.5)], "expected NAME@VERSION"),
        ([(REGION, "../k@1\n", 0.5)], "expected NAME@VERSION"),
        ([(REGION, "d" * 64, 0.5)], "expected NAME@VERSION"),
        ([(REGION, "k@1", math.nan)], "the ratio is nan; expected 1e-6 to 1e6, or infinity"),
        ([(REGION, "k@1", -1.0)], "the ratio is -1.0"),
        ([(REGION, "k@1", 10**400)], "the ratio is 1000"),
        ([(REGION, "k@1", "0.5")], "the ratio is '0.5'"),
    ],
)
def test_rows_that_are_none_are_refused(rows: list[Any], message: str) -> None:
    with pytest.raises(InvalidRows, match=message.replace("..", r"\.\.")):
        checked(rows)


@given(st.lists(st.recursive(st.none() | st.floats() | st.text() | st.booleans() | st.integers(), st.lists)))
def test_whatever_comes_is_refused_or_well_formed(rows: list[Any]) -> None:
    try:
        found = checked(rows)
    except InvalidRows:
        return
    assert all(len(each) == 3 and each[2] > 0 for each in found)


def test_a_minority_does_not_move_what_is_merged() -> None:
    honest = [[(REGION, "good@1", ratio), (OTHER, "rare@1", 0.9)] for ratio in (0.4, 0.5, 0.6)]
    hostile = [[(REGION, "good@1", math.inf)] * 100, [(REGION, "good@1", 1e6)]]
    [(subject, kernel, ratio), rare] = merged([*honest, *hostile])
    assert (subject, kernel, ratio) == (REGION, "good@1", 0.6)
    assert rare == (OTHER, "rare@1", 0.9)
    many = [[(REGION, f"junk@{number}", 1e-6) for number in range(MOST_ROWS)]]
    assert merged([*many, *honest])[0][1] == "good@1", "one that says much displaces nothing that many say"


def test_received_rows_order_and_count_for_nothing_else(tmp_path: FilePath) -> None:
    here = hardware_of(Target.of()).digest
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    assert database.receive([(REGION, "slow@1", 1e-6), (REGION, "fast@1", math.inf)]) == 2
    assert database.receive([(REGION, "slow@1", 1e-6)]) == 1
    assert database.ranking(REGION, here, versions()) == ["slow@1", "fast@1"]
    assert database.measurements(REGION, here) == []
    assert {each.hardware for each in database.measurements(REGION)} == {RECEIVED}
    database.add(row("fast@1", 0.5, hardware=here, versions=versions()))
    database.add(row("slow@1", 2.0, hardware=here, versions=versions()))
    assert database.ranking(REGION, here, versions()) == ["fast@1", "slow@1"], (
        "what was measured here counts first"
    )


def test_received_rows_are_bounded(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "KEPT_ROWS", 10)
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    own = row("own@1", 0.5)
    database.add(own)
    for start in range(0, 30, 6):
        database.receive([(REGION, f"k@{number}", 0.5) for number in range(start, start + 6)])
    kept = [each.path for each in database.measurements(hardware=RECEIVED)]
    assert kept == [f"k@{number}" for number in range(20, 30)]
    assert own in database.measurements()
