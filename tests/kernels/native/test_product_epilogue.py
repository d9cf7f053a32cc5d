"""Products with a bias, an activation or a residual: found as they are written, right to what they say, refused where arrays do
not fit, and chosen where they stand beside others."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import CompilationFailed, ExecutionFailed
from pcp.kernels import Site, cover
from pcp.kernels.features import masked
from pcp.ops.linear.products import dot_general
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from tests.execution import exactly, run
from tests.kernels.native.programs import arguments_of, calling
from tests.kernels.native.test_products import LESS

X, W, B, R = (pcp.spec(shape, "f32") for shape in ((3, 9, 40), (40, 33), (33,), (3, 9, 33)))
ACTIVATIONS = [
    nn.gelu,
    lambda x: nn.gelu(x, approximate=False),
    nn.silu,
    nn.relu,
    lambda x: pcp.maximum(x, 0.0),
    lambda x: x * pcp.sigmoid(1.702 * x),
    lambda x: nn.relu(x) ** 2,
]


def groups(program: pcp.Program) -> list[Site]:
    return [site for site in kernels.sites_of(prepared(program), "cpu") if site.family == "product_epilogue"]


def worst(program: pcp.Program, *names: str, count: int | None = None) -> float:
    """The largest error of the kernels of these names where they can stand together, as a part of the largest number."""
    found = [
        (site, name)
        for site in kernels.sites_of(prepared(program), "cpu")
        for name in site.kernels
        if name in names
    ]
    chosen = {site.key: name for site, name in found}
    together = {site.key: kernels.kernel_named(chosen[site.key]) for site in cover(site for site, _ in found)}
    assert count is None or len(together) == count
    return error_of(program, together)


def error_of(program: pcp.Program, chosen: dict[str, kernels.Kernel]) -> float:
    """That of a program with kernels."""
    arguments = arguments_of(program)
    path = Path.of(program, chosen)
    exact = exactly(program, *arguments)
    made = pcp.plan(program, path=path, cache=False).run(*arguments)
    pairs = zip(jax.tree.leaves(made), jax.tree.leaves(exact), strict=True)
    return max(float(np.abs(np.float64(a) - np.float64(b)).max() / np.abs(b).max()) for a, b in pairs)


def every(x: Any, w: Any, b: Any, r: Any) -> Any:
    """Every epilogue, each of a product of its own."""
    biased = [of(nn.linear(x * (2.0 + place), w, b)) for place, of in enumerate(ACTIVATIONS)]
    plain = [of((x - place) @ w) for place, of in enumerate(ACTIVATIONS)]
    return *biased, *plain, nn.linear(x * 9.0, w, b), r + nn.linear(x - 9.0, w, b), (x + 1.0) @ w + r


EVERY = pcp.trace(every, X, W, B, R)


@pytest.mark.parametrize("hides", ["", *LESS])
def test_every_epilogue_is_right(hides: str) -> None:
    with masked(*filter(None, hides.split(","))):
        assert worst(EVERY, "product_epilogue.native", count=17) < 1e-6
        assert worst(EVERY, "product_epilogue.native:bf16", count=17) < 1e-2


def test_of_one_row() -> None:
    row = pcp.spec((1, 700), "f32"), pcp.spec((700, 33), "f32"), B, pcp.spec((1, 33), "f32")
    assert worst(pcp.trace(every, *row), "product_epilogue.native", count=17) < 1e-6


def test_of_sums_that_are_made_in_several_parts() -> None:
    deep = pcp.spec((3, 1100), "f32"), pcp.spec((1100, 33), "f32"), B, pcp.spec((3, 33), "f32")
    program = pcp.trace(lambda x, w, b, r: r + nn.linear(x, w, b), *deep)
    assert worst(program, "product_epilogue.native", count=1) < 2e-6
    assert worst(program, "product_epilogue.native:bf16", count=1) < 1e-2


def test_one_call_computes_all_of_it() -> None:
    chosen = {site.key: kernels.kernel_named("product_epilogue.native") for site in cover(groups(EVERY))}
    lines = (
        str(kernels.apply_kernels(prepared(EVERY), chosen).module())
        .partition("func.func private")[0]
        .splitlines()
    )
    assert sum("custom_call" in line for line in lines) == len(EVERY.results)
    left = [
        word for word in ("dot_general", "tanh", "erf", "logistic", "select", "maximum") if word in str(lines)
    ]
    assert not left
    assert sum("stablehlo.add" in line for line in lines) == 1  # of x and 1


def test_axes_of_any_order() -> None:
    """A left operand that is stored transposed, two axes that are summed over, and a batch."""
    for x, y, contract, batch in (
        ((40, 9), (40, 33), ((0,), (0,)), ((), ())),
        ((6, 5, 7), (7, 33, 5), ((1, 2), (2, 0)), ((), ())),
        ((3, 9, 40), (3, 33, 40), ((2,), (2,)), ((0,), (0,))),
    ):
        specs = pcp.spec(x, "f32"), pcp.spec(y, "f32")

        def function(x: Any, y: Any, b: Any, contract: Any = contract, batch: Any = batch) -> Any:
            return nn.silu(dot_general(x, y, contract, batch) + b)

        assert worst(pcp.trace(function, *specs, B), "product_epilogue.native", count=1) < 1e-6


def test_as_pytorch_and_jax_write_them() -> None:
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):  # type: ignore[name-defined, misc]  # torch may not be here
        def __init__(self, activation: Any) -> None:
            super().__init__()
            self.up, self.down, self.activation = torch.nn.Linear(40, 33), torch.nn.Linear(33, 40), activation

        def forward(self, x: Any) -> Any:
            return x + self.down(self.activation(self.up(x)))

    functional = torch.nn.functional
    for name, theirs, in_jax in (
        ("exact_gelu", functional.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
        ("tanh_gelu", lambda x: functional.gelu(x, approximate="tanh"), jax.nn.gelu),
        ("silu", functional.silu, jax.nn.silu),
        ("relu", functional.relu, jax.nn.relu),
    ):
        imported = pcp.from_torch(Block(theirs), torch.zeros(2, 5, 40)).program
        up, down = sorted(cover(groups(imported)), key=lambda site: len(site.region.arguments))
        assert f'"{name}' in str(up.region.module()).replace("\\22", '"')
        assert "none, bias and residual" in str(down.region.module())
        shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, 9, 40), (40, 33), (33,))]
        (site,) = cover(groups(pcp.from_jax(lambda x, w, b, of=in_jax: of(x @ w + b), *shapes)))
        assert f'"{name}' in str(site.region.module()).replace("\\22", '"')


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_the_gradient_takes_the_product_that_was_kept(function: Any) -> None:
    loss = pcp.trace(lambda x, w, b, g: (function(nn.linear(x, w, b)) * g).sum(), X, W, B, R)
    program = pcp.value_and_grad(loss, wrt=(0, 1, 2))
    (site,) = (each for each in groups(program) if len(each.region.results) == 2)
    chosen = {site.key: kernels.kernel_named("product_epilogue.native")}
    for each in kernels.sites_of(prepared(program), "cpu"):
        if each.family == "gelu_gradient":
            chosen[each.key] = kernels.kernel_named("gelu_gradient.native")
    assert error_of(program, chosen) < 2e-6


def test_what_others_need_of_a_product_is_not_computed_twice() -> None:
    assert not groups(pcp.trace(lambda x, w, r: (x @ w + r, x @ w), X, W, R))
    assert not groups(pcp.trace(lambda x, w: x @ w + 1.0, X, W))
    assert not groups(pcp.trace(lambda x, w, s: x @ w + s, X, W, pcp.spec((3, 9, 1), "f32")))


def test_a_kernel_does_not_stand_where_another_takes_what_it_hides() -> None:
    """A product and its bias, computed by one kernel, are apart no more: what takes the product would compute it once again."""
    loss = pcp.trace(lambda x, w, b, g: (nn.gelu(nn.linear(x, w, b)) * g).sum(), X, W, B, R)
    sites = kernels.sites_of(prepared(pcp.value_and_grad(loss, wrt=(0, 1, 2))), "cpu")
    (biased,) = (
        each for each in sites if each.family == "product_epilogue" and len(each.region.results) == 1
    )
    (both,) = (each for each in sites if each.family == "product_epilogue" and len(each.region.results) == 2)
    (gradient,) = (each for each in sites if each.family == "gelu_gradient")
    assert len(cover([biased, gradient])) == 1
    assert len(cover([both, gradient])) == 2


def test_infinities_and_nan_stay_where_they_belong() -> None:
    numbers = np.resize(
        np.float32([np.inf, -np.inf, np.nan, 1e20, -1e20, 100, -100, 9, -9, 4, -4, 1, -1, 1e-30, 0]), (1, 33)
    )
    numbers = np.concatenate([numbers, np.zeros_like(numbers)])
    for of in ACTIVATIONS:
        program = pcp.trace(lambda x, w, of=of: of(x @ w), pcp.spec((1, 2), "f32"), pcp.spec((2, 33), "f32"))
        (site,) = groups(program)
        changed = kernels.apply_kernels(
            prepared(program), {site.key: kernels.kernel_named("product_epilogue.native")}
        )
        one = np.ones((1, 2), np.float32)
        np.testing.assert_allclose(
            run(changed, one, numbers), run(program, one, numbers), rtol=2e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("changes", "takes", "makes", "words"),
    [
        ({"activation": 7}, [], [(2, 4)], "there is no activation 7"),
        ({"activation": -1}, [], [(2, 4)], "there is no activation -1"),
        (
            {"bias": 1},
            [],
            [(2, 4)],
            "there are 0 operands besides the first two; the attributes say 1 biases and 0 residuals",
        ),
        ({"bias": 2}, [(4,), (4,)], [(2, 4)], "the attributes say 2 biases"),
        ({"bias": 1}, [(3,)], [(2, 4)], "the bias has 3 elements; expected one of each column"),
        ({"residual": 1}, [(4, 3)], [(2, 4)], "the residual has 12 elements; expected 8"),
        ({}, [], [(2, 3), (2, 4)], "the product has another number of elements than the result"),
        ({}, [], [(2, 4)] * 3, "there are 3 results; expected one or two"),
        ({}, [], [(2, 3)], "the result has 6 elements; its sizes say 8"),
    ],
)
def test_a_handler_refuses_what_it_is_not_for(
    changes: dict[str, int], takes: list[tuple[int, ...]], makes: list[tuple[int, ...]], words: str
) -> None:
    attributes: dict[str, Any] = {"bias": 0, "residual": 0, "activation": 0} | changes
    program = calling(
        "product_f32", [(2, 3), (3, 4), *takes], makes,
        sizes=[2, 4, 3], left_strides=[3, 1], right_strides=[4, 1], **attributes,
    )  # fmt: skip
    with pytest.raises((ExecutionFailed, CompilationFailed)) as raised:
        run(program, *arguments_of(program))
    assert words in str(raised.value)
