"""What cuDNN is given and what is made of its results, beside float64: on a processor by a stand-in that spoils what it may."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, nn, ops
from pcp.autodiff.gradient import value_and_vjp
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.attention import cudnn
from pcp.nn.attention import named_attention
from pcp.planning.paths.preparation import prepared
from tests.execution import exactly, run
from tests.kernels.gpu.emulated import HERE, cudnn_call
from tests.nn.padded_attention import attended, drawn, spoiled

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
FULL = ([40] * 3, [70] * 3)
ENDS = ([40, 0, 33], [50, 20, 0])
SPECS = {
    **dict.fromkeys(("query_lengths", "key_lengths"), pcp.spec((3,), "i32")),
    "mask": pcp.spec((3, 1, 40, 70), "bool"),
    "bias": pcp.spec((4, 40, 70), "f32"),
}


def _program(names: Sequence[str], causal: bool, window: int | None, keys: int) -> Program:
    def attention(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return nn.scaled_dot_product_attention(
            q, k, v, causal, window=window, **dict(zip(names, more, strict=True))
        )

    specs = [pcp.spec((3, *shape, 16), "f32") for shape in ((40, 4), (keys, 2), (keys, 2))]
    others = [SPECS[name] for name in names]
    return prepared(value_and_vjp(pcp.trace(attention, *specs, *others), (0, 1, 2)))


def _by(program: Program, kernel: str) -> Program:
    families = ("attention", "attention_gradient")
    chosen = {
        site.key: kernel_named(f"{site.family}.{kernel}")
        for site in sites_of(program, "cuda")
        if site.family in families
    }
    assert len(chosen) == 2
    return apply_kernels(program, chosen)


def _close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(np.asarray(a, np.float64) - b) <= 1.5e-2 * np.linalg.norm(b)


@pytest.fixture
def _cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not HERE:
        monkeypatch.setattr(cudnn, "called", cudnn_call)


@pytest.mark.usefixtures("_cudnn")
@pytest.mark.parametrize("kernel", ["cudnn:bf16+result", "cudnn:bf16_centred"])
@pytest.mark.parametrize(
    ("causal", "window", "keys", "ends"),
    [
        (False, None, 70, ENDS),
        (True, None, 40, ([40, 0, 33], [40, 20, 0])),
        (True, 9, 40, ([40, 40, 33], [17, 40, 1])),
    ],
)
def test_lengths(causal: bool, window: int | None, keys: int, ends: Any, kernel: str) -> None:
    operands = drawn(40, keys, 4, 2, 16, seed=7)
    given = [x.astype(np.float32) for x in spoiled(operands, ends)]
    program = _by(_program(["query_lengths", "key_lengths"], causal, window, keys), kernel)
    y, cotangents = run(program, *given[:3], *(np.array(each, np.int32) for each in ends), given[3])
    _close([y, *cotangents], attended(*operands, ends, causal=causal, window=window))


@pytest.mark.usefixtures("_cudnn")
def test_a_mask_and_a_query_that_sees_no_key() -> None:
    operands = drawn(40, 70, 4, 2, 16, seed=8)
    given = [x.astype(np.float32) for x in operands]
    mask = np.random.default_rng(9).random((3, 1, 40, 70)) < 0.5
    program = _by(_program(["mask"], False, None, 70), "cudnn")
    y, cotangents = run(program, *given[:3], mask, given[3])
    _close([y, *cotangents], attended(*operands, FULL, mask=mask))
    mask[1, :, 5] = False
    y, cotangents = run(program, *given[:3], mask, given[3])
    assert np.isnan(y[1, 5]).all()
    assert not np.isnan(np.delete(y[1], 5, 0)).any()
    assert all(np.isnan(x[1]).any() and not np.isnan(x[0]).any() for x in cotangents)


@pytest.mark.usefixtures("_cudnn")
@pytest.mark.parametrize("kernel", ["cudnn:bf16+result", "cudnn:bf16_centred"])
def test_lengths_that_are_odd_with_a_mask(kernel: str) -> None:
    """A query that sees no key has the mean of all values, as its finite scores say, and none of what makes lengths even."""

    def attention(q: Any, k: Any, v: Any, m: Any) -> Any:
        scores = ops.where(m, ops.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1e30)
        return ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, -1), v)

    operands = drawn(13, 21, 4, 4, 16, seed=12)
    given = [x.astype(np.float32) for x in operands]
    mask = np.random.default_rng(13).random((3, 1, 13, 21)) < 0.5
    mask[2, :, 4] = False
    specs = [pcp.specs_of(x) for x in (*given[:3], mask)]
    program = prepared(value_and_vjp(pcp.rewrite.raising.raised(pcp.trace(attention, *specs)), (0, 1, 2)))
    y, cotangents = run(_by(program, kernel), *given[:3], mask, given[3])
    expected = run(program, *given[:3], mask, given[3])
    _close([y, *cotangents], [np.asarray(x, np.float64) for x in (expected[0], *expected[1])])
    assert np.linalg.norm(y[2, 4] - given[2][2].mean(0)) <= 1e-2 * np.linalg.norm(given[2][2].mean(0))


@pytest.mark.usefixtures("_cudnn")
@pytest.mark.parametrize("queries", [40, 39])
def test_a_bias(queries: int) -> None:
    operands = drawn(queries, 70, 4, 4, 16, seed=10)
    given = [x.astype(np.float32) for x in operands]
    bias = np.random.default_rng(11).normal(size=(4, queries, 70)).astype(np.float32)
    bias[:, :, 3:9] = -np.inf

    def attention(q: Any, k: Any, v: Any, b: Any) -> Any:
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * 0.25 + b
        return ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, -1), v)

    specs = [pcp.specs_of(x) for x in (*given[:3], bias)]
    program = prepared(value_and_vjp(pcp.rewrite.raising.raised(pcp.trace(attention, *specs)), (0, 1, 2)))
    y, cotangents = run(_by(program, "cudnn"), *given[:3], bias, given[3])
    _close([y, *cotangents], attended(*operands, ([queries] * 3, [70] * 3), bias=bias))


@pytest.mark.usefixtures("_cudnn")
@pytest.mark.parametrize("kernel", ["cudnn:bf16+result", "cudnn:bf16_centred"])
def test_a_bias_of_all_samples_and_its_cotangent_where_later_keys_have_a_finite_score(kernel: str) -> None:
    """As in the decoder of T5."""

    def form(softmax: Any, q: Any, k: Any, v: Any, b: Any) -> Any:
        scores = ops.einsum("bhqd,bhkd->bhqk", q, k) + b
        sees = ops.iota((21, 21), 0) >= ops.iota((21, 21), 1)
        return ops.einsum("bhqk,bhkd->bhqd", softmax(ops.where(sees, scores, -3e38)), v)

    def attention(*operands: Any) -> Any:
        attributes: dict[str, Any] = {
            "query": (0, 1, 2, -1), "key": (0, 1, 3, -1), "value": (0, 1, 3, -2), "result": (0, 1, 2, -2), "axis": 3,
            "scale": 1.0, "causal": True, "offset": 0, "queries": 2, "fill": -3e38, "safe": True, "bias": (-3, 1, 2, 3),
        }  # fmt: skip
        return named_attention(form, operands[:3], operands[3:], attributes)

    rng = np.random.default_rng()
    shapes = [(2, 4, 21, 16)] * 3 + [(1, 4, 21, 21), (2, 4, 21, 16)]
    given = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    program = prepared(value_and_vjp(pcp.trace(attention, *given[:4]), (0, 1, 2, 3)))
    expected = exactly(program, *given)
    found = run(_by(program, kernel), *given)
    _close([found[0], *found[1]], [expected[0], *expected[1]])
