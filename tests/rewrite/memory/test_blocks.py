"""What is large inside of attention and cross entropy, computed block by block: the same numbers, and nothing of its size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir.tree import flatten
from pcp.ir.types import DType
from pcp.nn import cross_entropy, scaled_dot_product_attention
from pcp.rewrite.canonical import canonical
from pcp.rewrite.memory.blocks import in_blocks
from pcp.rewrite.memory.linear_losses import without_logits
from tests.execution import exactly

RANDOM = np.random.default_rng(5)
ROWS, WIDTH, CLASSES = 512, 8, 96


def numbers(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def attention(**more: Any) -> Callable[..., Any]:
    return lambda q, k, v: pcp.mean(scaled_dot_product_attention(q, k, v, **more) ** 2)


HEADS = [numbers(2, 24, 4, 8), numbers(2, 24, 2, 8), numbers(2, 24, 2, 8)]
ONE = [numbers(1, 24, 1, 8) for _ in range(3)]
MASK = RANDOM.random((2, 1, 1, 24)) < 0.8
LENGTHS = np.array([24, 9], np.int32)
ATTENTION = {
    "full": (attention(), HEADS, (2, 4, 24, 24)),
    "causal, one head": (attention(causal=True), ONE, (1, 1, 24, 24)),
    "window": (attention(causal=True, window=5), HEADS, (2, 4, 24, 24)),
    "mask": (attention(mask=MASK), HEADS, (2, 4, 24, 24)),
    "lengths": (attention(key_lengths=LENGTHS, query_lengths=LENGTHS), HEADS, (2, 4, 24, 24)),
    "cap": (attention(cap=2.0), HEADS, (2, 4, 24, 24)),
}
"""A loss, its operands, and the shape of the scores."""


def same(blocked: pcp.Program, program: pcp.Program, *given: Any) -> None:
    """See that two programs have the same results but for rounding."""
    pairs = zip(*(flatten(exactly(each, *given))[0] for each in (blocked, program)), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_and_its_gradient_are_the_same_in_blocks(case: str) -> None:
    function, given, scores = ATTENTION[case]
    program = pcp.value_and_grad(pcp.trace(function, *given), wrt=(0, 1, 2))
    blocked = in_blocks(program, 4 * int(np.prod(scores)) // 6)
    assert blocked is not program
    assert "stablehlo.while" in blocked.text
    same(blocked, program, *given)


@pytest.mark.cpu
def test_scores_are_never_whole_on_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.backends.forms.for_xla._WHOLE", 4 * 96 * 96)
    function = attention(causal=True)
    given = [numbers(4, 96, 2, 4) for _ in range(3)]
    use = pcp.plan(pcp.value_and_grad(pcp.trace(function, *given)), cache=False).memory["cpu:0"]
    assert use.temporaries < 4 * 8 * 96 * 96


def linear_loss(bias: bool, weighted: bool) -> Callable[..., Any]:
    def loss(hidden: Any, weights: Any, offsets: Any, targets: Any) -> Any:
        logits = pcp.einsum("bnd,vd->bnv", hidden, weights)
        logits = logits + offsets if bias else logits
        counts = pcp.ops.not_equal(targets, 3).astype(DType.f32) if weighted else None
        return cross_entropy(logits, targets, counts)

    return loss


GIVEN = [
    numbers(2, ROWS // 2, WIDTH),
    numbers(CLASSES, WIDTH),
    numbers(CLASSES),
    RANDOM.integers(0, CLASSES, (2, ROWS // 2)).astype(np.int32),
]


@pytest.mark.parametrize(("bias", "weighted"), [(False, False), (True, False), (True, True)])
def test_logits_are_never_whole(monkeypatch: pytest.MonkeyPatch, bias: bool, weighted: bool) -> None:
    monkeypatch.setattr("pcp.rewrite.memory.linear_losses.ROWS", 32)
    traced = pcp.trace(linear_loss(bias, weighted), *GIVEN)
    program = pcp.value_and_grad(traced, wrt=(0, 1, 2) if bias else (0, 1))
    blocked = without_logits(program, 4 * 32 * CLASSES)
    same(blocked, program, *GIVEN)
    main = blocked.text.partition("func.func private")[0]
    assert f"x{CLASSES}xf32" in main
    assert f"tensor<2x{ROWS // 2}x{CLASSES}xf32>" not in main
    assert f"tensor<{ROWS}x{CLASSES}xf32>" not in main


def picked(rows: Any, targets: Any) -> Any:
    """The element of each row that its target names."""
    return pcp.take_along_axis(rows, targets[..., None], -1)[..., 0]


def by_likelihoods(logits: Any, targets: Any) -> Any:
    likelihoods = pcp.log_softmax(logits)
    return (-0.9 * picked(likelihoods, targets) - 0.1 * likelihoods.mean(-1)).mean()


def by_normalisers(logits: Any, targets: Any) -> Any:
    losses = pcp.logsumexp(logits, -1) - 0.9 * picked(logits, targets) - 0.1 * logits.mean(-1)
    return pcp.where(pcp.ops.not_equal(targets, 3), losses, 0.0).sum()


def by_labels(logits: Any, targets: Any) -> Any:
    chosen = pcp.ops.equal(pcp.iota(logits.shape, len(logits.shape) - 1, "i32"), targets[..., None])
    labels = pcp.where(chosen, 0.9, 0.0) + 0.1 / CLASSES
    return -(labels * pcp.log_softmax(logits)).sum(-1).mean()


def beside_normalisers(logits: Any, targets: Any) -> Any:
    return cross_entropy(logits, targets) + 1e-2 * (pcp.logsumexp(logits, -1) ** 2).mean()


def distilled(logits: Any, targets: Any) -> Any:
    chances = pcp.softmax(0.5 * logits)
    return cross_entropy(logits, targets) - (chances * pcp.log_softmax(logits)).sum(-1).mean()


@pytest.mark.parametrize(
    "loss",
    [by_likelihoods, by_normalisers, by_labels, beside_normalisers, distilled],
    ids=lambda f: f.__name__,
)
def test_logits_are_never_whole_where_labels_are_smooth_or_normalisers_are_held_down(
    monkeypatch: pytest.MonkeyPatch, loss: Callable[..., Any]
) -> None:
    monkeypatch.setattr("pcp.rewrite.memory.linear_losses.ROWS", 32)

    def of_hidden(hidden: Any, weights: Any, offsets: Any, targets: Any) -> Any:
        return loss(pcp.einsum("bnd,vd->bnv", hidden, weights) + offsets, targets)

    program = pcp.value_and_grad(canonical(pcp.trace(of_hidden, *GIVEN)), wrt=(0, 1, 2))
    blocked = without_logits(program, 4 * 32 * CLASSES)
    same(blocked, program, *GIVEN)
    main = blocked.text.partition("func.func private")[0]
    assert f"tensor<2x{ROWS // 2}x{CLASSES}x" not in main
    assert f"tensor<{ROWS}x{CLASSES}x" not in main


def test_logits_that_a_user_looks_at_stay_whole() -> None:
    def loss(hidden: Any, weights: Any, targets: Any) -> Any:
        logits = pcp.einsum("bnd,vd->bnv", hidden, weights)
        return cross_entropy(pcp.tap("logits", logits), targets)

    hidden, weights, _, targets = GIVEN
    program = pcp.trace(loss, hidden, weights, targets)
    assert without_logits(program, 1000) is program


@pytest.mark.parametrize(("layers", "is_whole"), [(10, False), (70, True)])
def test_a_network_whose_values_are_all_as_large_as_its_logits_is_left_alone(
    layers: int, is_whole: bool
) -> None:
    def loss(hidden: Any, weights: Any, targets: Any) -> Any:
        logits = pcp.einsum("bnd,vd->bnv", hidden, weights)
        for _ in range(layers):
            logits = pcp.tanh(logits)
        return cross_entropy(logits, targets)

    hidden, weights, _, targets = GIVEN
    program = pcp.trace(loss, hidden, weights, targets)
    assert (without_logits(program, 1000) is program) is is_whole


def test_logits_that_something_else_reads_stay_whole() -> None:
    def loss(hidden: Any, weights: Any, targets: Any) -> Any:
        logits = pcp.einsum("bnd,vd->bnv", hidden, weights)
        return cross_entropy(logits, targets), logits

    hidden, weights, _, targets = GIVEN
    program = pcp.trace(loss, hidden, weights, targets)
    assert without_logits(program, 1000) is program


def test_what_is_small_stays_whole() -> None:
    function, given, scores = ATTENTION["full"]
    program = pcp.value_and_grad(pcp.trace(function, *given))
    assert in_blocks(program, 4 * int(np.prod(scores))) is program
    plain = pcp.trace(lambda x: x + 1.0, numbers(3))
    assert in_blocks(plain, 0) is plain
    assert without_logits(plain, 0) is plain
