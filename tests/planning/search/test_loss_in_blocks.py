"""Where memory is asked for and kernels take too much, the loss of large logits is computed in blocks, by kernels."""

from typing import Any

import numpy as np
import pytest
from tests.execution import exactly, run
from tests.replay.machine import machine

import pcp
from pcp.backends import Target
from pcp.kernels import sites_of
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.paths.kinds import BLOCKS, words_of
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import within
from pcp.planning.search.found import Found
from pcp.planning.search.search import Search
from pcp.planning.search.site_classes import kernels_by_site
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.whole import Whole
from pcp.planning.search.within_memory import _candidates

ROWS, WIDTH, CLASSES = 64, 32, 512
LOGITS = ROWS * CLASSES * 4


def _loss(x: Any, weight: Any, targets: Any) -> Any:
    return pcp.mean(pcp.nn.cross_entropy(pcp.tanh(x) @ weight, targets))


@pytest.fixture(scope="module")
def gradient() -> pcp.Program:
    shapes = (pcp.spec((ROWS, WIDTH), "f32"), pcp.spec((WIDTH, CLASSES), "f32"), pcp.spec((ROWS,), "i32"))
    return pcp.value_and_grad(pcp.trace(_loss, *shapes), wrt=(0, 1))


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.rewrite.memory.linear_losses.ROWS", 8)


def test_a_path_computes_the_loss_in_blocks(gradient: pcp.Program) -> None:
    move = BLOCKS.move(LOGITS // 4)
    path = Path.of(gradient, forms=(move,))
    made = path.applied(gradient)
    assert path == Path.from_json(path.to_json())
    assert words_of((move,)) == ["the loss in blocks, of 0 MiB of logits or of few examples"]
    assert f"tensor<{ROWS}x{CLASSES}xf32>" not in made.text
    rng = np.random.default_rng(1)
    given = (
        rng.normal(size=(ROWS, WIDTH)),
        rng.normal(size=(WIDTH, CLASSES)),
        rng.integers(0, CLASSES, ROWS),
    )
    given = (*(each.astype(np.float32) for each in given[:2]), given[2].astype(np.int32))
    right, found = exactly(gradient, *given), run(made, *given)
    for one, exact in zip((found[0], *found[1]), (right[0], *right[1]), strict=True):
        assert np.linalg.norm(one - exact) <= 1e-6 * np.linalg.norm(exact)


def test_one_with_smaller_logits_is_refused(gradient: pcp.Program) -> None:
    with pytest.raises(
        PathMismatch, match=f"makes logits of {LOGITS} bytes at once, and program .* has no more"
    ):
        prepared(gradient, forms=(BLOCKS.move(LOGITS),))


def test_kernels_stand_in_the_loop_and_the_gradient_takes_what_the_loss_hands_on(
    gradient: pcp.Program,
) -> None:
    with machine():
        target = Target.of("null:cuda:0")
        whole = Whole(gradient, 0.1, target, forms=(BLOCKS.move(LOGITS // 4),))
        chosen = kernels_by_site(whole.classes, next(within(whole, whole.classes, Strategy())))
        text = whole.path(chosen).applied(gradient).text
        families = {site.family: site.trips for site in sites_of(whole.prepared, target)}
    assert families["cross_entropy"] == families["cross_entropy_gradient"] == 4
    loop = text.partition("stablehlo.while")[2]
    (call,) = (line for line in loop.splitlines() if "pcp.lowered.cuda.Gradient@" in line)
    # Logits, targets, factors, and the normaliser of each row.
    assert call.partition(" : (")[2].partition(")")[0].count("tensor<") == 4


def test_where_memory_was_asked_for_it_comes_before_what_is_in_parts(
    gradient: pcp.Program, tmp_path: Any
) -> None:
    with machine():
        target = Target.of("null:cuda:0")
        strategy = Strategy(whole_logits=LOGITS // 4)
        conditions = Conditions(target, target.capacity, tmp_path / "profile.sqlite", strategy=strategy)
        with evidence_of(conditions) as evidence:
            search = Search(Whole(gradient, 0.1, target), evidence, conditions.memory_limit)
            fastest = search.whole.path(
                kernels_by_site(search.sites, next(within(search.whole, search.sites, strategy)))
            )
            first, second, *_ = _candidates(Found(fastest), search, [])
            assert first == fastest
            assert second.forms == (BLOCKS.move(LOGITS // 4),)
            assert {choice.kernel for choice in second.choices.values()} >= {"cross_entropy.triton"}
            evidence.strategy = Strategy()
            others = _candidates(Found(fastest), search, [])
            assert all(not path.forms for path in others)  # these logits are small
