"""Gradients pass through conversions to floats of eight bits and fewer, rounded as JAX rounds them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.ir import DType
from tests.execution import QUICK

X = np.random.default_rng(0).uniform(0.3, 3, (4, 4)).astype(np.float32)
W = np.random.default_rng(1).uniform(0.3, 1, (4, 4)).astype(np.float32)
STORED = [dtype for dtype in DType if dtype.kind == "storage" and dtype.is_inexact]


def functions(dtype: Any) -> dict[str, Callable[[Any], Any]]:
    """Of Tensors and of JAX's arrays."""
    return {
        "scaled": lambda x: (x.astype(dtype).astype("float32") * W).sum(),
        "squared": lambda x: (x.astype(dtype).astype("float32") ** 2).sum(),
        "read twice": lambda x: _twice(x.astype(dtype)),
        "moved": lambda x: (x.astype(dtype).T[1:3].astype("float32") * W[:2]).sum()
        + x.astype(dtype).reshape((2, 8)).astype("bfloat16").astype("float32").sum(),
        "stored twice": lambda x: (x.astype(dtype).astype("float32") * x.astype("float8_e5m2").astype("float32")).sum(),
    }  # fmt: skip


def _twice(y: Any) -> Any:
    wide = y.astype("float32")
    return (wide * W).sum() + (wide * wide).sum() + (y.astype("bfloat16").astype("float32") * 3).sum()


CASES = [(dtype, name, f) for dtype in STORED for name, f in functions(dtype.numpy).items()]


@functools.cache
def of_jax() -> list[tuple[Any, Any]]:
    """The gradient of every case at X, and its tangent along W."""
    functions = [f for _, _, f in CASES]

    def every(x: Any, w: Any) -> Any:
        return [(jax.grad(f)(x), jax.jvp(f, (x,), (w,))[1]) for f in functions]

    # Else XLA leaves out roundings between one element type and another.
    return jax.jit(every, compiler_options={**QUICK, "xla_allow_excess_precision": False})(X, W)


@pytest.mark.parametrize("origin", ["trace", "from_jax"])
def test_gradients_and_tangents_through_storage_are_those_of_jax(origin: str) -> None:
    made = pcp.trace if origin == "trace" else pcp.from_jax
    programs = [made(f, X) for _, _, f in CASES]
    gradients, tangents = [pcp.grad(each) for each in programs], [pcp.jvp(each) for each in programs]

    def everything(x: pcp.Tensor, t: pcp.Tensor) -> Any:
        return [pcp.call(each, x) for each in gradients], [pcp.call(each, x, t)[1] for each in tangents]

    backward, forward = pcp.plan(pcp.trace(everything, X, W), "arena:cpu").run(X, W)
    for (dtype, name, _), gradient, tangent, (wanted, moved) in zip(
        CASES, backward, forward, of_jax(), strict=True
    ):
        np.testing.assert_allclose(np.asarray(gradient), wanted, rtol=1e-5, err_msg=f"{dtype} {name}")
        np.testing.assert_allclose(np.asarray(tangent), moved, rtol=1e-5, err_msg=f"{dtype} {name}")
        assert dtype is DType.f8E8M0FNU or np.abs(wanted).sum() > 0


def test_integers_of_storage_have_no_gradient() -> None:
    gradient = pcp.grad(pcp.trace(lambda x: (x.astype("i4").astype("f32") * x).sum(), X))
    np.testing.assert_array_equal(np.asarray(pcp.plan(gradient, "arena:cpu").run(X)), X.astype(np.int32))
