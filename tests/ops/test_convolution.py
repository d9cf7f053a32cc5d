"""Convolutions and windows against XLA's own by way of JAX, in float64, and what they say about wrong shapes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.execution import run, run_in_jax

import pcp
from pcp import ops
from pcp.tensor import DTypeMismatch, ShapeMismatch

RNG = np.random.default_rng(0)
NHWC = ("NHWC", "HWIO", "NHWC")


def near(function: Any, reference: Any, *arguments: Any) -> None:
    """A function of Tensors makes what a function of JAX makes."""
    with jax.enable_x64(True):
        expected = np.asarray(run_in_jax(reference, *arguments))
    found = run(pcp.trace(function, *arguments), *arguments)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (-1, 0)]])
@pytest.mark.parametrize(("strides", "groups", "dilation"), [((1, 1), 1, (1, 1)), ((2, 3), 2, (1, 2))])
def test_a_convolution_is_that_of_xla(padding: Any, strides: Any, groups: int, dilation: Any) -> None:
    x, kernel = RNG.normal(size=(2, 8, 9, 4)), RNG.normal(size=(3, 2, 4 // groups, 6))
    spread = (1, 1) if isinstance(padding, str) else (2, 1)  # JAX takes no words for dilated inputs
    near(
        lambda x, k: ops.conv_general(x, k, strides, padding, spread, dilation, groups),
        lambda x, k: lax.conv_general_dilated(x, k, strides, padding, spread, dilation, NHWC, groups),
        x,
        kernel,
    )


@pytest.mark.parametrize(
    "orders", [("NCHW", "OIHW", "NCHW"), ("CNWH", "WOHI", "HNCW"), ("NCH", "HIO", "NHC"), ("NC", "IO", "NC")]
)
def test_axes_may_have_any_order(orders: Any) -> None:
    sizes = {"N": 2, "C": 3, "H": 7, "W": 6}
    kernel_sizes = {"O": 4, "I": 3, "H": 3, "W": 2}
    x = RNG.normal(size=[sizes[c] for c in orders[0]])
    kernel = RNG.normal(size=[kernel_sizes[c] for c in orders[1]])
    strides = [2, 1][: x.ndim - 2]
    near(
        lambda x, k: ops.conv_general(x, k, strides, orders=orders),
        lambda x, k: lax.conv_general_dilated(x, k, strides, "VALID", dimension_numbers=orders),
        x,
        kernel,
    )


@pytest.mark.parametrize(
    ("orders", "strides", "padding", "convolutions"),
    [
        (NHWC, (1, 1), "VALID", 0),
        (("NCHW", "OIHW", "NCHW"), (2, 3), "VALID", 0),
        (
            ("CNHW", "IOHW", "NHWC"),
            (1, 1),
            [(1, 2), (0, -1)],
            1,
        ),  # padding meets the kernel in one place more
    ],
)
def test_gradients_of_a_kernel_of_one_place_are_products(
    orders: Any, strides: Any, padding: Any, convolutions: int
) -> None:
    sizes, kernel_sizes = {"N": 2, "C": 3, "H": 7, "W": 6}, {"O": 4, "I": 3, "H": 1, "W": 1}
    x, kernel = (
        RNG.normal(size=[found[c] for c in order])
        for found, order in zip((sizes, kernel_sizes), orders, strict=False)
    )
    ours = pcp.trace(
        lambda x, k: pcp.tanh(ops.conv_general(x, k, strides, padding, orders=orders)).sum(), x, kernel
    )
    gradient = pcp.grad(ours, wrt=(0, 1))
    assert gradient.text.count("stablehlo.convolution") == 1 + convolutions
    with jax.enable_x64(True):
        expected = run_in_jax(
            jax.grad(
                lambda x, k: jnp.tanh(
                    lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=orders)
                ).sum(),
                (0, 1),
            ),
            x,
            kernel,
        )
    for found, wanted in zip(run(gradient, x, kernel), expected, strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("last", [True, False])
def test_named_ranks_take_channels_first_or_last(rank: int, last: bool) -> None:
    space = "DHW"[3 - rank :]
    orders = (
        (f"N{space}C", f"{space}IO", f"N{space}C") if last else (f"NC{space}", f"OI{space}", f"NC{space}")
    )
    sizes = {"N": 2, "C": 3, "D": 4, "H": 5, "W": 6}
    kernel_sizes = {"O": 4, "I": 3, "D": 2, "H": 3, "W": 3}
    near(
        lambda x, k: getattr(ops, f"conv{rank}d")(x, k, 2, "SAME", channels_last=last),
        lambda x, k: lax.conv_general_dilated(x, k, [2] * rank, "SAME", dimension_numbers=orders),
        RNG.normal(size=[sizes[c] for c in orders[0]]),
        RNG.normal(size=[kernel_sizes[c] for c in orders[1]]),
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (1, 0)]])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_transpose_carries_cotangents_back(padding: Any, groups: int) -> None:
    x, kernel = RNG.normal(size=(2, 6, 8, 4)), RNG.normal(size=(3, 2, 4 // groups, 6))

    def forward(x: Any) -> Any:
        return lax.conv_general_dilated(x, kernel, (3, 2), padding, None, (1, 2), NHWC, groups)

    with jax.enable_x64(True):
        result, pull_back = jax.vjp(forward, jnp.asarray(x))
        g = RNG.normal(size=result.shape)
        (expected,) = pull_back(jnp.asarray(g))
    program = pcp.trace(lambda g: ops.conv_transpose(g, kernel, (3, 2), padding, (1, 2), 0, groups), g)
    found = run(program, g)
    # The sizes that a stride maps to one end in places that the convolution never read.
    height, width = (min(a, b) for a, b in zip(found.shape[1:3], (6, 8), strict=True))
    np.testing.assert_allclose(
        found[:, :height, :width], expected[:, :height, :width], rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(expected[:, height:], 0, atol=1e-12)
    if padding == "SAME":
        assert found.shape[1:3] == (result.shape[1] * 3, result.shape[2] * 2)


# cuDNN, which convolves for XLA on NVIDIA GPUs, knows neither wide integers nor complex numbers.
ELSEWHERE = [] if pcp.backends.device().kind == "cuda" else ["i32", "c64"]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", *ELSEWHERE])
def test_every_kind_of_number_is_convolved(dtype: str) -> None:
    kind = pcp.spec((), dtype).spec.dtype.numpy
    x, kernel = (RNG.integers(-3, 4, size=s).astype(kind) for s in ((1, 5, 2), (2, 2, 3)))
    found = run(pcp.trace(lambda x, k: ops.conv1d(x, k), x, kernel), x, kernel)
    expected = sum(x[:, i : i + 4] @ kernel[i] for i in range(2))
    np.testing.assert_array_equal(found, expected)


def test_a_result_without_places_is_empty() -> None:
    x, kernel = RNG.normal(size=(2, 3, 1)), RNG.normal(size=(5, 1, 4))
    assert run(pcp.trace(lambda x, k: ops.conv1d(x, k), x, kernel), x, kernel).shape == (2, 0, 4)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 0), (0, 1)]])
@pytest.mark.parametrize("last", [True, False])
def test_pooling_is_that_of_xla(padding: Any, last: bool) -> None:
    x = RNG.normal(size=(2, 5, 7, 3))
    window, strides = ((1, 2, 3, 1), (1, 2, 1, 1)) if last else ((1, 1, 2, 3), (1, 1, 2, 1))
    whole = (
        padding
        if isinstance(padding, str)
        else [(0, 0), *padding, (0, 0)]
        if last
        else [(0, 0), (0, 0), *padding]
    )
    near(
        lambda x: ops.max_pool(x, (2, 3), (2, 1), padding, last),
        lambda x: lax.reduce_window(x, -np.inf, lax.max, window, strides, whole),
        x,
    )

    def mean(x: Any) -> Any:
        total = lax.reduce_window(x, 0.0, lax.add, window, strides, whole)
        return total / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, window, strides, whole)

    near(lambda x: ops.avg_pool(x, (2, 3), (2, 1), padding, last, count_padding=False), mean, x)
    near(
        lambda x: ops.avg_pool(x, (2, 3), (2, 1), padding, last),
        lambda x: lax.reduce_window(x, 0.0, lax.add, window, strides, whole) / 6,
        x,
    )


@pytest.mark.parametrize(
    ("reduction", "reference", "start", "dtype"),
    [
        ("sum", lax.add, 0, "i32"),
        ("product", lax.mul, 1, "u8"),
        ("min", lax.min, 127, "i8"),
        ("any", lax.bitwise_or, False, "bool"),
    ],
)
def test_a_reduction_slides_over_any_axes(reduction: str, reference: Any, start: Any, dtype: str) -> None:
    kind = pcp.spec((), dtype).spec.dtype.numpy
    x = RNG.integers(0, 3, size=(6, 7)).astype(kind)
    near(
        lambda x: ops.reduce_window(x, reduction, (2, 3), (1, 2), [(1, 0), (2, 1)], (2, 1), (1, 2)),
        lambda x: lax.reduce_window(
            x, kind.type(start), reference, (2, 3), (1, 2), [(1, 0), (2, 1)], (2, 1), (1, 2)
        ),
        x,
    )


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x, k: ops.conv_general(x, k[:, :, :1]),
            ShapeMismatch,
            r"x of shape \(2, 8, 8, 4\) has 4 channels; .* takes 1",
        ),
        (
            lambda x, k: ops.conv_general(x, k, groups=4),
            ShapeMismatch,
            "in 4 groups; expected channels = inputs",
        ),
        (lambda x, k: ops.conv_general(x, k[0]), ShapeMismatch, "lack the axes NHWC x HWIO -> NHWC"),
        (
            lambda x, k: ops.conv_general(x, k, orders=("NHWC", "HWAO", "NHWC")),
            ShapeMismatch,
            "expected N, C and O, I",
        ),
        (
            lambda x, k: ops.conv_general(x, k, strides=0),
            ShapeMismatch,
            r"strides \(0, 0\) were given; expected 2 integers of at least 1",
        ),
        (
            lambda x, k: ops.conv_general(x, k, strides=(1,)),
            ShapeMismatch,
            r"strides \(1,\) were given; expected 2",
        ),
        (
            lambda x, k: ops.conv_general(x, k, padding="FULL"),
            ShapeMismatch,
            "padding 'FULL' was given; expected 'SAME', 'VALID'",
        ),
        (lambda x, k: ops.conv_general(x, k, padding=[(1, 1)]), ShapeMismatch, "or 2 pairs"),
        (
            lambda x, k: ops.conv_general(x > 0, k > 0),
            DTypeMismatch,
            "element type bool was given; expected numbers",
        ),
        (
            lambda x, k: ops.conv_transpose(x, k),
            ShapeMismatch,
            "needs as many outputs of its kernel as it has channels",
        ),
        (
            lambda x, _: ops.max_pool(x[0, 0], 2),
            ShapeMismatch,
            r"max_pool: shape \(8, 4\) was given; expected axes for batch",
        ),
        (
            lambda x, _: ops.avg_pool(x, (2, 2, 2)),
            ShapeMismatch,
            r"avg_pool: window \(2, 2, 2\) were given; expected 2",
        ),
        (
            lambda x, _: ops.reduce_window(x, "mean", (1, 1, 1, 1)),
            DTypeMismatch,
            "there is no reduction 'mean' of f32; choose one of sum",
        ),
        (lambda x, _: ops.reduce_window(x, "any", (1, 1, 1, 1)), DTypeMismatch, "no reduction 'any' of f32"),
    ],
)
def test_wrong_shapes_are_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(function, pcp.spec((2, 8, 8, 4), "f32"), pcp.spec((3, 3, 4, 5), "f32"))
