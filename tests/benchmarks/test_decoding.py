"""Decoding beside other libraries: what is compared is the same text, and whoever is not installed is left out."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.programs import decoding
from benchmarks.programs.decoding import DRY, Task, compared, contestant, line_of
from benchmarks.programs.decoding_llama import written

from pcp.importers.gguf import read_gguf
from pcp.ir.tree import flatten

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


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert contestant("llama q8_0", TASK, None) is None
    assert contestant("q4_0", TASK, None) is None


def test_the_file_of_a_peer_holds_what_all_are_given(tmp_path: Path) -> None:
    pytest.importorskip("gguf.gguf_writer")  # a folder of tests has the first name
    path = written(TASK.parameters, TASK.config, "f16", tmp_path)
    found = read_gguf(path)
    assert dataclasses.replace(found.config, epsilon=TASK.config.epsilon) == TASK.config
    given, read = (flatten(each)[0] for each in (TASK.parameters, found.parameters))
    for right, mine in zip(given, read, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-3, atol=1e-6)
