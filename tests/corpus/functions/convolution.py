"""Convolutions with every parameter, pooling, general windows, resizing."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import distinct, normal, positive
from tests.corpus.case import Case

_IMAGE, _KERNEL = (2, 3, 7, 6), (4, 3, 3, 2)


def _conv(**more: Any) -> Any:
    return lambda x, k: lax.conv_general_dilated(
        x, k, **({"window_strides": (1, 1), "padding": "VALID"} | more)
    )


def _laid_out(image: str, kernel: str, out: str, **more: Any) -> Any:
    return _conv(dimension_numbers=(image, kernel, out), padding="SAME", window_strides=(2, 1), **more)


def _window(
    body: Any,
    start: float,
    size: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    padding: Any = "VALID",
    **more: Any,
) -> Any:
    strides = strides or (1,) * len(size)
    return lambda x: lax.reduce_window(x, np.float64(start), body, size, strides, padding, **more)


def _parts(x: Any) -> list[Any]:
    """The elements of each window of two by two."""
    rows, columns = x.shape
    return [x[i : rows - 1 + i, j : columns - 1 + j] for i in range(2) for j in range(2)]


def _product(arrays: list[Any]) -> Any:
    return functools.reduce(jnp.multiply, arrays)


_POOLED = (1, 1, 2, 3)

CASES = [
    Case("valid", _conv(), normal(_IMAGE, _KERNEL), order=2),
    Case("same", _conv(padding="SAME"), normal(_IMAGE, _KERNEL), order=2),
    Case("strides", _conv(window_strides=(2, 3)), normal(_IMAGE, _KERNEL), order=2),
    Case("uneven_padding", _conv(padding=((0, 2), (3, 1))), normal(_IMAGE, _KERNEL)),
    Case("negative_padding", _conv(padding=((-1, 2), (0, -2))), normal(_IMAGE, _KERNEL), order=2),
    Case("kernel_dilation", _conv(rhs_dilation=(2, 3)), normal(_IMAGE, _KERNEL), order=2),
    Case(
        "image_dilation",
        _conv(lhs_dilation=(2, 3), padding=((1, 2), (0, 1))),
        normal(_IMAGE, _KERNEL),
        order=2,
    ),
    Case(
        "everything",
        _conv(window_strides=(2, 1), padding=((1, 3), (2, 0)), lhs_dilation=(1, 2), rhs_dilation=(2, 1)),
        normal(_IMAGE, _KERNEL),
        order=2,
    ),
    Case("groups", _conv(feature_group_count=3, padding="SAME"), normal(_IMAGE, (6, 1, 3, 2)), order=2),
    Case("depthwise", _conv(feature_group_count=3), normal(_IMAGE, (3, 1, 3, 3))),
    Case("batch_groups", _conv(batch_group_count=2), normal((4, 3, 5, 5), (4, 3, 3, 2)), order=2),
    Case(
        "groups_and_strides",
        _conv(feature_group_count=2, window_strides=(2, 2), padding=((1, 1), (1, 0))),
        normal((2, 4, 6, 6), (6, 2, 3, 3)),
    ),
    Case("pointwise", _conv(), normal(_IMAGE, (5, 3, 1, 1))),
    Case("kernel_as_large_as_image", _conv(), normal((2, 3, 4, 4), (5, 3, 4, 4))),
    Case("channels_last", _laid_out("NHWC", "HWIO", "NHWC"), normal((2, 6, 5, 3), (3, 2, 3, 4)), order=2),
    Case("odd_layout", _laid_out("HNCW", "OIHW", "CNWH"), normal((6, 2, 3, 5), (4, 3, 3, 2))),
    Case("kernel_layout", _laid_out("NHWC", "OHWI", "NCHW"), normal((2, 6, 5, 3), (4, 3, 2, 3))),
    Case(
        "one_dimension",
        lambda x, k: lax.conv_general_dilated(x, k, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        normal((2, 7, 3), (3, 3, 4)),
        order=2,
    ),
    Case(
        "three_dimensions",
        lambda x, k: lax.conv_general_dilated(x, k, (1, 2, 1), "SAME"),
        normal((1, 2, 4, 4, 3), (3, 2, 2, 3, 2)),
    ),
    Case(
        "causal",
        lambda x, k: lax.conv_general_dilated(x, k, (1,), ((2, 0),), dimension_numbers=("NWC", "WIO", "NWC")),
        normal((2, 6, 3), (3, 3, 4)),
    ),
    Case(
        "transposed",
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
        normal((2, 3, 4, 3), (3, 3, 3, 5)),
        order=2,
    ),
    Case(
        "transposed_valid",
        lambda x, k: lax.conv_transpose(x, k, (2, 3), "VALID"),
        normal((2, 3, 4, 3), (3, 2, 3, 5)),
    ),
    Case(
        "transposed_kernel",
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME", transpose_kernel=True),
        normal((2, 3, 4, 3), (3, 3, 5, 3)),
    ),
    Case(
        "with_local_shape",
        lambda x, k: lax.conv_general_dilated_local(x, k, (1, 1), "VALID", (2, 2)),
        normal((2, 3, 4, 4), (5, 12, 3, 3)),
    ),
    Case(
        "patches",
        lambda x: lax.conv_general_dilated_patches(x, (2, 3), (2, 1), "VALID"),
        normal((2, 3, 5, 5)),
    ),
    Case(
        "flipped",
        lambda x, k: jax.scipy.signal.convolve2d(x, k, mode="same"),
        normal((5, 6), (3, 3)),
        order=2,
    ),
    Case("vmapped_kernels", lambda x, k: jax.vmap(lambda k: _conv()(x, k))(k), normal(_IMAGE, (2, *_KERNEL))),
    Case("vmapped_both", jax.vmap(_conv(padding="SAME")), normal((2, *_IMAGE), (2, *_KERNEL))),
    Case(
        "residual_block",
        lambda x, k, j: jax.nn.relu(_conv(padding="SAME")(jax.nn.relu(_conv(padding="SAME")(x, k)), j) + x),
        normal((2, 3, 5, 5), (4, 3, 3, 3), (3, 4, 3, 3)),
    ),
    Case("max_pool", _window(lax.max, -np.inf, _POOLED, _POOLED), distinct(_IMAGE)),
    Case(
        "max_pool_overlapping",
        _window(lax.max, -np.inf, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
        distinct(_IMAGE),
    ),
    Case(
        "max_pool_dilated",
        _window(lax.max, -np.inf, _POOLED, window_dilation=(1, 1, 2, 1)),
        distinct(_IMAGE),
        reference=lambda x: jnp.stack(
            [x[:, :, i : i + 5 : 1, j : j + 4] for i in (0, 2) for j in range(3)]
        ).max(0),
    ),
    Case(
        "max_pool_padded",
        _window(lax.max, -np.inf, _POOLED, _POOLED, ((0, 0), (0, 0), (1, 1), (2, 0))),
        distinct(_IMAGE),
    ),
    Case("min_pool", _window(lax.min, np.inf, _POOLED, _POOLED, "SAME"), distinct(_IMAGE)),
    Case("sum_pool", _window(lax.add, 0, _POOLED, _POOLED, "SAME"), normal(_IMAGE), order=2),
    Case(
        "sum_pool_dilated",
        _window(lax.add, 0, _POOLED, base_dilation=(1, 1, 2, 1), window_dilation=(1, 1, 1, 2)),
        normal(_IMAGE),
        order=2,
    ),
    Case("mean_pool", lambda x: _window(lax.add, 0, _POOLED, _POOLED)(x) / 6, normal(_IMAGE)),
    Case(
        "mean_pool_excluding_padding",
        lambda x: (
            _window(lax.add, 0, _POOLED, _POOLED, "SAME")(x)
            / _window(lax.add, 0, _POOLED, _POOLED, "SAME")(jnp.ones(_IMAGE))
        ),
        normal(_IMAGE),
    ),
    Case(
        "norm_pool", lambda x: jnp.sqrt(_window(lax.add, 0, _POOLED, _POOLED)(x**2)), normal(_IMAGE), order=2
    ),
    Case(
        "product_pool",
        _window(lax.mul, 1, (2, 2), (1, 1)),
        positive((4, 5)),
        order=2,
        reference=lambda x: _product(_parts(x)),
    ),
    Case(
        "general_window",
        _window(lambda a, b: a + b + a * b, 0.0, (2, 3), (1, 2)),
        normal((4, 6)),
        order=2,
        reference=lambda x: (
            _product([1 + x[i : i + 3, j : j + 3 : 2] for i in range(2) for j in range(3)]) - 1
        ),
    ),
    Case(
        "general_window_padded",
        _window(jnp.logaddexp, -1e3, (2, 2), (1, 1), "SAME"),
        normal((4, 5)),
        reference=lambda x: jax.nn.logsumexp(
            jnp.stack(_parts(jnp.pad(x, ((0, 1), (0, 1)), constant_values=-1e3))), axis=0
        ),
    ),
    Case("global_pool", lambda x: x.mean((2, 3)) * x.max((2, 3)), distinct(_IMAGE)),
    Case(
        "local_response",
        lambda x: x / (2 + 1e-1 * _window(lax.add, 0, (1, 3, 1, 1), None, "SAME")(x**2)) ** 0.75,
        normal(_IMAGE),
        order=2,
    ),
    Case("resize_linear", lambda x: jax.image.resize(x, (7, 9), "linear"), normal((4, 5)), order=2),
    Case("resize_nearest", lambda x: jax.image.resize(x, (6, 8), "nearest") ** 2, normal((4, 5))),
    Case("resize_cubic", lambda x: jax.image.resize(x, (3, 9), "cubic"), normal((4, 5))),
    Case("resize_lanczos", lambda x: jax.image.resize(x, (3, 3), "lanczos3"), normal((5, 5))),
    Case(
        "map_coordinates",
        lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c[0], c[1]], order=1),
        lambda rng: (rng.normal(size=(5, 5)), rng.uniform(0.1, 3.9, (2, 6))),
    ),
    Case(
        "pad_interior",
        lambda x: lax.pad(x, np.float64(0.5), ((1, 2, 1), (0, 1, 2))) ** 2,
        normal((3, 4)),
        order=2,
    ),
    Case(
        "pad_negative", lambda x, v: lax.pad(x, v, ((-1, 2, 1), (2, -2, 0))) ** 2, normal((3, 4), ()), order=2
    ),
    Case("pad_reflect", lambda x: jnp.pad(x, 2, mode="reflect") ** 2, normal((4, 5))),
    Case("pad_wrap", lambda x: jnp.pad(x, ((1, 2), (0, 3)), mode="wrap"), normal((4, 5))),
    Case("pad_edge", lambda x: jnp.pad(x, 1, mode="edge") ** 2, normal((3, 4)), order=2),
    Case("pad_linear_ramp", lambda x: jnp.pad(x, 2, mode="linear_ramp"), normal((3, 4))),
    Case(
        "pixel_shuffle",
        lambda x: x.reshape(2, 2, 2, 3, 4).transpose(0, 3, 1, 4, 2).reshape(2, 6, 8) ** 2,
        normal((2, 4, 3, 4)),
    ),
]
