"""Native depthwise convolutions: which are sites, and what the handlers refuse. What they compute is tested by tests/kernels/rows.py."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.backends import ExecutionFailed
from pcp.ir import DType, TensorSpec
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from tests.execution import run

NAME = "convolution.native_depthwise"


def gradients(
    groups: int, x: tuple[int, ...], kernel: tuple[int, ...], layout: tuple[str, ...]
) -> pcp.Program:
    """A convolution in a loss, with the gradients of both operands."""
    ones = (1,) * (len(x) - 2)

    def loss(x: Any, kernel: Any) -> Any:
        return pcp.tanh(
            pcp.conv_general(x, kernel, ones, [(2, 0)] * len(ones), 1, ones, groups, layout)
        ).sum()

    return pcp.value_and_grad(pcp.trace(loss, pcp.spec(x, "f32"), pcp.spec(kernel, "f32")), wrt=(0, 1))


def test_convolutions_along_a_line_whose_channels_stand_first_are_sites_too() -> None:
    """As those of Mamba: four numbers of each channel, before and at a place."""
    program = gradients(18, (3, 18, 21), (18, 1, 3), ("NCW", "OIW", "NCW"))
    ready = prepared(program)
    sites = kernels.sites_of(ready, "cpu")
    assert [site.kernels for site in sites] == [(NAME,)] * 3
    path = Path.of(ready, {site.key: kernels.kernel_named(NAME) for site in sites})
    rng = np.random.default_rng()
    x, kernel = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 18, 21), (18, 1, 3)))
    found, expected = pcp.plan(ready, path=path, cache=False).run(x, kernel), run(program, x, kernel)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "kernel"),
    [(1, (3, 3, 18, 18)), (9, (3, 3, 2, 18)), (18, (3, 3, 1, 36))],
    ids=["one", "pairs", "twice"],
)
def test_groups_of_several_channels_are_none(groups: int, kernel: tuple[int, ...]) -> None:
    program = gradients(groups, (2, 6, 6, 18), kernel, ("NHWC", "HWIO", "NHWC"))
    sites = [
        site for site in kernels.sites_of(prepared(program), "cpu", bare=True) if site.family == "convolution"
    ]
    assert sites
    assert not any(NAME in site.kernels for site in sites)


@pytest.mark.parametrize(
    ("shapes", "attributes", "words"),
    [
        (
            ((6, 3), (3, 3, 3), (1, 4, 4, 3)),
            {},
            "shapes are [6,3], [3,3,3] and [1,4,4,3]; expected [samples,rows,",
        ),
        (
            ((1, 6, 6, 3), (3, 3, 2), (1, 4, 4, 3)),
            {},
            "there are not as many channels and samples everywhere",
        ),
        (
            ((1, 6, 6, 3), (3, 3, 3), (2, 4, 4, 3)),
            {},
            "there are not as many channels and samples everywhere",
        ),
        (((1, 6, 6, 3), (3, 3, 3), (1, 4, 4, 3)), {"strides": [0, 1]}, "an attribute is not two numbers"),
        (((1, 6, 6, 3), (3, 3, 3), (1, 4, 4, 3)), {"spread": [1]}, "an attribute is not two numbers"),
        (
            ((1, 6, 6, 3), (3, 3, 3), (1, 4, 4, 3)),
            {"before": [1 << 40, 0]},
            "an attribute is not two numbers",
        ),
    ],
)
@pytest.mark.parametrize("handler", ["depthwise", "depthwise_gradient"])
def test_the_handlers_refuse_what_they_are_not_for(
    handler: str, shapes: Any, attributes: dict[str, Any], words: str
) -> None:
    x, kernel, result = (TensorSpec(shape, DType.f32) for shape in shapes)
    if handler == "depthwise_gradient":
        kernel, result = result, kernel
    told = {"strides": [1, 1], "dilations": [1, 1], "spread": [1, 1], "before": [0, 0]} | attributes
    program = pcp.trace(
        lambda x, y: native_call(LIBRARIES["depthwise"], handler, (x, y), (result,), told)[0],
        *(pcp.spec(each.shape, "f32") for each in (x, kernel)),
    )
    with pytest.raises(ExecutionFailed) as refused:
        pcp.plan(program).run(np.zeros(x.shape, "f4"), np.zeros(kernel.shape, "f4"))
    assert words in str(refused.value)


def test_windows_and_places_beyond_the_input_read_nothing() -> None:
    """Attributes that a program may say, of which most numbers meet no element: the rest is 0."""
    told = {"strides": [3, 3], "dilations": [5, 1], "spread": [2, 1], "before": [-1, 7]}
    x, kernel = TensorSpec((1, 4, 4, 17), DType.f32), TensorSpec((9, 3, 17), DType.f32)
    result = TensorSpec((1, 50, 40, 17), DType.f32)
    program = pcp.trace(
        lambda x, k, g: (
            native_call(LIBRARIES["depthwise"], "depthwise", (x, k), (result,), told)[0],
            native_call(LIBRARIES["depthwise"], "depthwise_gradient", (x, g), (kernel,), told)[0],
        ),
        *(pcp.spec(each.shape, "f32") for each in (x, kernel, result)),
    )
    rng = np.random.default_rng()
    x_, k_, g_ = (rng.normal(size=each.shape).astype(np.float32) for each in (x, kernel, result))
    expected, windows = np.zeros(result.shape), np.zeros(kernel.shape)
    for i, j, u, v in np.ndindex(50, 40, 9, 3):
        (row, odd), column = divmod(i * 3 + u * 5 + 1, 2), j * 3 + v - 7
        if not odd and row < 4 and 0 <= column < 4:
            expected[:, i, j] += x_[:, row, column] * k_[u, v]
            windows[u, v] += (x_[:, row, column] * g_[:, i, j]).sum(0)
    found = pcp.plan(program).run(x_, k_, g_)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], windows, rtol=1e-4, atol=1e-5)
