"""Shapes that are compiled before anybody waits for them, and texts from programs of larger shapes."""

import threading
from typing import Any

import numpy as np
import pytest

from pcp.inference import Request, Sampling, TextModel
from pcp.inference.readiness import ASKED, WIDE, Beside, Shape, first_shapes, next_width
from pcp.inference.runner import Runner
from pcp.inference.scheduler import Limits, power_of_two
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.published import gpt2_config

CONFIG = gpt2_config(layers=1, heads=2, width=16, context=300, vocabulary=13)


@pytest.mark.parametrize("context", [1, 8, 100, 1024, 131072])
@pytest.mark.parametrize("rows", [1, 3, 8, 32])
def test_a_few_shapes_compute_every_step_of_short_texts(context: int, rows: int) -> None:
    shapes = first_shapes(Limits(context, rows), 16, edited=False)
    assert len(shapes) <= 8

    def is_computed(rows: int, chunk: int, width: int) -> bool:
        return any(shape.covers(Shape(rows, min(chunk, context), width)) for shape in shapes)

    for log_width in range(3, 14):
        width = min(1 << log_width, -(-context // 16))
        if width * 16 > max(WIDE, 128):
            continue
        for count in range(power_of_two(rows).bit_length()):
            assert is_computed(1 << count, 1, width)
        for log_chunk in range(4, 10):
            assert is_computed(1, 1 << log_chunk, width)  # so a step of more rows is computed one by one


def test_a_shape_covers_what_is_nowhere_larger() -> None:
    shape = Shape(4, 16, 8, edited=True)
    assert shape.covers(Shape(3, 1, 8))
    assert not Shape(4, 16, 8).covers(shape)
    for other in (Shape(5, 16, 8), Shape(4, 17, 8), Shape(4, 16, 9), Shape(4, 16, 8, every=True)):
        assert not shape.covers(other)


def test_the_next_width_is_near_at_three_quarters() -> None:
    shape = Shape(2, 1, 8)
    assert next_width(shape, 96, 16, 1000) is None
    assert next_width(shape, 97, 16, 1000) == Shape(2, 1, 16)
    assert next_width(shape, 97, 16, 150) == Shape(2, 1, 10)
    assert next_width(shape, 128, 16, 128) is None


def test_what_is_asked_for_often_is_compiled_once() -> None:
    made: list[Shape] = []
    gate, begun = threading.Event(), threading.Event()

    def compile(shape: Shape) -> None:
        begun.set()
        assert gate.wait(10)
        made.append(shape)
        if shape.rows == 2:
            raise ValueError("no such program")

    beside = Beside(compile)
    one, two, three = (Shape(rows, 1, 8) for rows in (1, 2, 3))
    for shape in (one, two, three):
        for _ in range(ASKED - 1):
            beside.ask(shape)
    assert not begun.wait(0.05)
    for shape in (one, one, two, three):
        beside.ask(shape)
    assert begun.wait(10)
    beside.wait(three)  # it has not begun, so it is the caller's
    gate.set()
    beside.wait(one)
    with pytest.raises(ValueError, match="no such program"):
        beside.wait(two)
    beside.close()
    assert made == [one, two]


@pytest.fixture(scope="module")
def model() -> TextModel:
    generator = np.random.default_rng(6)
    initial = decoder.initial_parameters(CONFIG)
    return TextModel(
        map_tree(lambda p: p + 0.4 * generator.normal(size=p.shape).astype(np.float32), initial), CONFIG
    )


def test_no_text_waits_for_a_program_and_each_is_what_it_is_alone(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, told = [], []
    before = Runner._compiled

    def noted(self: Runner, shape: Shape) -> Any:
        compiled.append((threading.current_thread().name, shape))
        return before(self, shape)

    monkeypatch.setattr(Runner, "_compiled", noted)
    generator = np.random.default_rng(9)
    # The longest prompts are read three rows of 128 at a time, which no shape of the start computes at once.
    requests = [
        Request(
            generator.integers(0, 13, length).tolist(),
            int(generator.integers(5, 10)),
            Sampling(6.0, (None, 5)[place % 2], seed=place),
            logprobs=(None, 3)[place > 3],
        )
        for place, length in enumerate([110, 120, 125, 3, 14, 9])
    ]
    with model.engine(rows=4, prepared=lambda *each: told.append(each)) as engine:
        at_start = len(compiled)
        together = [list(stream) for stream in [engine.submit(each) for each in requests]]
        one_by_one = [list(engine.submit(each)) for each in requests]
    assert told == [(count, at_start) for count in range(at_start + 1)]
    assert {name.split("_")[0] for name, _ in compiled[at_start:]} <= {"pcp compiler"}
    with model.engine(rows=1) as engine:  # programs of the very shapes
        assert [piece.token for piece in engine.submit(requests[0])] == [each.token for each in together[0]]
    for pieces, alone in zip(together, one_by_one, strict=True):
        tokens = [piece.token for piece in pieces]
        assert tokens == [piece.token for piece in alone]
        assert len(set(tokens)) > 2
        for piece, other in zip(pieces, alone, strict=True):
            assert [token for token, _ in piece.top] == [token for token, _ in other.top]
            assert piece.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_a_repetition_penalty_that_is_recommended_is_in_the_first_shapes() -> None:
    assert all(shape.edited for shape in first_shapes(Limits(64, 2), 16, edited=True))
