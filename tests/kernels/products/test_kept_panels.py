"""Right operands that are kept in panels give the bits of those that are copied in every call."""

import math
from typing import Any

import numpy as np
import pytest
from tests.kernels.native.programs import calling
from tests.kernels.native.test_products import LESS, PRODUCTS, by, run_all, together

import pcp
from pcp import kernels, nn
from pcp.ir import Program
from pcp.ir.operations import operations_of
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels.features import masked
from pcp.kernels.products.kept import with_kept_panels
from pcp.planning.paths.kinds import BOUND
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.binding import bind_stage
from pcp.tracing import trace

pytestmark = pytest.mark.cpu  # native kernels
MANY = [case for case in PRODUCTS if 1 not in (*case[0], *case[1]) and math.prod(case[1]) != case[1][0]]
FEW = [((1, 1035), (1035, 700), ((1,), (0,)), ((), ())), ((1, 70), (40, 70), ((1,), (1,)), ((), ()))]


def called(program: Program) -> list[str]:
    names = named_operations(program.module().operation, "stablehlo.custom_call")
    return [string_of(op.attributes["call_target_name"]).partition("@")[0] for op in names]


def given(program: Program) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=entry.spec.shape).astype(entry.spec.dtype.numpy) for entry in program.arguments]


@pytest.mark.parametrize("hides", ["", *LESS])
def test_products_have_the_same_bits(hides: str) -> None:
    program = together([*MANY, *FEW])
    arrays, odd = given(program), range(1, len(program.arguments), 2)
    with masked(*filter(None, hides.split(","))):
        for name in ("product.native", "product.native_bf16"):
            plain = by(name, program)
            kept = with_kept_panels(plain, odd)
            makes = [each for each in called(kept) if each.startswith("pcp.keep_product")]
            assert len(makes) == len(MANY) + (len(FEW) if name == "product.native_bf16" else 0)
            found = zip(run_all(kept, *arrays), run_all(plain, *arrays), strict=True)
            for place, (mine, expected) in enumerate(found):
                if place < len(MANY):
                    np.testing.assert_array_equal(mine, expected)
                else:  # of one row, in another order
                    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("dtype", "name"), [("bf16", "product.native"), ("f32", "product.native_int8")])
def test_other_storages_have_the_same_bits(dtype: str, name: str) -> None:
    program = together(
        [((70, 300), (300, 66), ((1,), (0,)), ((), ())), ((64, 150), (90, 150), ((1,), (1,)), ((), ()))],
        dtype,
    )
    if not all(name in site.kernels for site in kernels.sites_of(program, "cpu")):
        pytest.skip(f"{name} is not for this processor")
    plain = by(name, program)
    kept = with_kept_panels(plain, (1, 3))
    assert sum(each.startswith("pcp.keep_product") for each in called(kept)) == 2
    for mine, expected in zip(run_all(kept, *given(program)), run_all(plain, *given(program)), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_what_follows_a_product_stays() -> None:
    """A bias, an activation, a residual, and the sums before them."""
    shapes = ((40, 33), (40, 37), (37, 33), (33,), (33, 50), (50,))

    def function(r: Any, x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        return r + nn.linear(x, w, b), nn.gelu(nn.linear(r, v, c))

    program = trace(function, *(pcp.spec(shape, "f32") for shape in shapes))
    ready = prepared(program)
    sites = [site for site in kernels.sites_of(ready, "cpu") if "product_epilogue.native" in site.kernels]
    chosen = {site.key: kernels.kernel_named("product_epilogue.native") for site in kernels.cover(sites)}
    plain = kernels.apply_kernels(ready, chosen)
    kept = with_kept_panels(plain, (2, 3, 4, 5))
    assert called(kept).count("pcp.keep_product_f32") == len(chosen) == 2
    for mine, expected in zip(run_all(kept, *given(program)), run_all(plain, *given(program)), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_only_bound_right_operands_are_kept() -> None:
    program = by("product.native", trace(lambda w, x: (w @ x, x @ w), *[pcp.spec((32, 32), "f32")] * 2))
    assert with_kept_panels(program, ()) is program
    assert called(with_kept_panels(program, (0,))).count("pcp.keep_product_f32") == 1
    whole = with_kept_panels(program, (0, 1))  # which are computed once altogether
    assert whole is program
    turned = by("product.native", trace(lambda w, x: x @ pcp.tanh(w).T, *[pcp.spec((32, 32), "f32")] * 2))
    stage = bind_stage(with_kept_panels(turned, (0,)), (0,))
    assert stage is not None
    assert called(stage.sequence[0].program) == ["pcp.keep_product_f32"]
    assert called(stage.sequence[1].program) == ["pcp.kept_product_f32"]
    assert len(stage.sequence[1].takes) == 2, "the panels and x, and no more the weights"


def test_a_plan_by_such_a_path() -> None:
    program = trace(lambda w, x: pcp.tanh(x @ w["a"]) @ w["b"], *(
        {name: pcp.spec((64, 64), "f32") for name in "ab"}, pcp.spec((3, 64), "f32")
    ))  # fmt: skip
    chosen = {
        site.key: kernels.kernel_named("product.native_bf16") for site in kernels.sites_of(program, "cpu")
    }
    plain = Path.of(program, chosen)
    path = plain.having(BOUND.name, [BOUND.move(2)])
    *weights, x = given(program)
    plans = [
        pcp.plan(program, path=each).bind(dict(zip("ab", weights, strict=True))) for each in (plain, path)
    ]
    assert "bound once  16.0 KiB from 2 values" in str(plans[1])
    assert sum(op.name == "custom_call" for op in operations_of(plans[1].lowered)) == 4
    expected, found = (np.asarray(plan(x)) for plan in plans)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("handler", "takes", "makes", "attributes", "words"),
    [
        ("keep_product_f32", [(8, 8)], [(1, 8)], {"sizes": (8, 8), "strides": (8, 1)}, "8 words, too few for its panels"),
        ("keep_product_bf16", [(8, 8)], [(1, 512)], {"sizes": (8,), "strides": (8, 1)}, "there are 1 sizes; expected two or more"),
        ("keep_product_f32", [(8, 8)], [(1, 512)], {"sizes": (8, 0), "strides": (8, 1)}, "a size is below 1 or too large"),
        ("keep_product_f32", [(8, 8)], [(1, 512)], {"sizes": (8, 9), "strides": (8, 1)}, "its strides reach element 71"),
        ("keep_product_f32", [(8, 8)], [(1, 512)], {"sizes": (8, 1 << 57), "strides": (0, 1)}, "512 words, too few"),
    ],
)  # fmt: skip
def test_what_handlers_refuse(
    handler: str, takes: Any, makes: Any, attributes: dict[str, Any], words: str
) -> None:
    program = calling(handler, takes, makes, ("f32", "u32"), **attributes)
    with pytest.raises(pcp.PCPError, match=words):
        run_all(program, np.zeros(takes[0], np.float32))
