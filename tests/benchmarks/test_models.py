"""The comparison of models that PCP did not write: its errors and its rows; the models themselves need packages of peers."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.models.contestants import BETAS, Made, Task, Watch, _error_of
from benchmarks.models.models import Row, compare, line_of, parts_of, tolerance_of


@pytest.mark.parametrize(("off", "error", "name"), [(0.0, 0.0, ""), (0.01, 0.01, "weight"), (1e-9, 0.0, "")])
def test_a_gradient_that_is_nothing_is_judged_on_the_scale_of_all(
    off: float, error: float, name: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    right = {"weight": rng.normal(size=(8, 8)), "key.bias": 1e-12 * rng.normal(size=8)}
    for key, exact in right.items():
        np.save(tmp_path / f"{key}.npy", exact)

    def moments() -> Iterator[tuple[str, Any]]:
        yield "weight", (1 - BETAS[0]) * (1 + off) * right["weight"]
        yield "key.bias", -(1 - BETAS[0]) * right["key.bias"]  # wrong by twice its own size

    contestant: Any = SimpleNamespace(moments=moments)
    found, worst = _error_of(contestant, tmp_path)
    assert found == pytest.approx(error, rel=1e-3, abs=1e-8)
    assert worst == name or not error


def test_rows_as_text() -> None:
    row = {
        "contestant": "PCP within 0.1", "step_seconds": 0.05, "fastest_seconds": 0.049, "slowest_seconds": 0.052,
        "peak_bytes": 2**33, "ready_seconds": 90.0, "again_seconds": 14.0, "error": 0.012, "error_of": "w", "about": "",
        "ratio": 0.593,
    }  # fmt: skip
    assert "90.0 s   14.0 s      50.0 ms (      49.0 to 52.0)   0.59    8.0 GiB    0.012  of w" in line_of(
        row
    )
    assert line_of({"contestant": "plain", "about": "it does not fit"}).endswith("left out: it does not fit")


def test_parts_are_timed_one_after_another_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 13.0, 17.0, 17.5])
    monkeypatch.setattr("benchmarks.models.contestants.time.perf_counter", lambda: next(now))
    watch = Watch()
    for name in ("model", "import", "first step"):
        watch.ends(name)
    assert watch.parts == {"model": 3.0, "import": 4.0, "first step": 0.5}
    assert parts_of(Made("planned", 4.5, parts=watch.parts)) == "model 3.0 s, import 4.0 s, first step 0.5 s"


def test_the_tolerance_is_a_number_or_that_of_torch() -> None:
    assert tolerance_of("0.05") == 0.05
    assert tolerance_of("torch") is None
    with pytest.raises(argparse.ArgumentTypeError, match="'some' was given; expected a number, or `torch`"):
        tolerance_of("some")


@pytest.mark.parametrize("knows", [True, False])
def test_pcp_is_planned_at_the_error_of_torch_on_the_same_batch(
    knows: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, float | None]] = []

    class Process:
        def __init__(self, _: Any, *arguments: Any) -> None:
            self.made = None
            if len(arguments) > 1:
                kind, _, tolerance, _ = arguments
                asked.append((kind, tolerance))
                error = (0.0137 if knows else None) if kind == "torch.compile" else 0.01
                self.made = Made(kind, 1.0, 0, error, "w")
            self.seconds = 4.0 if self.made is not None and self.made.name == "planned" else 5.0

        def __enter__(self) -> "Process":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def call(self, _: int) -> tuple[float, float]:
            return self.seconds, 0.0

    monkeypatch.setattr("benchmarks.models.models.OwnProcess", Process)
    rows: list[Row] = []
    task = Task("bert", 2, 1, 64, "cpu:0", str(tmp_path))
    kinds = ("torch.compile", "planned", "plain")
    compare(task, kinds, None, 1.0, 1, rows.append, lambda _: None, once=True)
    if knows:
        assert ("planned", 0.0137) in asked
        assert [row["ratio"] for row in rows] == [1.0, 0.8, 1.0]
    else:
        assert "planned" not in [kind for kind, _ in asked]
        (words,) = (row["about"] for row in rows if row["contestant"] == "planned")
        assert (
            words
            == "it is to be planned at the error of torch.compile, which is not known; run that before it"
        )
