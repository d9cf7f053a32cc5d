"""Native cross entropy and its gradient: any widths, infinities and NaN where they belong, on processors with less, too."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, kernels, nn
from pcp.backends import CompilationFailed, ExecutionFailed
from pcp.ir import DType, TensorSpec
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised

Array = np.ndarray[Any, Any]


def program(rows: int, classes: int) -> Program:
    """The mean loss and the gradient of the logits, both by native kernels."""
    logits, targets = pcp.spec((rows, classes), "f32"), pcp.spec((rows,), "i32")
    loss = pcp.trace(lambda x, t: nn.negative_log_likelihood(x * 1.0, t).mean(), logits, targets)
    made = prepared(pcp.value_and_grad(raised(loss), wrt=0))
    sites = [each for each in kernels.sites_of(made, "cpu") if each.family.startswith("cross_entropy")]
    assert [each.family for each in sites] == ["cross_entropy", "cross_entropy_gradient"]
    return kernels.apply_kernels(
        made, {each.key: kernels.kernel_named(f"{each.family}.native") for each in sites}
    )


def run(made: Program, logits: Array, targets: Array) -> tuple[float, Array]:
    loss, found = pcp.plan(made, cache=False).run(logits, targets)
    return float(loss), np.asarray(found)


def exactly(logits: Array, targets: Array) -> tuple[float, Array]:
    """Both in float64."""
    x, rows = logits.astype(np.float64), np.arange(len(logits))
    with np.errstate(invalid="ignore"):
        shifted = x - x.max(-1, keepdims=True)
        normaliser = np.log(np.exp(shifted).sum(-1, keepdims=True))
    gradient = np.exp(shifted - normaliser)
    gradient[rows, targets] -= 1
    return float(np.mean(normaliser[:, 0] - shifted[rows, targets])), gradient / len(x)


@pytest.mark.parametrize("hides", ["", pytest.param("avx512f,avx2", marks=pytest.mark.long)])
def test_they_are_the_loss_and_its_gradient(hides: str) -> None:
    rng = np.random.default_rng()
    with masked(*filter(None, hides.split(","))):
        for rows, classes, size in ((1, 1, 1.0), (33, 8201, 9.0), (2, 50257, 1e4)):
            logits = (size * rng.normal(size=(rows, classes))).astype(np.float32)
            targets = rng.integers(0, classes, rows).astype(np.int32)
            loss, gradient = run(program(rows, classes), logits, targets)
            exact, true = exactly(logits, targets)
            assert abs(loss - exact) <= 2e-6 * max(1.0, abs(exact)), classes
            assert np.linalg.norm(gradient - true) <= 2e-6 * max(np.linalg.norm(true), 1e-3), classes


def test_infinities_and_nan_stay_where_they_belong() -> None:
    """Also where whole blocks of a row are masked before the first logit that is not, and that one is far from 0."""
    logits = np.random.default_rng().normal(size=(6, 9000)).astype(np.float32)
    logits[0, :8999], logits[0, 8999] = -np.inf, -300.0
    logits[1, 100], logits[2, 5], logits[3] = np.nan, np.inf, -np.inf
    logits[4, 4000:] = -np.inf
    targets = np.array([8999, 0, 0, 0, 3, 0], np.int32)
    made = program(6, 9000)
    gradient = run(made, logits, targets)[1]
    true = exactly(logits, targets)[1]
    np.testing.assert_array_equal(np.isnan(gradient), np.isnan(true))
    assert np.isnan(gradient).any(-1).tolist() == [False, True, True, True, False, False]
    finite = [0, 4, 5]
    np.testing.assert_allclose(gradient[finite], true[finite], rtol=1e-4, atol=1e-7)
    of_rows = [TensorSpec((6,), DType.f32)] * 2
    forward = pcp.trace(
        lambda *x: tuple(native_call(LIBRARIES["cross_entropy"], "cross_entropy", x, of_rows, {})),
        pcp.spec((6, 9000), "f32"),
        pcp.spec((6,), "i32"),
    )
    normalisers, above = (np.asarray(x) for x in pcp.plan(forward).run(logits, targets))
    assert (
        np.isnan(normalisers).tolist() == np.isnan(above).tolist() == [False, True, True, True, False, False]
    )
    assert (normalisers[0], above[0]) == (-300.0, 0.0)


def test_the_gradient_needs_no_normaliser() -> None:
    """Where the loss is computed otherwise."""
    logits, targets = pcp.spec((5, 70), "f32"), pcp.spec((5,), "i32")
    loss = pcp.trace(lambda x, t: nn.negative_log_likelihood(x, t).mean(), logits, targets)
    made = prepared(pcp.value_and_grad(raised(loss), wrt=0))
    (site,) = [each for each in kernels.sites_of(made, "cpu") if each.family == "cross_entropy_gradient"]
    changed = kernels.apply_kernels(made, {site.key: kernels.kernel_named("cross_entropy_gradient.native")})
    rng = np.random.default_rng()
    x, t = rng.normal(size=(5, 70)).astype(np.float32), rng.integers(0, 70, 5).astype(np.int32)
    np.testing.assert_allclose(run(changed, x, t)[1], exactly(x, t)[1], rtol=1e-5, atol=1e-7)
    assert x.std() > 0.5  # what the user gave is not written over


@pytest.mark.parametrize("name", ["native", "gathered", "chunked"])
def test_the_loss_of_logits_far_from_zero_keeps_its_logarithm(name: str) -> None:
    rng = np.random.default_rng()
    logits = (rng.normal(size=(4096, 300)) + 1e6).astype(np.float32)
    targets = rng.integers(0, 300, 4096).astype(np.int32)
    specs = pcp.spec((4096, 300), "f32"), pcp.spec((4096,), "i32")
    made = prepared(raised(pcp.trace(lambda x, t: nn.negative_log_likelihood(x * 1.0, t), *specs)))
    (site,) = kernels.sites_of(made, "cpu")
    changed = kernels.apply_kernels(made, {site.key: kernels.kernel_named(f"cross_entropy.{name}")})
    found = np.asarray(pcp.plan(changed, cache=False).run(logits, targets))
    x = logits.astype(np.float64)
    true = np.log(np.exp(x - 1e6).sum(-1)) - (x - 1e6)[np.arange(4096), targets]
    assert np.abs(found - true).max() < 1e-5


@pytest.mark.parametrize("size", [-1e9, 3e5, 1e30])
def test_large_logits_of_equal_size_share_the_gradient(size: float) -> None:
    """The logarithm of their number must not be lost beside them."""
    logits = np.random.default_rng().normal(size=(9, 51)).astype(np.float32)
    logits[3] = size
    targets = np.arange(9, dtype=np.int32)
    found, true = run(program(9, 51), logits, targets)[1], exactly(logits, targets)[1]
    assert np.linalg.norm(found - true) <= 2e-6 * np.linalg.norm(true)


@pytest.mark.parametrize(
    ("handler", "takes", "makes", "words"),
    [
        ("cross_entropy", [(2, 3, 4), 2], [(2,), (2,)], "the logits have shape [2,3,4]; expected [rows,classes]"),
        ("cross_entropy", [(2, 3), 3], [(2,), (2,)], "there are 3 targets; expected one of each row"),
        ("cross_entropy", [(2, 3), 2], [(2,), (3,)], "what there is one of for each row has shape [3]; expected [2]"),
        ("cross_entropy_gradient", [(2, 3), 2, (3,)], [(2, 3)], "what there is one of for each row has shape [3]; expected [2]"),
        ("cross_entropy_gradient", [(2, 3), 1, (2,)], [(2, 3)], "there are 1 targets; expected one of each row"),
        ("cross_entropy_gradient", [(2, 3), 2, (2,)], [(3, 2)], "the result has shape [3,2]; expected that of the logits"),
        ("cross_entropy_gradient", [(2, 3), 2, (2,), (1,)], [(2, 3)], "for each row has shape [1]; expected [2]"),
        ("cross_entropy_gradient", [(2, 3), 2, (2,), (2,), (2,)], [(2, 3)], "come 2 arrays; expected one or none"),
    ],
)  # fmt: skip
def test_a_handler_refuses_what_it_is_not_for(handler: str, takes: Any, makes: Any, words: str) -> None:
    specs = [pcp.spec((each,), "i32") if isinstance(each, int) else pcp.spec(each, "f32") for each in takes]
    results = [TensorSpec(shape, DType.f32) for shape in makes]
    made = pcp.trace(
        lambda *arrays: tuple(native_call(LIBRARIES["cross_entropy"], handler, arrays, results, {})), *specs
    )
    with pytest.raises((ExecutionFailed, CompilationFailed)) as refused:
        pcp.plan(made).run(*(np.zeros(each.spec.shape, each.spec.dtype.numpy) for each in made.arguments))
    assert words in str(refused.value)
