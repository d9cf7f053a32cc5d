"""Images whose channels stand before their places get them last: the same numbers, no transposes but where images come in."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.rewrite.canonical import canonical
from pcp.rewrite.canonical.channels import _groups, with_channels_last
from pcp.tensor import Tensor
from tests.execution import exactly

FIRST = ("NCHW", "OIHW", "NCHW")
"""As PyTorch has its axes."""


def _convolved(x: Tensor, kernel: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    return ops.conv_general(x, kernel, (stride, stride), [(1, 1), (1, 1)], 1, (1, 1), groups, FIRST)


def _normed(x: Tensor, scale: Tensor) -> Tensor:
    """The norm of a batch as PyTorch decomposes it."""
    mean = ops.mean(x, (0, 2, 3), keepdims=True)
    centred = x - mean
    reciprocal = ops.rsqrt(ops.mean(centred * centred, (0, 2, 3), keepdims=True) + 1e-5)
    return centred * reciprocal * ops.reshape(scale, (-1, 1, 1))


def _network(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Everything that has a rule, one after another."""
    y = _convolved(x, w["first"])
    y = ops.maximum(_normed(y, w["scale"]), 0.0)
    y = ops.reduce_window(y, "max", (1, 1, 3, 2), (1, 1, 1, 2), [(0, 0), (0, 0), (1, 1), (0, 0)])
    depthwise = _convolved(y, w["depthwise"], groups=4)
    joined = ops.concatenate([depthwise, y * w["mask"]], 1)  # the mask is in the order of the image
    y = ops.pad(joined[:, 1:, ::2, :], [(0, 0), (0, 0), (1, 0), (0, 2)])
    y = ops.where(y > 0.1, y, ops.exp(y)) + ops.reshape(w["place"], (1, 1, *w["place"].shape))
    parts = ops.reshape(y, (y.shape[0], 7, y.shape[2] * y.shape[3]))  # places are one axis
    rows = ops.transpose(parts, (0, 2, 1))
    scores = ops.einsum("bpc,bqc->bpq", rows, rows)
    apart = ops.reshape(parts, (y.shape[0], 7, 1, *y.shape[2:]))  # and two again
    return ops.sum(scores * 0.01) + ops.sum(apart[:, :, 0], (2, 3)) @ w["last"]


def _weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {
        "first": (4, 3, 3, 3), "scale": (4,), "depthwise": (4, 1, 3, 3), "mask": (2, 4, 6, 3), "place": (4, 5), "last": (7, 2),
    }  # fmt: skip
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_a_network_with_its_channels_last_computes_the_same_and_so_does_its_derivative() -> None:
    rng = np.random.default_rng()
    x, weights = rng.normal(size=(2, 3, 6, 6)), _weights(rng)
    program = pcp.trace(
        lambda w, x: ops.sum(ops.square(_network(x, w))), pcp.specs_of(weights), pcp.specs_of(x)
    )
    turned = with_channels_last(program)
    assert turned is not program
    found, expected = (exactly(pcp.value_and_grad(each), weights, x) for each in (turned, program))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    for name, gradient in expected[1].items():
        np.testing.assert_allclose(found[1][name], gradient, rtol=1e-9, atol=1e-9, err_msg=name)


def test_only_what_comes_in_is_transposed() -> None:
    rng = np.random.default_rng()
    specs = pcp.specs_of(_weights(rng)), pcp.spec((2, 3, 6, 6), "f32")
    program = canonical(pcp.trace(lambda w, x: _network(x, w), *specs))
    transposes = re.findall(r"stablehlo.transpose.*?-> tensor<([\dx]+)xf", program.to_stablehlo())
    assert sorted(transposes) == [
        "2x6x3x4",
        "2x6x6x3",
        "3x3x1x4",
        "3x3x3x4",
    ]  # the mask, the image, and kernels
    assert "[b, f, 0, 1]" not in program.to_stablehlo()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: ops.conv_general(x, k, (1, 1), [(1, 1), (1, 1)], 1, (1, 1), 1, ("NHWC", "HWIO", "NHWC")),
        lambda x, k: ops.reshape(ops.transpose(x, (0, 3, 1, 2)), (2, -1)) @ ops.reshape(k, (36, 3)),
    ],
    ids=["channels last already", "no convolution"],
)
def test_other_programs_stay_as_they_are(function: Callable[..., Tensor]) -> None:
    program = pcp.trace(function, pcp.spec((2, 3, 3, 4), "f32"), pcp.spec((3, 3, 4, 3), "f32"))
    assert with_channels_last(program) is program


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((2, 8, 4, 4), (2, 8, 16), [([0], [0]), ([1], [1]), ([2, 3], [2])]),
        ((2, 8, 4, 4), (2, 2, 4, 4, 4), [([0], [0]), ([1], [1, 2]), ([2], [3]), ([3], [4])]),
        ((2, 8, 1, 1), (2, 8), [([0], [0]), ([1], [1]), ([2], []), ([3], [])]),
        ((2, 6), (3, 4), [([0, 1], [0, 1])]),
    ],
)
def test_axes_that_a_reshape_joins(old: Sequence[int], new: Sequence[int], expected: object) -> None:
    assert _groups(old, new) == expected
