"""Composites in parts of a batch: they stay named where one can stand for each part, and come to the same."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ir.tree import flatten
from pcp.planning.paths import kinds
from pcp.planning.paths.kinds.parts import NotInParts
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.memory.parts import in_parts
from tests.execution import run

RANDOM = np.random.default_rng(0)
ROWS, PARTS = 12, 3


def drawn(*shape: int) -> Any:
    return RANDOM.normal(size=shape)


X, Y, GAIN, BIAS = drawn(ROWS, 4, 6), drawn(ROWS, 4, 6), drawn(6), drawn(6)
T = RANDOM.integers(0, 6, (ROWS, 4)).astype(np.int32)
Q, K, V = (drawn(ROWS, 8, 2, 4) for _ in range(3))
MASK = RANDOM.integers(0, 2, (ROWS, 1, 8, 8)).astype(bool) | np.eye(8, dtype=bool)
LENGTHS = RANDOM.integers(1, 8, ROWS).astype(np.int32)
attend = nn.scaled_dot_product_attention


@pcp.composite("test.weighted")
def weighted(x: Any, y: Any) -> Any:
    return pcp.tanh(x) * y


@pcp.composite("test.normalised")
def normalised(x: Any, gain: Any) -> Any:
    return pcp.softmax(nn.rms_norm(x, gain)) + 1.0


@pcp.composite("test.total")
def total(x: Any) -> Any:
    return pcp.exp(x), pcp.exp(x).sum((0, 1))


@pcp.composite("test.numbered")
def numbered(x: Any) -> Any:
    return pcp.tanh(x) * pcp.iota(x.shape, 0, "f64")


@pcp.composite("test.shared")
def shared(x: Any) -> Any:
    return pcp.exp(x) / pcp.exp(x).sum(0)


@pcp.composite("test.added")
def added(x: Any, t: Any) -> Any:
    return pcp.tanh(x), pcp.scatter_add(pcp.zeros((6,), "f64"), t.reshape(48), pcp.exp(x).sum(2).reshape(48))


# What stays named, if the inputs are cut along their first axes.
NAMED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "softmax": (lambda x: pcp.softmax(x) * 2.0, (X,), "pcp.softmax"),
    "a norm": (lambda x, gain, bias: nn.layer_norm(x, gain, bias) * 2.0, (X, GAIN, BIAS), "pcp.layer_norm"),
    "attention": (lambda q, k, v: attend(q, k, v, True) * 2.0, (Q, K, V), "pcp.attention"),
    "a mask": (lambda q, k, v, mask: attend(q, k, v, mask=mask) * 2.0, (Q, K, V, MASK), "pcp.attention"),
    "lengths": (lambda q, k, v, n: attend(q, k, v, key_lengths=n) * 2.0, (Q, K, V, LENGTHS), "pcp.attention"),
    "a loss": (lambda x, t: nn.cross_entropy(x, t), (X, T), "pcp.cross_entropy"),
    "two inputs": (lambda x, y: weighted(x, y).sum(0), (X, Y), "test.weighted"),
    "an array of the batch's size": (lambda x: weighted(x, Y).sum(0), (X,), "test.weighted"),
    "a number for all": (lambda x: weighted(x, pcp.ones(x.shape, "f64")), (X,), "test.weighted"),
    "one inside of another": (lambda x, gain: normalised(x, gain).sum(0), (X, GAIN), "test.normalised"),
    "a sum beside": (lambda x: total(x), (X,), "test.total"),
}  # fmt: skip

# What is written out: it has to know which part it is, or needs all of them.
WRITTEN_OUT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "the number of the row": (lambda x: numbered(x) * 2.0, (X,)),
    "a share of all rows": (lambda x: shared(x) * 2.0, (X,)),
    "sums at places": (lambda x, t: added(x, t), (X, T)),
}


def assert_same(left: Any, right: Any) -> None:
    for one, other in zip(flatten(left)[0], flatten(right)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def named_in(program: pcp.Program) -> Counter[str]:
    """How often each composite is called in `main`."""
    main = program.text.partition("func.func private")[0]
    return Counter(re.findall(r'stablehlo.composite "([^"]+)"', main))


@pytest.mark.parametrize("case", NAMED)
def test_a_composite_of_one_part_has_its_name(case: str) -> None:
    function, given, name = NAMED[case]
    program = pcp.trace(function, *given)
    found, flat = in_parts(program, PARTS, named=True), in_parts(program, PARTS)
    assert found is not None
    assert flat is not None
    assert named_in(found) == named_in(program) == {name: 1}
    assert found.digest == flat.digest  # only that it is named is other
    assert_same(run(found, *given), run(program, *given))


@pytest.mark.parametrize("case", WRITTEN_OUT)
def test_what_is_not_the_same_for_every_part_is_written_out(case: str) -> None:
    function, given = WRITTEN_OUT[case]
    program = pcp.trace(function, *given)
    found = in_parts(program, PARTS, named=True)
    assert found is not None
    assert not named_in(found)
    assert_same(run(found, *given), run(program, *given))


def test_gradients_keep_their_names_and_sums_over_the_batch_are_added_up() -> None:
    def loss(w: Any, x: Any, t: Any) -> Any:
        x = nn.layer_norm(x @ w["up"], w["gain"], w["bias"])
        q, k, v = (part.reshape(ROWS, 4, 2, 4) for part in pcp.split(x, 3, axis=2))
        x = nn.rms_norm(attend(q, k, v, True).reshape(ROWS, 4, 8), w["gain"][:8])
        return nn.cross_entropy(x @ w["down"], t)

    weights = {"up": drawn(6, 24), "gain": drawn(24), "bias": drawn(24), "down": drawn(8, 6)}
    program = prepared(pcp.value_and_grad(pcp.trace(loss, weights, X, T)))
    found = in_parts(program, PARTS, named=True)
    assert found is not None
    kinds = ("layer_norm", "attention", "rms_norm", "cross_entropy")
    assert named_in(found) == {f"pcp.{kind}{end}": 1 for kind in kinds for end in ("", ".vjp")}
    assert re.search(r'composite "pcp.attention".*tensor<4x4x2x4xf64>', found.text)
    assert_same(run(found, weights, X, T), run(program, weights, X, T))


def test_what_a_program_is_not_computed_in_is_said() -> None:
    program = pcp.trace(lambda x: pcp.tanh(x) * 2.0, X)
    with pytest.raises(
        NotInParts, match=rf"the batch of program {program.digest[:12]} cannot be computed in 5 parts"
    ):
        prepared(program, forms=(kinds.PARTS.move(5),))
