"""Decoding beside other libraries: what is compared is the same text, and whoever is not installed is left out."""

from typing import Any

import numpy as np
import pytest
from benchmarks.programs import decoding
from benchmarks.programs.decoding import DRY, Task, compared, contestant, line_of

TASK = Task(DRY, prompt=20, count=3, rows=2)


class Here:
    """A contestant in this process."""

    def __init__(self, make: Any, *arguments: Any) -> None:
        self._run: Any = None
        made = make(*arguments)
        self.made = made and made[0]
        if made:
            self._run = made[1]

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, argument: Any) -> tuple[float, Any]:
        return 0.0, self._run(argument)


def test_all_read_the_same_tokens_and_are_as_wrong_as_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "OwnProcess", Here)
    made = decoding.contestant
    monkeypatch.setattr(
        decoding,
        "contestant",
        lambda kind, task, tolerance: None if kind == "torch" else made(kind, task, tolerance),
    )
    rows = {row["contestant"]: row for row in compared(["f32", "int4", "torch"], TASK, turns=2)}
    assert rows["PCP, f32 weights"]["error"] < 1e-4 < 1e-2 < rows["PCP, int4 weights"]["error"] < 0.5
    assert rows["torch"] == {"contestant": "torch", "about": "not installed"}
    assert "tokens/s" in decoding.HEAD
    for row in rows.values():
        assert row["contestant"] in line_of(row)


def test_a_turn_reads_every_token() -> None:
    made = contestant("f32", TASK, None)
    assert made is not None
    turn = made[1](None)
    assert len(turn.each) == TASK.count - 1  # the last one is told, too
    tokens, told = turn.told
    exact = TASK.exactly()
    assert set(tokens) == set(np.argsort(-exact)[:20])
    np.testing.assert_allclose(told, exact[tokens], atol=1e-5)
