"""The gradient of tables of few rows on NVIDIA GPUs, where atomic sums of a scatter would wait for one another."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.autodiff.gradient import value_and_vjp
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from tests.execution import run
from tests.kernels.gpu.emulated import emulate

NAME = "embedding_gradient.few"


def _program(rows: int, dtype: str) -> pcp.Program:
    specs = pcp.spec((rows, 8), "f32"), pcp.spec((3, 40), dtype)
    return prepared(value_and_vjp(pcp.trace(lambda e, t: nn.embedding(t, e), *specs), 0))


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_rows_of_few_tokens_are_added_by_a_product(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    program = _program(2, dtype)
    (site,) = [site for site in sites_of(program, "cuda") if site.family == "embedding_gradient"]
    assert NAME in site.kernels
    changed = apply_kernels(program, {site.key: kernel_named(NAME)})
    assert "stablehlo.scatter" not in changed.text
    rng = np.random.default_rng(2)
    table, g = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 8), (3, 40, 8)))
    tokens = rng.integers(0, 2, (3, 40)).astype(dtype.replace("i", "int"))
    y, of_table = run(changed, table, tokens, g)
    right = np.stack([g[tokens == token].astype(np.float64).sum(0) for token in (0, 1)])
    np.testing.assert_array_equal(y, table[tokens])
    np.testing.assert_allclose(of_table, right, rtol=1e-5, atol=1e-5)


def test_it_is_tried_with_the_kernels_of_all_families_and_other_tables_are_left_to_a_scatter() -> None:
    for rows, takes in ((2, True), (64, True), (65, False), (150_000, False)):
        sites = [
            site for site in sites_of(_program(rows, "i32"), "cuda") if site.family == "embedding_gradient"
        ]
        assert all((NAME in site.kernels) is takes for site in sites)
    assert not any(NAME in site.kernels for site in sites_of(_program(2, "i32"), "cpu"))
    classes: Any = [
        type("Class", (), {"digest": name, "estimate": 1.0, "kernels": [kernel_named(name)]})
        for name in (NAME, "product.xla:tf32")
    ]
    assert [{kernel.name for kernel in level.values()} for level in together(classes)] == [
        {NAME, "product.xla:tf32"}
    ]
