"""Raising to composites: what must change, what must not, and that no number does; in programs from our tracer."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, kernels, nn
from pcp.ir import TensorSpec
from pcp.rewrite.raising import PHASES, raised
from tests.execution import run

RNG = np.random.default_rng(0)
X, W, Q, K, T = "f32[2,3,5]", "f32[5]", "f32[2,6,4,8]", "f32[2,6,2,8]", "i32[2,3]"


def spec_of(text: str) -> Any:
    dtype, _, sizes = text.rstrip("]").partition("[")
    return pcp.spec([int(n) for n in sizes.split(",") if n], dtype)


def traced(function: Any, *specs: str) -> Program:
    """What a function computes, written out as in a file."""
    return Program.from_artifact(pcp.trace(function, *(spec_of(text) for text in specs)).artifact())


def names(program: Program) -> dict[str, int]:
    """How many composites of each name a program has."""
    return dict(Counter(re.findall(r'stablehlo.composite "([^"]*)"', program.text)))


def array(spec: TensorSpec) -> Any:
    if spec.dtype.is_float:
        return RNG.normal(size=spec.shape).astype(spec.dtype.numpy)
    return RNG.integers(0, 2 if spec.dtype.kind == "bool" else 5, spec.shape).astype(spec.dtype.numpy)


def safe_softmax(x: Any, axis: int = -1) -> Any:
    """As torch decomposes it."""
    e = pcp.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def torch_layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """As torch decomposes it: a variance, a division by the number of elements as a product, the bias first."""
    mean = x.sum(-1, keepdims=True) * (1 / x.shape[-1])
    variance = ((x - mean) ** 2).sum(-1, keepdims=True) * (1 / x.shape[-1])
    return bias + scale * ((x - mean) * pcp.rsqrt(1e-5 + variance))


def attention_by_matmul(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """As torch decomposes it: scaled before, heads in front, an added mask."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = (q * 8**-0.25) @ (k * 8**-0.25).transpose(0, 1, 3, 2) + mask
    return safe_softmax(scores) @ v


def cross_entropy_transposed(x: Any, t: Any) -> Any:
    """Of logits whose first axis is that of the classes."""
    largest = x.max(0, keepdims=True)
    chosen = pcp.where(pcp.arange(4)[:, None] == t, x, pcp.zeros_like(x)).T.sum(1)
    return pcp.log(pcp.exp(x - largest).sum(0)) + largest[0] - chosen


def cross_entropy_by_gather(x: Any, t: Any) -> Any:
    picked = pcp.take_along_axis(pcp.log_softmax(x), t[..., None], -1)
    return -picked[..., 0].mean()


# name: function, specs, the composite it becomes
RAISED: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "softmax": (pcp.softmax, (X,), "softmax"),
    "softmax of a middle axis": (lambda x: pcp.softmax(x, 1), (X,), "softmax"),
    "softmax of one element": (pcp.softmax, ("f32[3,1]",), "softmax"),
    "softmax written out": (safe_softmax, (X,), "softmax"),
    "softmax in f64": (pcp.softmax, ("f64[4,5]",), "softmax"),
    "log_softmax": (pcp.log_softmax, (X,), "log_softmax"),
    "logarithm of a sum of exponentials": (lambda x: pcp.logsumexp(x, -1), (X,), "log_sum_exp"),
    "the same with its axis kept": (lambda x: pcp.logsumexp(x, -1, keepdims=True), (X,), "log_sum_exp"),
    "layer norm": (nn.layer_norm, (X, W, W), "layer_norm"),
    "layer norm without bias": (nn.layer_norm, (X, W), "layer_norm"),
    "layer norm of torch": (torch_layer_norm, (X, W, W), "layer_norm"),
    "layer norm divided": (
        lambda x: (x - x.mean(-1, keepdims=True)) / pcp.sqrt(x.var(-1, keepdims=True) + 1e-5),
        (X,),
        "layer_norm",
    ),
    "rms norm": (nn.rms_norm, (X, W), "rms_norm"),
    "rms norm without scale": (
        lambda x: x * pcp.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6),
        (X,),
        "rms_norm",
    ),
    "rms norm by a power": (
        lambda x, w: w * (x * pcp.power((x * x).mean(-1, keepdims=True) + 1e-6, -0.5)),
        (X, W),
        "rms_norm",
    ),
    "rms norm by a reciprocal": (
        lambda x, w: x * (1 / pcp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) * w,
        (X, W),
        "rms_norm",
    ),
    "layer norm by a power": (
        lambda x, w: (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1e-5) ** 0.5 * w,
        (X, W),
        "layer_norm",
    ),
    "attention": (nn.scaled_dot_product_attention, (Q, Q, Q), "attention"),
    "attention in groups": (nn.scaled_dot_product_attention, (Q, K, K), "attention"),
    "causal attention": (lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, True), (Q, K, K), "attention"),
    "attention of later queries": (
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, True),
        ("f32[1,2,1,8]", "f32[1,6,1,8]", "f32[1,6,1,8]"),
        "attention",
    ),
    "masked attention": (
        lambda q, k, v, m: nn.scaled_dot_product_attention(q, k, v, True, m),
        (Q, Q, Q, "bool[2,1,6,6]"),
        "attention",
    ),
    "attention of torch": (attention_by_matmul, (Q, Q, Q, "f32[6,6]"), "attention"),
    "attention of transposed exponentials": (
        lambda q, k, v: ((e := pcp.exp((s := k @ q.T) - s.max(0, keepdims=True)).T) / e.sum(1, keepdims=True)) @ v,
        ("f32[4,8]", "f32[4,8]", "f32[4,8]"),
        "attention",
    ),
    "cross entropy": (nn.cross_entropy, (X, T), "cross_entropy"),
    "weighted cross entropy": (nn.cross_entropy, (X, T, "f32[2,3]"), "cross_entropy"),
    "cross entropy of log_softmax": (cross_entropy_by_gather, (X, T), "cross_entropy"),
}  # fmt: skip

