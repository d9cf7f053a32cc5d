"""Validation losses on the side: which are computed, which are skipped, which blobs stay for them."""

import logging

import numpy as np
import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.flat_blobs import store_vector
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.shepherd.evaluation import EvaluationQueue, Evaluator
from pcp.distributed.wire.blobs import BlobStore
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe


def blob(number: int) -> Blob:
    return Blob(bytes([number]) * 32, 10)


class Desk:
    """Remembers what a queue started and removed."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.removed: list[Blob] = []
        self.queue = EvaluationQueue(lambda step, _: self.started.append(step), self.removed.append)


def test_the_loss_is_that_of_the_evaluation_program(recipe: Recipe, store: BlobStore) -> None:
    parts = partition(recipe.parameters, 2)
    evaluator = Evaluator(recipe, store, parts)
    evaluator.compile()
    found = evaluator.loss(tuple(store_vector(store, each) for each in parts.vectors(recipe.parameters)))
    assert found == recipe.validation_loss(plan(recipe.evaluation).bind(recipe.parameters).run)
    assert found == pytest.approx(np.log(recipe.model.vocabulary), abs=0.1)


def test_one_runs_and_the_next_follows() -> None:
    desk = Desk()
    assert desk.queue.idle
    desk.queue.add(20, (blob(1),))
    desk.queue.add(40, (blob(2),))
    assert desk.started == [20]
    desk.queue.done()
    assert desk.started == [20, 40]
    assert not desk.queue.idle
    desk.queue.done()
    assert desk.queue.idle
    assert desk.queue.skipped == 0


def test_of_those_that_wait_only_the_newest_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    for step in (20, 40, 60, 80):
        desk.queue.add(step, (blob(step),))
    desk.queue.done()
    desk.queue.done()
    assert desk.started == [20, 80]
    assert desk.queue.skipped == 2
    assert "the evaluation of step 40 is skipped: that of step 20 still runs" in caplog.text


def test_blobs_stay_as_long_as_an_evaluation_needs_them() -> None:
    desk = Desk()
    desk.queue.remove(blob(9))
    assert desk.removed == [blob(9)]
    for number in (1, 2, 3):
        desk.queue.add(number, (blob(number),))
        desk.queue.remove(blob(number))
    assert desk.removed == [blob(9), blob(2)]  # the skipped one
    desk.queue.done()
    assert desk.removed == [blob(9), blob(2), blob(1)]
    desk.queue.done()
    assert desk.removed == [blob(9), blob(2), blob(1), blob(3)]
