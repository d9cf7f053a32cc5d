"""Kinds of moves: each has a sample here, which is written to a file and read again, and makes another path of a program."""

import json

import pytest

from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.kinds import (
    KINDS,
    STREAMED,
    Kind,
    Layout,
    Stage,
    at_stages,
    by_kind,
    changes_of,
    in_order,
    words_of,
)
from pcp.planning.paths.kinds.kernels import Choice
from pcp.planning.paths.move import Move
from pcp.planning.paths.path import Path
from pcp.rewrite.equality import Form, PartForm, Step
from pcp.rewrite.memory.recomputation import Recomputation
from pcp.rewrite.row import Effect, strongest

DIGEST = "5" * 64
SAMPLES = {
    "option": [("xla_cpu_enable_fast_math", False), ("level", 2)],
    "kernel": [("1" * 64, Choice("product.xla:bf16", 1)), ("0" * 64, Choice("product.native", 2, "a" * 32))],
    "remade": [("", Recomputation(2, 7, (0, 3, 5), DIGEST))],
    "equal": [("", Form((PartForm((0, 1), (Step("Leaf", (), (0,)),), (0,)),), DIGEST))],
    "zeros": [("", True)],
    "layout": [("", Layout("zero1", 4))],
    "stored": [("results", "bf16"), ("factors 64x32", "bf16"), ("argument 3", "int4"), ("state 5", "bf16")],
    "blocks": [("", 1 << 28)],
    "parts": [("", 4)],
    "streamed": [("", ("xla:cuda:0", 1 << 30))],
    "bound": [("", 3)],
    "placed": [("2" * 64, "arena:cpu:0"), ("1" * 64, "xla:cuda:1")],
}


def moves_of(kind: Kind) -> list[Move]:
    return [kind.move(value, at) for at, value in SAMPLES[kind.name]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_written_and_read(kind: Kind) -> None:
    path = Path("7" * 64, tuple(moves_of(kind)), prepared=DIGEST)
    again = Path.from_json(path.to_json())
    assert again == path
    assert again.digest == path.digest
    assert list(again.moves) == sorted(moves_of(kind), key=lambda move: move.at)
    without = path.having(kind.name)
    assert without == Path("7" * 64, prepared=DIGEST)
    assert without.digest != path.digest
    assert replaced(path, kind) == path


def replaced(path: Path, kind: Kind) -> Path:
    return path.having(kind.name).having(kind.name, reversed(moves_of(kind)))


def test_a_path_changes_numbers_as_its_strongest_move_does() -> None:
    def changes(*names: str) -> Effect:
        moves = [move for kind in KINDS if kind.name in names for move in moves_of(kind)]
        return changes_of(in_order(moves))

    assert changes() is Effect.exact
    assert changes("equal") is changes("parts", "remade") is Effect.reassociating
    assert changes("stored") is changes("equal", "stored") is changes("kernel") is Effect.lowers_precision
    assert strongest([]) is strongest([Effect.exact]) is Effect.exact


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [7.5, "words", [[]], {"a": 1}, [["1" * 64, "x", 1, 2, 3]]], ids=repr)
def test_what_is_no_entry_of_a_kind(kind: Kind, value: object) -> None:
    if kind is STREAMED and not isinstance(value, dict):
        assert not list(kind.read(value))  # which the kind that shares its entry reads
        return
    entries = json.loads(Path("7" * 64, prepared=DIGEST).to_json())
    with pytest.raises(
        NotAPath, match=r"the .* of the path (is|are) .*; expected .*: plan again and save that"
    ):
        Path.from_json(json.dumps(entries | {kind.entry: value}))


def test_moves_stand_in_one_order_whatever_order_they_come_in() -> None:
    every = [move for kind in reversed(KINDS) if kind is not STREAMED for move in reversed(moves_of(kind))]
    path = Path("7" * 64, tuple(every), prepared=DIGEST)
    assert path.moves == in_order(every)
    assert path == Path("7" * 64, tuple(reversed(every)), prepared=DIGEST)
    assert [kind.name for kind, _ in by_kind(path.moves)] == [k.name for k in KINDS if k is not STREAMED]
    assert {move.kind for move in path.forms} == {"equal", "zeros", "layout", "stored", "blocks", "parts"}
    assert {move.kind for move in at_stages(path.moves, Stage.compiler)} == {"option"}
    assert not path.is_plain
    assert Path("7" * 64, tuple(moves_of(KINDS[0]))).is_plain
    assert "the batch in 4 parts" in words_of(path.moves)