LEFT_ALONE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "exponentials that are used again": (
        lambda x: [(e := pcp.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True), e],
        (X,),
    ),
    "a sum along another axis": (
        lambda x: (e := pcp.exp(x - x.max(-1, keepdims=True))) / e.sum(1, keepdims=True),
        (X,),
    ),
    "a maximum along another axis": (
        lambda x: (e := pcp.exp(x - x.max(1, keepdims=True))) / e.sum(-1, keepdims=True),
        (X,),
    ),
    "a maximum of something else": (
        lambda x, y: (e := pcp.exp(x - y.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
        (X, X),
    ),
    "a smallest": (lambda x: (e := pcp.exp(x - x.min(-1, keepdims=True))) / e.sum(-1, keepdims=True), (X,)),
    "another denominator": (
        lambda x, y: pcp.exp(x - x.max(-1, keepdims=True)) / pcp.exp(y).sum(-1, keepdims=True),
        (X, X),
    ),
    "exponentials that are transposed": (
        lambda x: (e := pcp.exp(x - x.max(0, keepdims=True)).T) / e.sum(1, keepdims=True),
        ("f32[4,4]",),
    ),
    "differences that are transposed": (
        lambda x: (d := (x - x.max(0, keepdims=True)).T) - pcp.log(pcp.exp(d).sum(1, keepdims=True)),
        ("f32[4,4]",),
    ),
    "squares that are transposed": (
        lambda x, w: (
            pcp.rsqrt(((c := x - x.mean(0, keepdims=True)) * c).T.mean(1, keepdims=True) + 1e-5) * w * c.T
        ),
        ("f32[4,4]", "f32[4]"),
    ),
    "a logarithm of sums of columns": (lambda x: pcp.logsumexp(x, 0), ("f32[4,4]",)),
    "logits that are transposed": (cross_entropy_transposed, ("f32[4,4]", "i32[4]")),
    "a mean of too few": (
        lambda x: x * pcp.rsqrt((x * x).sum(-1, keepdims=True) / 4 + 1e-6),
        (X,),
    ),
    "a mean along another axis": (
        lambda x: x * pcp.rsqrt((x * x).mean(1, keepdims=True) + (x * x).mean(-1, keepdims=True)),
        (X,),
    ),
    "a mean cube": (lambda x: x * pcp.rsqrt((x * x * x).mean(-1, keepdims=True) + 1e-6), (X,)),
    "another power": (lambda x: x * pcp.power((x * x).mean(-1, keepdims=True) + 1e-6, -0.25), (X,)),
    "twice a reciprocal": (lambda x: x * (2 / pcp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)), (X,)),
    "scores that are used again": (
        lambda q, k, v: [(p := pcp.exp(q @ k)) @ v, p],
        ("f32[2,4,4]", "f32[2,4,4]", "f32[2,4,4]"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RAISED)
def test_a_plain_form_becomes_one_composite_that_is_the_same_program(name: str) -> None:
    function, specs, composite = RAISED[name]
    program = traced(function, *specs)
    found = raised(program)
    assert names(found) == {f"pcp.{composite}": 1}
    assert found.digest == program.digest
    assert found.arguments == program.arguments
    assert found.results == program.results
    assert raised(found) is found


@pytest.mark.parametrize("name", [name for name, (form, *_) in RAISED.items() if form.__module__ != __name__])
def test_what_pcp_names_itself_is_what_is_recognised_in_a_file(name: str) -> None:
    function, specs, _ = RAISED[name]
    given = pcp.trace(function, *(spec_of(text) for text in specs))
    found = raised(given)
    assert found is given
    recognised = raised(traced(function, *specs))
    assert [site.key for site in kernels.sites_of(found, "cpu")] == [
        site.key for site in kernels.sites_of(recognised, "cpu")
    ]


def test_a_mask_that_is_made_of_counts_is_read_as_causal() -> None:
    def masked(q: Any, k: Any, v: Any, padding: Any) -> Any:
        return nn.scaled_dot_product_attention(q, k, v, mask=pcp.tril(pcp.ones((6, 6), "bool")) & padding)

    program = pcp.trace(masked, *[spec_of(Q)] * 3, spec_of("bool[2,1,6,6]"))
    assert "causal = false" in program.text
    found = raised(program)
    assert names(found) == {"pcp.attention": 1}
    assert "causal = true" in found.text
    assert "mask = array<i64: 0, " in found.text
    assert found.digest == program.digest
    assert raised(found) is found


def test_attention_around_a_named_softmax_is_recognised() -> None:
    def by_hand(q: Any, k: Any, v: Any) -> Any:
        return pcp.softmax(q @ k.transpose(0, 1, 3, 2)) @ v

    program = pcp.trace(by_hand, *[spec_of(Q)] * 3)
    assert names(program) == {"pcp.softmax": 1}
    found = raised(program)
    assert names(found) == {"pcp.attention": 1}
    assert found.digest == program.digest


def test_cross_entropy_around_a_named_log_softmax_is_recognised() -> None:
    program = pcp.trace(cross_entropy_by_gather, spec_of(X), spec_of(T))
    assert names(program) == {"pcp.log_softmax": 1}
    assert names(raised(program)) == {"pcp.cross_entropy": 1}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_another_computation_is_left_alone(name: str) -> None:
    program = traced(LEFT_ALONE[name][0], *LEFT_ALONE[name][1])
    assert raised(program) is program


def test_the_numbers_stay_bit_for_bit() -> None:
    def model(x: Any, scale: Any, t: Any) -> Any:
        h = nn.layer_norm(x, scale)
        q = h.reshape(2, 3, 1, 5)
        mixed = nn.scaled_dot_product_attention(q, q * 2, q + 1, True).reshape(2, 3, 5)
        return nn.cross_entropy(x + mixed, t), pcp.softmax(nn.rms_norm(x, scale))

    program = traced(model, X, W, T)
    found = raised(program)
    assert names(found) == {
        f"pcp.{name}": 1 for name in ("layer_norm", "attention", "cross_entropy", "softmax", "rms_norm")
    }
    arrays = [array(entry.spec) for entry in program.arguments]
    for given, expected in zip(run(found, *arrays), run(program, *arrays), strict=True):
        np.testing.assert_array_equal(given, expected)


def test_a_value_that_is_used_elsewhere_stops_only_its_own_pattern() -> None:
    def model(x: Any) -> Any:
        weights = pcp.softmax(x)
        return weights, pcp.log_softmax(weights)

    assert names(raised(traced(model, X))) == {"pcp.softmax": 1, "pcp.log_softmax": 1}


def test_a_product_whose_precision_the_program_demands_is_no_site() -> None:
    plain = traced(nn.scaled_dot_product_attention, Q, Q, Q).text
    sums = "contracting_dims = [3] x [3]"
    assert sums in plain
    demanding = plain.replace(sums, f"{sums}, precision = [HIGHEST, HIGHEST]")
    assert names(raised(Program.parse(plain))) == {"pcp.attention": 1}
    assert names(raised(Program.parse(demanding))) == {"pcp.softmax": 1}


def test_a_value_that_is_tapped_is_hidden_in_no_composite() -> None:
    def tapped(x: Any) -> Any:
        e = pcp.tap("weights", pcp.exp(x - x.max(-1, keepdims=True)))
        return e / e.sum(-1, keepdims=True)

    program = traced(tapped, X)
    assert raised(program) is program


def test_equal_layers_share_one_function() -> None:
    def model(x: Any, scale: Any) -> Any:
        return nn.rms_norm(nn.rms_norm(x, scale), scale)

    found = raised(traced(model, X, W))
    assert names(found) == {"pcp.rms_norm": 2}
    assert found.text.count("func.func private") == 1


def test_composites_are_raised_inside_of_loops_too() -> None:
    program = traced(lambda x: pcp.fori_loop(0, 3, lambda _, c: pcp.softmax(c), x), X)
    found = raised(program)
    assert names(found) == {"pcp.softmax": 1}
    x = array(program.arguments[0].spec)
    np.testing.assert_array_equal(run(found, x), run(program, x))


def test_artifacts_hold_no_composite() -> None:
    program = traced(pcp.softmax, X)
    found = raised(program)
    assert "composite" not in found.to_stablehlo()
    assert Program.from_artifact(found.artifact()).digest == program.digest


def test_every_row_is_tried() -> None:
    assert [row.name for rows in PHASES for row in rows] == [
        "read_masks",
        "raise_attention",
        "raise_cross_entropy_subtract",
        "raise_cross_entropy_reduce",
        "raise_cross_entropy_select",
        "raise_cross_entropy_gather",
        "raise_max_pool",
        "raise_batch_norm_and_relu_0",
        "raise_batch_norm_and_relu_1",
        "raise_batch_norm",
        "raise_log_softmax",
        "raise_softmax",
        "raise_biased_normalisation",
        "raise_normalisation",
        "raise_log_sum_exp",
        "raise_unscaled_normalisation",
    ]
