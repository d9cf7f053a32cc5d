"""Unsigned integers and booleans in products on IREE, which reads them as signed ones or refuses them."""

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp.ir import DType

RNG = np.random.default_rng()


@pytest.mark.parametrize("wide", ["f32", "f64", "i64"])
@pytest.mark.parametrize("narrow", ["u8", "u16", "u32"])
def test_products_of_unsigned_integers_have_no_sign(narrow: str, wide: str) -> None:
    dtype = DType(narrow).numpy
    x, y = (
        RNG.integers(np.iinfo(dtype).max - 9, np.iinfo(dtype).max, shape).astype(dtype)
        for shape in ((4, 3), (3, 5))
    )
    plan = pcp.plan(pcp.trace(lambda x, y: x.astype(wide) @ y.astype(wide), x, y), "iree:llvm-cpu")
    exact = x.astype(DType(wide).numpy) @ y.astype(DType(wide).numpy)
    np.testing.assert_allclose(np.asarray(plan.run(x, y)), exact, rtol=1e-5)


@pytest.mark.parametrize("wide", ["f32", "i32", "bf16"])
def test_products_of_booleans(wide: str) -> None:
    mask, y = RNG.random((4, 3)) < 0.5, RNG.integers(-9, 9, (3, 5)).astype(DType(wide).numpy)
    plan = pcp.plan(pcp.trace(lambda m, y: m.astype(wide) @ y, mask, y), "iree:llvm-cpu")
    exact = mask.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(np.asarray(plan.run(mask, y)).astype(np.float64), exact)
