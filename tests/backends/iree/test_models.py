"""Gradients of models by IREE against float64; in float64 itself where IREE has every operation."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import jax
from benchmarks.programs import gradient_jax
from benchmarks.programs.gradient import error_of, exact_gradients

import pcp

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("made", "dtype", "tolerance"),
    [
        (lambda: gradient_jax.resnet((8, 16), 4), np.float64, 1e-11),
        (lambda: gradient_jax.lstm(16, 4, 8), np.float32, 5e-6),  # IREE has no tanh of float64
        (lambda: gradient_jax.transformer("gpt2-nano", 2, 16), np.float32, 5e-6),
    ],
    ids=["resnet", "lstm", "gpt2"],
)
def test_gradients_are_exact(made: Any, dtype: Any, tolerance: float) -> None:
    workload = made()
    with jax.enable_x64(dtype is np.float64):
        given = [
            jax.tree.map(lambda a: a.astype(dtype) if a.dtype == np.float32 else a, part)
            for part in (workload.params, *workload.batch)
        ]
        text = jax.jit(workload.loss).lower(*given).as_text()
    leaves = jax.tree.leaves(given[0])
    gradient = pcp.value_and_grad(pcp.Program.parse(text), wrt=tuple(range(len(leaves))))
    results = jax.tree.leaves(pcp.plan(gradient, "iree:llvm-cpu").run(*leaves, *given[1:]))
    found = [np.asarray(each) for each in results[-len(leaves) :]]
    assert error_of(found, exact_gradients(workload)) < tolerance
