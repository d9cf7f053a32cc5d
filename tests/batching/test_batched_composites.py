"""Composites for many samples: the same names where that is what they mean, and kernels that compute the same."""

import re
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, nn
from pcp.kernels import apply_kernels, kernel_named, sites_of
from tests.execution import run

RNG = np.random.default_rng()
SAMPLES = 3
Q, K = (1, 6, 4, 8), (1, 6, 2, 8)


def names(program: Program) -> list[str]:
    return sorted(re.findall(r'stablehlo.composite "([^"]*)"', program.text))


def padded(q: Any, k: Any, v: Any, rows: Any, columns: Any) -> Any:
    """A length of 0, too: then the result is 0."""
    return nn.scaled_dot_product_attention(q, k, v, True, cap=2.0, query_lengths=rows, key_lengths=columns)


def attention(causal: bool) -> Any:
    return lambda q, k, v, *mask: nn.scaled_dot_product_attention(q, k, v, causal, *mask)


# function of one sample, and of each argument its shape, element type and axis of samples
FORMS: dict[str, tuple[Any, tuple[tuple[tuple[int, ...], str, int | None], ...]]] = {
    "softmax": (pcp.softmax, (((4, 5), "f32", 0),)),
    "softmax of another axis": (lambda x: pcp.softmax(x, 0), (((4, 5), "f32", 1),)),
    "log_softmax": (pcp.log_softmax, (((4, 5), "f32", 0),)),
    "layer_norm": (nn.layer_norm, (((4, 5), "f32", 0), ((5,), "f32", None), ((5,), "f32", None))),
    "rms_norm": (nn.rms_norm, (((4, 5), "f32", 2), ((5,), "f32", None))),
    "attention": (attention(True), ((Q, "f32", 0), (K, "f32", 1), (K, "f32", 0))),
    "attention with one mask": (attention(False), (*[(Q, "f32", 0)] * 3, ((1, 1, 6, 6), "bool", None))),
    "attention with masks": (attention(True), (*[(Q, "f32", 0)] * 3, ((1, 4, 6, 1), "bool", 0))),
    "attention with lengths": (padded, ((Q, "f32", 0), (K, "f32", 1), (K, "f32", 0), ((1,), "i32", 0), ((1,), "i32", 0))),
    "attention with lengths of all": (padded, (*[(Q, "f32", 0)] * 3, ((1,), "i32", None), ((1,), "i32", 0))),
    "cross_entropy": (nn.negative_log_likelihood, (((4, 5), "f32", 0), ((4,), "i32", 0))),
}  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, axis: int | None) -> Any:
    if axis is not None:
        shape = (*shape[:axis], SAMPLES, *shape[axis:])
    if dtype == "bool":
        mask = RNG.random(shape) < 0.7
        return mask | (np.arange(shape[-1]) == 0)
    return RNG.integers(0, 5, shape).astype("i4") if dtype == "i32" else RNG.normal(size=shape).astype("f4")


def of_samples(name: str) -> tuple[Program, list[Any], list[Any]]:
    """The loss of all samples with its gradients, arguments, and what a loop over the samples gives in float64."""
    function, entries = FORMS[name]
    arrays = [drawn(*entry) for entry in entries]
    axes = [axis for *_, axis in entries]
    moving = tuple(i for i, (_, dtype, _) in enumerate(entries) if dtype == "f32")
    shape = pcp.trace(function, *(pcp.spec(s, d) for s, d, _ in entries)).results[0].spec.shape
    weights = RNG.normal(size=shape).astype("f4")

    def loss(*sample: Any) -> Any:
        return (function(*sample) * weights).sum()

    whole = pcp.trace(lambda *given: pcp.vmap(loss, axes)(*given).sum(), *map(pcp.specs_of, arrays))
    wide = [a.astype("f8") if a.dtype == np.float32 else a for a in arrays]
    one = pcp.trace(loss, *(pcp.spec(s, "f64" if d == "f32" else d) for s, d, _ in entries))
    value, gradients = 0.0, [np.zeros(wide[i].shape) for i in moving]
    for sample in range(SAMPLES):
        places = [(slice(None),) * axis + (sample,) if axis is not None else () for axis in axes]
        found, parts = run(
            pcp.value_and_grad(one, moving), *(a[p] for a, p in zip(wide, places, strict=True))
        )
        value += found
        for total, i, part in zip(gradients, moving, parts, strict=True):
            total[places[i]] += part
    return pcp.value_and_grad(whole, moving), arrays, [value, *gradients]


@pytest.mark.parametrize("name", FORMS)
def test_composites_keep_their_names_and_every_kernel_computes_the_samples(name: str) -> None:
    program, arrays, expected = of_samples(name)
    kind = name.split(" ")[0]
    assert names(program) == [f"pcp.{kind}", f"pcp.{kind}.vjp"]
    sites = [site for site in sites_of(program, "cpu") if site.family != "product"]
    assert len(sites) == 2
    for site in sites:
        exact = [k for k in map(kernel_named, site.kernels) if k.effect == "reassociating"]
        assert exact
        for kernel in exact[:3]:
            value, gradients = run(apply_kernels(program, {site.key: kernel}), *arrays)
            for found, other in zip((value, *gradients), expected, strict=True):
                np.testing.assert_allclose(found, other, rtol=2e-3, atol=2e-4)


def test_what_differs_between_samples_where_the_name_means_one_gets_another_name() -> None:
    program = pcp.trace(
        lambda x, s: pcp.vmap(nn.rms_norm)(x, s), *map(lambda s: pcp.spec(s, "f32"), ((3, 4, 5), (3, 5)))
    )
    assert names(program) == ["pcp.rms_norm.batched"]
    assert "samples = array<i64: 0, 1>" in program.text
    x, s = RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 5))
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * s[:, None]
    np.testing.assert_allclose(run(program, x, s), expected, rtol=1e-4)


def test_composites_of_users_are_named_by_how_often_they_were_batched() -> None:
    @pcp.composite("mine.scaled")
    def scaled(x: Any, y: Any, *, by: float) -> Any:
        return x * y * by

    both = pcp.vmap(pcp.vmap(lambda x, y: scaled(x, y, by=2.0), (0, None)), (None, 0))
    program = pcp.trace(both, pcp.spec((3,), "f32"), pcp.spec((2,), "f32"))
    assert names(program) == ["mine.scaled.batched.batched"]
    assert "by = 2.0" in program.text
    assert "outer_samples = array<i64: 1>, samples = array<i64: 0>" in program.text
    x, y = np.arange(3.0), np.arange(2.0)
    np.testing.assert_array_equal(run(program, x, y), 2 * x * y[:, None])


def test_equal_layers_are_batched_once() -> None:
    program = pcp.trace(pcp.vmap(lambda x: pcp.softmax(pcp.softmax(x))), pcp.spec((3, 5), "f32"))
    assert names(program) == ["pcp.softmax"] * 2
    assert program.text.count("func.func private") == 1
